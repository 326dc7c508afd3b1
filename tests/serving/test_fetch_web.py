"""onnxruntime-web is kept only if it is what its checksum says."""

import base64
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.serving.folders import served

SCRIPT = Path(__file__).parents[2] / "scripts" / "fetch-web"
NAMES = ["ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm", "ort.wasm.min.mjs"]


def fetch(script: Path, registry: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"NPM_REGISTRY": registry, "no_proxy": "127.0.0.1"}
    return subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)


def package() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as files:
        for name in [*NAMES, "ort.all.js"]:
            facts = tarfile.TarInfo(f"package/dist/{name}")
            facts.size = len(name)
            files.addfile(facts, io.BytesIO(name.encode()))
    return buffer.getvalue()


def test_what_is_kept_and_what_is_not(tmp_path: Path) -> None:
    script, kept = tmp_path / "scripts" / "fetch-web", tmp_path / "lightgc2n" / "serving" / "page" / "ort"
    script.parent.mkdir()
    text, small = SCRIPT.read_text(), package()
    version = re.findall(r'VERSION = "(.+)"', text)[0]
    (tmp_path / "npm" / "-").mkdir(parents=True)
    (tmp_path / "npm" / "-" / f"onnxruntime-web-{version}.tgz").write_bytes(small)
    with served({"onnxruntime-web": tmp_path / "npm"}) as registry:
        script.write_text(text)
        done = fetch(script, registry)
        assert (done.returncode, kept.exists()) == (1, False)
        assert "checksum" in done.stderr
        assert "Nothing was kept" in done.stderr
        own = base64.b64encode(hashlib.sha512(small).digest()).decode()
        script.write_text(re.sub(r'SHA512 = ".+"', f'SHA512 = "{own}"', text))
        assert fetch(script, registry).returncode == 0
        assert sorted(path.name for path in kept.iterdir()) == ["VERSION.txt", *NAMES]
        assert (kept / NAMES[0]).read_text() == NAMES[0]
    assert fetch(script, registry).returncode == 0, "it is there, so nobody is asked"
    (kept / "VERSION.txt").unlink()
    done = fetch(script, registry)
    assert (done.returncode, "The page works without it" in done.stderr) == (1, True)

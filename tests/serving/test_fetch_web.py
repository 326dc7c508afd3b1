"""onnxruntime-web is kept only if it is what its checksum says."""

import base64
import hashlib
import io
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "fetch-web"
NAMES = ["ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm", "ort.wasm.min.mjs"]


# In place of npm: packs what stands beside it, or says that there is nothing, as npm does without a network.
NPM = """#!/bin/sh
[ "$1 $3" = "pack --pack-destination" ] || exit 9
cp "$(dirname "$0")/$(echo "$2" | tr @ -).tgz" "$4" || { echo "npm error: not found" >&2; exit 1; }
"""


def fetch(script: Path, tools: Path) -> subprocess.CompletedProcess[str]:
    """The script, with no other tools than these."""
    return subprocess.run(
        [sys.executable, script], env={"PATH": str(tools)}, capture_output=True, text=True, check=False
    )


def package() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as files:
        for name in [*NAMES, "ort.all.js"]:
            facts = tarfile.TarInfo(f"package/dist/{name}")
            facts.size = len(name)
            files.addfile(facts, io.BytesIO(name.encode()))
    return buffer.getvalue()


def make_npm(folder: Path) -> None:
    folder.mkdir()
    for tool in ("sh", "dirname", "cp", "tr"):
        (folder / tool).symlink_to(shutil.which(tool) or tool)
    (folder / "npm").write_text(NPM)
    (folder / "npm").chmod(0o755)


def test_what_is_kept_and_what_is_not(tmp_path: Path) -> None:
    script, kept = tmp_path / "scripts" / "fetch-web", tmp_path / "lightgc2n" / "serving" / "page" / "ort"
    script.parent.mkdir()
    text, small, tools = SCRIPT.read_text(), package(), tmp_path / "tools"
    make_npm(tools)
    version = re.findall(r'VERSION = "onnxruntime-web", "(.+)"', text)[0]
    packed = tools / f"onnxruntime-web-{version}.tgz"
    packed.write_bytes(small)
    script.write_text(text)
    done = fetch(script, tools)
    assert (done.returncode, kept.exists()) == (1, False)
    assert "checksum" in done.stderr
    assert "Nothing was kept" in done.stderr
    own = base64.b64encode(hashlib.sha512(small).digest()).decode()
    script.write_text(re.sub(r'SHA512 = ".+"', f'SHA512 = "{own}"', text))
    assert fetch(script, tools).returncode == 0
    assert sorted(path.name for path in kept.iterdir()) == ["VERSION.txt", *NAMES]
    assert (kept / NAMES[0]).read_text() == NAMES[0]
    packed.unlink()
    assert fetch(script, tools).returncode == 0, "it is there, so nobody is asked"
    (kept / "VERSION.txt").unlink()
    done = fetch(script, tools)
    assert (done.returncode, "npm error: not found" in done.stderr) == (1, True)
    assert "The page works without it" in done.stderr
    (tools / "npm").unlink()
    done = fetch(script, tools)
    assert (done.returncode, "install it, then run this again. The page works" in done.stderr) == (1, True)
    assert "Traceback" not in done.stderr


def test_no_registry_is_named() -> None:
    assert "://" not in SCRIPT.read_text()

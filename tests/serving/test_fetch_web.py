"""Packages from npm are kept only if they are what their checksums say."""

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
ORT = ["dist/ort-wasm-simd-threaded.mjs", "dist/ort-wasm-simd-threaded.wasm", "dist/ort.wasm.min.mjs"]
PACKAGES = [  # name, files that are kept, folder of the page
    ("onnxruntime-web", ORT, "ort"),
    ("swagger-ui-dist", ["swagger-ui.css", "swagger-ui-bundle.js", "LICENSE"], "swagger"),
]


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


def packed(names: list[str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as files:
        for name in [*names, "dist/more.js"]:
            facts = tarfile.TarInfo(f"package/{name}")
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
    script, page = tmp_path / "scripts" / "fetch-web", tmp_path / "lightgc2n" / "serving" / "page"
    script.parent.mkdir()
    text, tools = SCRIPT.read_text(), tmp_path / "tools"
    make_npm(tools)
    sums = re.findall(r'"([A-Za-z0-9+/]{86}==)"', text)
    for (name, names, _), found in zip(PACKAGES, sums, strict=True):
        version = re.findall(rf'"{name}",\s+"(.+)"', text)[0]
        (tools / f"{name}-{version}.tgz").write_bytes(packed(names))
        own = base64.b64encode(hashlib.sha512(packed(names)).digest()).decode()
        script.write_text(text)
        text = text.replace(found, own)
    done = fetch(script, tools)
    assert (done.returncode, (page / "swagger").exists()) == (1, False)
    assert "swagger-ui-dist 5.35.0: checksum" in done.stderr
    assert "Nothing was kept" in done.stderr
    script.write_text(text)
    assert fetch(script, tools).returncode == 0
    for _, names, folder in PACKAGES:
        kept = [Path(name).name for name in names]
        assert sorted(path.name for path in (page / folder).iterdir()) == sorted(["VERSION.txt", *kept])
        assert (page / folder / kept[0]).read_text() == names[0]
    for path in tools.glob("*.tgz"):
        path.unlink()
    assert fetch(script, tools).returncode == 0, "all is there, so npm is not called"
    (page / "ort" / "VERSION.txt").unlink()
    done = fetch(script, tools)
    assert (done.returncode, "npm error: not found" in done.stderr) == (1, True)
    assert "The page works without it" in done.stderr
    (tools / "npm").unlink()
    done = fetch(script, tools)
    assert (done.returncode, "install it, then run this again. The page works" in done.stderr) == (1, True)
    assert "Traceback" not in done.stderr


def test_no_registry_is_named() -> None:
    assert "://" not in SCRIPT.read_text()

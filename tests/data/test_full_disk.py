"""A disk that is full at any moment ends a command with one sentence and leaves nothing behind."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# Runs as root of its own: mounts a disk of a few pages at FOLDER, and tries with each of several sizes.
DISK = """
import contextlib, io, json, os, shutil, subprocess, sys, traceback
from pathlib import Path

def attempt(act, folder, sizes):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(folder)], check=True)
    for pages in sizes:
        subprocess.run(["mount", "-o", f"remount,size={pages * 4}k", str(folder)], check=True)
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
                act()
            code = 0
        except SystemExit as end:
            code = end.code
        except BaseException:
            code = traceback.format_exc()
        left = sorted(os.listdir(folder))
        print(json.dumps({"pages": pages, "code": code, "said": said.getvalue(), "left": left}))
        for name in left:
            shutil.rmtree(folder / name) if (folder / name).is_dir() else (folder / name).unlink()

folder, source = Path(sys.argv[1]), Path(sys.argv[2])
"""
IMPORT = """
from lightgc2n.cli.main import main
sys.argv = ["lightgc2n", "import", str(source), "--out", str(folder / "out"), "--skip-bad"]
attempt(main, folder, range(1, 60, 2))
"""
RECOMMEND = """
from lightgc2n.cli import main as cli
from lightgc2n.errors import LightGC2NError
from lightgc2n.recommending.results import Recommendation, Recommendations
from lightgc2n.recommending.write_recommendations import write_recommendations

def write():
    def one_list(n):  # numbers that no writer can make much smaller
        return tuple(Recommendation(f"item {k}", (n * 20 + k) * 2_654_435_761 % 2**32 / 7, k) for k in range(20))

    lists = (Recommendations(f"account {n}", one_list(n)) for n in range(count))
    try:
        write_recommendations(folder / f"recs{source.suffix}", lists)
    except LightGC2NError as problem:
        cli._fail(str(problem), problem.exit_code)

for count in (200, 100):  # the last block of a Parquet file fails otherwise than the others
    attempt(write, folder, [*range(1, 13), 200])
"""


def outcomes(script: str, folder: Path, source: Path) -> list[dict[str, Any]]:
    try:
        subprocess.run(
            ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", str(folder)], check=True, capture_output=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this system lets nobody mount a small disk")
    command = ["unshare", "-rm", sys.executable, "-c", DISK + script, str(folder), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(results: list[dict[str, Any]], name: str) -> None:
    for result in results:
        if result["code"] == 0:
            assert result["left"] == [name]
        else:
            assert result["code"] == 2, result["code"]
            assert result["left"] == []
            last = result["said"].splitlines()[-1]
            assert last.startswith("error: ")
            assert last.endswith(
                f"{name}: cannot be written: No space left on device. Free disk space, then try again."
            )
    assert {result["code"] for result in results} == {0, 2}


def test_import(tmp_path: Path) -> None:
    rows = [f"u{n % 97},i{n % 101},{'soon' if n % 10 == 0 else n},m{n % 3}\n" for n in range(5000)]
    (tmp_path / "log.csv").write_text("user,item,ts,member\n" + "".join(rows))
    (tmp_path / "disk").mkdir()
    check(outcomes(IMPORT, tmp_path / "disk", tmp_path / "log.csv"), "out")


@pytest.mark.parametrize("name", ["recs.csv", "recs.jsonl", "recs.parquet"])
def test_recommendations(tmp_path: Path, name: str) -> None:
    (tmp_path / "disk").mkdir()
    check(outcomes(RECOMMEND, tmp_path / "disk", tmp_path / name), name)

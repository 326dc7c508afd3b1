"""Commands that run at the same time, and files that others make meanwhile. A pipe holds the first command back."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lightgc2n.data.dataset import load_dataset
from lightgc2n.files.writer_lock import staging_folder
from tests.cli.test_commands import Done, run

LOG = "user,item,timestamp\n" + "".join(f"u{n % 5},i{n % 7},{1_400_000_000 + n}\n" for n in range(40))


@contextmanager
def held_import(tmp_path: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Yield an import into tmp_path/out that waits for its log, and the handle to write that log to."""
    pipe = tmp_path / "log.csv.pipe"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "lightgc2n", "import", pipe, "--format", "csv", "--out", tmp_path / "out", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process, os.open(pipe, os.O_WRONLY)  # opens when the import reads
    finally:
        process.kill()
        process.communicate()


def finish(process: subprocess.Popen[str], handle: int) -> Done:
    os.write(handle, LOG.encode())
    os.close(handle)
    out, err = process.communicate(timeout=120)
    return Done(process.returncode, out, err)


def test_a_folder_that_appears_while_a_log_is_read_is_left_alone(tmp_path: Path) -> None:
    with held_import(tmp_path) as (process, handle):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "thesis.txt").write_text("years of work")
        done = finish(process, handle)
    assert done.returncode == 2
    assert "out was created meanwhile, so it is not replaced" in done.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.txt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.csv.pipe", "out"]


@pytest.mark.parametrize("words", [(), ("--force",)])
def test_two_imports_into_one_folder(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text(LOG)
    with held_import(tmp_path, *words) as (process, handle):
        second = run("import", tmp_path / "other.csv", "--out", tmp_path / "out", *words)
        assert second.returncode == 2
        assert "out is being written by another process" in second.stderr
        first = finish(process, handle)
    assert first.returncode == 0, first.stderr
    assert load_dataset(tmp_path / "out").manifest["source"][0]["file"] == "log.csv.pipe"


def test_what_a_killed_import_left_is_removed_by_the_next(tmp_path: Path) -> None:
    with held_import(tmp_path) as (process, handle):
        assert staging_folder(tmp_path / "out").is_dir()
        process.kill()
        os.close(handle)
        process.wait(60)
    assert staging_folder(tmp_path / "out").is_dir()
    (tmp_path / "other.csv").write_text(LOG)
    assert run("import", tmp_path / "other.csv", "--out", tmp_path / "out").returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.csv.pipe", "other.csv", "out"]

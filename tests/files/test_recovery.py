"""What a killed replacement leaves is never removed because something else stands in its place meanwhile."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lightgc2n.errors import OutputError
from lightgc2n.files import writer_lock
from lightgc2n.files.atomic_writes import new_folder
from lightgc2n.files.writer_lock import recover
from tests.files.test_atomic_writes import KIND, fill, filled, names

KILLED_BEFORE_THE_SECOND_RENAME = """
import os, sys
from pathlib import Path
from lightgc2n.files import atomic_writes, writer_lock
from tests.files.test_atomic_writes import KIND, fill

def unsupported(one, other):
    raise OSError(22, "Invalid argument")

def rename_aside(one, other):
    rename(one, other)
    if Path(other).name == "old":
        os._exit(9)

rename, os.rename, writer_lock._exchange = os.rename, rename_aside, unsupported
with getattr(atomic_writes, sys.argv[2])(Path(sys.argv[1]), True, kind=KIND) as folder:
    fill(folder)
"""
KINDS_OF_FOLDERS = pytest.mark.parametrize(("make", "kept"), [("new_folder", "new"), ("resumable_folder", "old")])


def kill_between_renames(out: Path, make: str) -> None:
    with new_folder(out, kind=KIND) as folder:
        fill(folder, "old")
    command = [sys.executable, "-c", KILLED_BEFORE_THE_SECOND_RENAME, out, make]
    assert subprocess.run(command, check=False).returncode == 9
    assert not out.exists()


@KINDS_OF_FOLDERS
def test_an_empty_folder_in_its_place_does_not_count(make: str, kept: str, tmp_path: Path) -> None:
    """As after `mkdir -p out`, the first line of many scripts."""
    out = tmp_path / "out"
    kill_between_renames(out, make)
    out.mkdir()
    recover(out)
    assert filled(out) == kept
    assert ".out.lightgc2n" not in names(tmp_path)
    with pytest.raises(OutputError, match="exists already"):
        getattr(sys.modules["lightgc2n.files.atomic_writes"], make)(out, kind=KIND).__enter__()
    assert filled(out) == kept


@KINDS_OF_FOLDERS
def test_a_file_in_its_place_sets_it_aside(
    make: str, kept: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    kill_between_renames(out, make)
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    recover(out)
    assert names(out) == ["thesis.txt"]
    assert filled(tmp_path / "out.kept-0") == kept
    assert "out.kept-0" in capsys.readouterr().err
    assert not (tmp_path / ".out.lightgc2n").exists()


def test_a_folder_that_appears_between_the_renames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, rename = tmp_path / "out", os.rename

    def unsupported(one: Path, other: Path) -> None:
        raise OSError(22, "Invalid argument")

    def rename_late(one: Path, other: Path) -> None:
        rename(one, other)
        if other.name == "old":
            out.mkdir()
            (out / "thesis.txt").write_text("years of work")

    with new_folder(out, kind=KIND) as folder:
        fill(folder, "old")
    monkeypatch.setattr(writer_lock, "_exchange", unsupported)
    monkeypatch.setattr(os, "rename", rename_late)
    with (
        pytest.raises(OutputError, match="out was created meanwhile"),
        new_folder(out, True, kind=KIND) as folder,
    ):
        fill(folder)
    assert names(tmp_path) == ["out", "out.kept-0"]
    assert names(out) == ["thesis.txt"]
    assert filled(tmp_path / "out.kept-0") == "new"


def test_the_lock_does_not_stay_with_a_process_that_was_forked_meanwhile(tmp_path: Path) -> None:
    """Such a process, as of a worker pool, has copies of all handles; a command that waits would wait for its end."""
    with new_folder(tmp_path / "out", kind=KIND) as folder:
        fill(folder)
        place = folder.parent / "lock"
        handles = {int(name): Path("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")}
        (locked,) = (handle for handle, link in handles.items() if link.exists() and link.samefile(place))
        copy, waiting = os.dup(locked), os.open(place, os.O_RDWR)
    try:
        fcntl.flock(waiting, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(copy)
        os.close(waiting)

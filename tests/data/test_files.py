import errno
import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from lightgc2n.data.files import kept_folder, new_file, new_folder, refuse_existing, sha256
from lightgc2n.errors import OutputError


def fill(folder: Path, text: str = "new") -> None:
    (folder / "marker").write_text(json.dumps({"made_by": "lightgc2n 0", "text": text}))


def filled(folder: Path) -> str:
    return str(json.loads((folder / "marker").read_text())["text"])


def fill_half(file: Path, problem: type[BaseException]) -> None:
    file.write_text("half")
    raise problem


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_appears_when_it_is_whole(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    with new_folder(out, marker="marker") as folder:
        assert not out.exists()
        assert folder.parent == out.parent  # so that the rename at the end cannot fail half-way
        fill(folder)
    assert names(out.parent) == ["out"]
    assert filled(out) == "new"


@pytest.mark.parametrize("problem", [ValueError, KeyboardInterrupt, SystemExit])
def test_nothing_stays_of_a_folder_that_failed(tmp_path: Path, problem: type[BaseException]) -> None:
    with pytest.raises(problem), new_folder(tmp_path / "out", marker="marker") as folder:
        fill_half(folder / "marker", problem)
    assert names(tmp_path) == []


def test_a_kept_folder_waits_for_another_try(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt), kept_folder(out, marker="marker"):
        raise KeyboardInterrupt
    assert names(tmp_path) == []  # nothing was in it
    with pytest.raises(KeyboardInterrupt), kept_folder(out, marker="marker") as folder:
        fill_half(folder / "first", KeyboardInterrupt)
    assert names(tmp_path) == ["out.partial"]
    with kept_folder(out, marker="marker") as folder:
        assert names(folder) == ["first"]
        fill(folder)
    assert names(tmp_path) == ["out"]
    assert names(out) == ["first", "marker"]
    with pytest.raises(OutputError, match=r"exists already.*--force"), kept_folder(out, marker="marker"):
        raise AssertionError
    with kept_folder(out, force=True, marker="marker") as folder:
        fill(folder, "newer")
    assert (names(tmp_path), names(out), filled(out)) == (["out"], ["marker"], "newer")


def test_a_taken_name_is_left_alone(tmp_path: Path) -> None:
    fill(tmp_path, "old")
    with pytest.raises(OutputError, match=r"exists already.*--force"), new_folder(tmp_path, marker="marker"):
        raise AssertionError
    with pytest.raises(OutputError):
        refuse_existing(tmp_path, force=False)
    refuse_existing(tmp_path, force=True)
    assert filled(tmp_path) == "old"


def test_force_replaces_a_folder_of_the_same_kind(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    fill(out, "old")
    with new_folder(out, force=True, marker="marker") as folder:
        assert filled(out) == "old"
        fill(folder)
    assert names(tmp_path) == ["out"]
    assert filled(out) == "new"


def test_force_takes_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with new_folder(tmp_path / "out", force=True, marker="marker") as folder:
        fill(folder)
    assert names(tmp_path) == ["out"]


def test_force_leaves_other_things_alone(tmp_path: Path) -> None:
    folder, file = tmp_path / "folder", tmp_path / "file"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    file.write_text("years of work")
    for out in (folder, file):
        with pytest.raises(OutputError, match="was not made by this command"), new_folder(out, True, marker="marker"):
            raise AssertionError
    assert (folder / "thesis.txt").read_text() == file.read_text() == "years of work"
    assert names(tmp_path) == ["file", "folder"]


def test_a_failed_replacement_keeps_the_old_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    fill(out, "old")
    with pytest.raises(KeyboardInterrupt), new_folder(out, force=True, marker="marker") as folder:
        fill_half(folder / "marker", KeyboardInterrupt)
    assert names(tmp_path) == ["out"]
    assert filled(out) == "old"


@pytest.mark.parametrize("call", [1, 2])
def test_the_old_folder_comes_back_when_a_rename_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    fill(out, "old")
    rename, calls = os.rename, []

    def interrupted(source: Path, target: Path) -> None:
        calls.append(source)
        if len(calls) == call:
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt), new_folder(out, force=True, marker="marker") as folder:
        fill(folder)
    assert names(tmp_path) == ["out"]
    assert filled(out) == "old"


def test_a_folder_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with new_folder(tmp_path / "out", marker="marker") as folder:
            fill(folder)
    finally:
        os.umask(before)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o750


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "a.csv.gz"
    with new_file(out) as temporary:
        temporary.write_text("new")
        assert temporary.name.endswith(".csv.gz")
        assert not out.exists()
    assert names(out.parent) == ["a.csv.gz"]
    with pytest.raises(OutputError), new_file(out):
        raise AssertionError
    with pytest.raises(KeyboardInterrupt), new_file(out, force=True) as temporary:
        fill_half(temporary, KeyboardInterrupt)
    assert names(out.parent) == ["a.csv.gz"]
    assert out.read_text() == "new"


def test_sha256_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert sha256(tmp_path / "empty") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.parametrize("make", [lambda path: new_file(path), lambda path: new_folder(path, marker="marker")])
def test_what_cannot_be_written_is_told_of_the_name_that_was_asked_for(
    make: Callable[[Path], AbstractContextManager[Path]], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match=r"file/out: cannot be written: File exists"), make(tmp_path / "file" / "out"):
        raise AssertionError
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OutputError, match=r"out: cannot be written: No space left.*Make room"), make(tmp_path / "out"):
        raise full
    elsewhere = FileNotFoundError(errno.ENOENT, "No such file or directory", str(tmp_path / "log.csv"))
    with pytest.raises(FileNotFoundError), make(tmp_path / "out"):
        raise elsewhere
    forbidden = PermissionError(errno.EACCES, "Permission denied", str(tmp_path / ".out.x7" / "part"))
    with pytest.raises(OutputError, match=r"out: cannot be written: Permission denied"), make(tmp_path / "out"):
        raise forbidden
    assert names(tmp_path) == ["file"]

import errno
import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from lightgc2n.errors import OutputError
from lightgc2n.files import writer_lock
from lightgc2n.files.atomic_writes import new_file, new_folder, refuse_existing, resumable_folder, sha256
from lightgc2n.files.folder_kinds import FolderKind

Make = Callable[..., AbstractContextManager[Path]]
KIND = FolderKind("thing", "marker", ("first", "part/*.txt"))


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
    with new_folder(out, kind=KIND) as folder:
        assert not out.exists()
        assert folder.parent.parent == out.parent  # so that the rename at the end stays within one file system
        fill(folder)
    assert names(out.parent) == ["out"]
    assert filled(out) == "new"


@pytest.mark.parametrize("problem", [ValueError, KeyboardInterrupt, SystemExit])
def test_nothing_stays_of_a_folder_that_failed(tmp_path: Path, problem: type[BaseException]) -> None:
    with pytest.raises(problem), new_folder(tmp_path / "out", kind=KIND) as folder:
        fill_half(folder / "marker", problem)
    assert names(tmp_path) == []


def test_a_resumable_folder_waits_for_another_try(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt), resumable_folder(out, kind=KIND):
        raise KeyboardInterrupt
    assert names(tmp_path) == []  # nothing was in it
    with pytest.raises(KeyboardInterrupt), resumable_folder(out, kind=KIND) as folder:
        fill_half(folder / "first", KeyboardInterrupt)
    assert names(tmp_path) == ["out.partial"]
    with resumable_folder(out, kind=KIND) as folder:
        assert names(folder) == [".lightgc2n.json", "first"]
        fill(folder)
    assert names(tmp_path) == ["out"]
    assert names(out) == ["first", "marker"]
    with pytest.raises(OutputError, match=r"exists already.*force=True"), resumable_folder(out, kind=KIND):
        raise AssertionError
    with resumable_folder(out, force=True, kind=KIND) as folder:
        fill(folder, "newer")
    assert (names(tmp_path), names(out), filled(out)) == (["out"], ["marker"], "newer")


def test_a_taken_name_is_left_alone(tmp_path: Path) -> None:
    fill(tmp_path, "old")
    with pytest.raises(OutputError, match=r"exists already.*force=True"), new_folder(tmp_path, kind=KIND):
        raise AssertionError
    with pytest.raises(OutputError):
        refuse_existing(tmp_path, force=False)
    refuse_existing(tmp_path, force=True)
    assert filled(tmp_path) == "old"


def test_force_replaces_a_folder_of_the_same_kind(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    fill(out, "old")
    with new_folder(out, force=True, kind=KIND) as folder:
        assert filled(out) == "old"
        fill(folder)
    assert names(tmp_path) == ["out"]
    assert filled(out) == "new"


def test_force_takes_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with new_folder(tmp_path / "out", force=True, kind=KIND) as folder:
        fill(folder)
    assert names(tmp_path) == ["out"]


def test_force_leaves_other_things_alone(tmp_path: Path) -> None:
    folder, file = tmp_path / "folder", tmp_path / "file"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    file.write_text("years of work")
    for out in (folder, file):
        with pytest.raises(OutputError, match="was not made by this command"), new_folder(out, True, kind=KIND):
            raise AssertionError
    assert (folder / "thesis.txt").read_text() == file.read_text() == "years of work"
    assert names(tmp_path) == ["file", "folder"]


def test_a_failed_replacement_keeps_the_old_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    fill(out, "old")
    with pytest.raises(KeyboardInterrupt), new_folder(out, force=True, kind=KIND) as folder:
        fill_half(folder / "marker", KeyboardInterrupt)
    assert names(tmp_path) == ["out"]
    assert filled(out) == "old"


def test_a_folder_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with new_folder(tmp_path / "out", kind=KIND) as folder:
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


@pytest.mark.parametrize("make", [lambda path: new_file(path), lambda path: new_folder(path, kind=KIND)])
def test_errors_of_writing_name_the_requested_path(
    make: Callable[[Path], AbstractContextManager[Path]], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    with (
        pytest.raises(OutputError, match=r"file/out: cannot be written: (File exists|Not a directory)"),
        make(tmp_path / "file" / "out"),
    ):
        raise AssertionError
    full = OSError(errno.ENOSPC, "No space left on device")
    with (
        pytest.raises(OutputError, match=r"out: cannot be written: No space left.*Free disk space"),
        make(tmp_path / "out"),
    ):
        raise full
    elsewhere = FileNotFoundError(errno.ENOENT, "No such file or directory", str(tmp_path / "log.csv"))
    with pytest.raises(FileNotFoundError), make(tmp_path / "out"):
        raise elsewhere
    forbidden = PermissionError(errno.EACCES, "Permission denied", str(tmp_path / ".lightgc2n-tmp-00000000-out"))
    with pytest.raises(OutputError, match=r"out: cannot be written: Permission denied"), make(tmp_path / "out"):
        raise forbidden
    assert names(tmp_path) == ["file"]


def test_an_empty_folder_is_free(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with new_folder(tmp_path / "out", kind=KIND) as folder:
        fill(folder)
    assert filled(tmp_path / "out") == "new"


@pytest.mark.parametrize("make", [new_folder, resumable_folder])
def test_a_folder_that_appears_meanwhile_is_left_alone(make: Make, tmp_path: Path) -> None:
    out = tmp_path / "out"

    def write_thesis(folder: Path) -> None:
        fill(folder)
        out.mkdir()
        (out / "thesis.txt").write_text("years of work")

    with pytest.raises(OutputError, match="out was created meanwhile"), make(out, kind=KIND) as folder:
        write_thesis(folder)
    assert (out / "thesis.txt").read_text() == "years of work"


def test_a_file_that_appears_meanwhile_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    with pytest.raises(OutputError, match="was created meanwhile"), new_file(out):
        out.write_text("thesis")
    assert (out.read_text(), names(tmp_path)) == ("thesis", ["out.csv"])


@pytest.mark.parametrize("make", [new_folder, resumable_folder])
def test_force_leaves_a_folder_alone_that_also_holds_other_files(make: Make, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "part" / "deep").mkdir(parents=True)
    fill(out, "old")
    (out / "part" / "1.txt").touch()
    with pytest.raises(OutputError, match="out holds part/deep, which is not part of a thing"):
        make(out, force=True, kind=KIND).__enter__()
    (out / "part" / "deep").rmdir()
    (out / "link.txt").symlink_to("marker")
    with pytest.raises(OutputError, match=r"out holds link\.txt"):
        make(out, force=True, kind=KIND).__enter__()
    (out / "link.txt").unlink()
    with make(out, force=True, kind=KIND) as folder:
        fill(folder)
    assert (names(tmp_path), names(out), filled(out)) == (["out"], ["marker"], "new")


def test_a_partial_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    partial = tmp_path / "out.partial"
    partial.mkdir()
    (partial / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputError, match=r"out\.partial is not an unfinished thing of this version"):
        resumable_folder(tmp_path / "out", kind=KIND).__enter__()
    assert (partial / "thesis.txt").read_text() == "years of work"


def test_a_file_put_into_a_folder_while_it_is_replaced_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    out.mkdir()
    fill(out, "old")
    exchange = writer_lock._exchange

    def exchange_late(one: Path, other: Path) -> None:
        (out / "thesis.txt").write_text("years of work")  # after the last look at the folder
        exchange(one, other)

    monkeypatch.setattr(writer_lock, "_exchange", exchange_late)
    with new_folder(out, force=True, kind=KIND) as folder:
        fill(folder)
    assert names(tmp_path) == ["out", "out.kept-0"]
    assert (filled(out), names(tmp_path / "out.kept-0")) == ("new", ["thesis.txt"])


def test_all_files_are_durable_before_the_rename_and_the_rename_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    rename, fsync = os.rename, os.fsync

    def log_rename(one: Path, other: Path) -> None:
        rename(one, other)
        steps.append(f"{one.name} -> {other.name}")

    def log_fsync(handle: int) -> None:
        fsync(handle)
        steps.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)

    monkeypatch.setattr(os, "rename", log_rename)
    monkeypatch.setattr(os, "fsync", log_fsync)
    with new_folder(tmp_path / "out", kind=KIND) as folder:
        fill(folder)
        (folder / "part").mkdir()
        (folder / "part" / "1.txt").touch()
    written = steps[: steps.index("new -> ready")]
    assert {"marker", "1.txt", "part", "new"} <= set(written)
    assert steps[-2:] == ["ready -> out", tmp_path.name]


def test_a_replaced_folder_keeps_its_access_rights(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    fill(out, "old")
    out.chmod(0o700)
    (out / "marker").chmod(0o600)
    with new_folder(out, force=True, kind=KIND) as folder:
        fill(folder)
        (folder / "first").touch()
    modes = {path.name: path.stat().st_mode & 0o777 for path in (out, out / "marker")}
    assert modes == {"out": 0o700, "marker": 0o600}


def test_unfinished_files_of_killed_processes_are_removed_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    left = tmp_path / ".lightgc2n-tmp-0badcafe-a.csv"
    others = [tmp_path / ".a.csv", tmp_path / ".git", tmp_path / ".lightgc2n-tmp-0badcafe-b.csv"]
    for path in (left, *others):
        path.write_text("half")
    with new_file(tmp_path / "a.csv", force=True) as first, new_file(tmp_path / "a.csv", force=True) as second:
        assert first.exists()
        assert second.exists()
        assert not left.exists()
        first.write_text("first")
        second.write_text("second")
    assert (tmp_path / "a.csv").read_text() == "first"  # it ended last
    assert all(path.read_text() == "half" for path in others)


@pytest.mark.parametrize(
    "problem",
    [
        OSError("4500 requested and 2016 written"),  # numpy's, which has no error number
        RuntimeError("No space left on device (os error 28)"),  # of a library in Rust
        OSError(errno.EDQUOT, "Disk quota exceeded"),
    ],
)
def test_a_full_disk_is_known_by_whatever_error(problem: Exception, tmp_path: Path) -> None:
    wanted = r"out: cannot be written: No space left.*Free disk space"
    with pytest.raises(OutputError, match=wanted), new_folder(tmp_path / "out", kind=KIND):
        raise problem
    assert names(tmp_path) == []


def test_a_pipe_or_a_device_is_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OutputError, match="not a regular file"):
        new_file(tmp_path / "pipe", force=True).__enter__()
    assert (tmp_path / "pipe").is_fifo()


def test_a_link_keeps_pointing_at_the_file_that_is_written(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    with new_file(tmp_path / "link", force=True) as temporary:
        temporary.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"

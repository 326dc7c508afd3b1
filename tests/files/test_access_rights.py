"""What replaces a file or a folder belongs to the same owner, with the same access rights."""

import os
from pathlib import Path

import pytest

from lightgc2n.errors import OutputError
from lightgc2n.files.atomic_writes import new_file, new_folder, resumable_folder
from lightgc2n.files.writer_lock import staging_folder
from tests.files.test_atomic_writes import KIND, Make, fill, filled, names

SOMEBODY, THEIR_GROUP = 12345, 23456
ROOT_ALONE = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")


def owner_of(path: Path) -> tuple[int, int]:
    return path.stat().st_uid, path.stat().st_gid


@ROOT_ALONE
def test_a_folder_that_root_replaces_keeps_its_owners(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    fill(out, "old")
    (out / "first").touch()
    for path in (out, out / "marker"):
        os.chown(path, SOMEBODY, THEIR_GROUP)
    with new_folder(out, force=True, kind=KIND) as folder:
        fill(folder)
        (folder / "first").touch()
        (folder / "part").mkdir()
        (folder / "part" / "1.txt").touch()  # it was not there before: it belongs to the folder's owner
    theirs = [out, out / "marker", out / "part", out / "part" / "1.txt"]
    assert {owner_of(path) for path in theirs} == {(SOMEBODY, THEIR_GROUP)}
    assert owner_of(out / "first") == (os.geteuid(), os.getegid())


@ROOT_ALONE
def test_a_file_that_root_replaces_keeps_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch(0o640)
    os.chown(path, SOMEBODY, THEIR_GROUP)
    with new_file(path, force=True) as temporary:
        temporary.write_text("new")
    assert (owner_of(path), path.stat().st_mode & 0o777) == ((SOMEBODY, THEIR_GROUP), 0o640)


def test_a_user_who_may_not_give_files_away_still_writes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, user: int, group: int) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    path = tmp_path / "file"
    path.write_text("old")
    if os.geteuid() == 0:
        os.chown(path, SOMEBODY, THEIR_GROUP)
    monkeypatch.setattr(os, "chown", refuse)
    with new_file(path, force=True) as temporary:
        temporary.write_text("new")
    assert path.read_text() == "new"


@pytest.mark.parametrize("make", [new_folder, resumable_folder])
@pytest.mark.parametrize("name", ["", "part"])
def test_a_folder_that_is_read_only_is_refused_before_anything_is_written(
    make: Make, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could not be renamed, and what was written beside it could not be removed."""
    out = tmp_path / "out"
    (out / "part").mkdir(parents=True)
    fill(out, "old")
    (out / name).chmod(0o555)
    if os.geteuid() == 0:  # who may write everywhere
        monkeypatch.setattr(os, "access", lambda place, _: bool(Path(place).stat().st_mode & 0o200))
    with pytest.raises(OutputError, match=rf"{out / name} is not writable for this user \(mode 0555\).*chmod u\+w"):
        make(out, True, kind=KIND).__enter__()
    assert (filled(out), names(tmp_path)) == ("old", ["out"])


def test_private_content_is_private_while_it_is_written(tmp_path: Path) -> None:
    out, path = tmp_path / "out", tmp_path / "file"
    out.mkdir(0o700)
    fill(out, "old")
    with new_folder(out, force=True, kind=KIND) as folder:
        assert staging_folder(out).stat().st_mode & 0o077 == 0
        fill(folder)
    path.touch(0o600)
    with new_file(path, force=True) as temporary:
        assert temporary.stat().st_mode & 0o077 == 0
        temporary.write_text("new")
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_read_only_file_is_replaced_and_stays_read_only(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o444)
    with new_file(path, force=True) as temporary:
        temporary.write_text("new")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o444)

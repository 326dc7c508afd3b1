"""Folders that a command resumes: taken over by their claim alone, and never lost in the last step."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lightgc2n.errors import OutputError
from lightgc2n.files import atomic_writes
from lightgc2n.files.atomic_writes import new_folder, resumable_folder
from lightgc2n.files.folder_kinds import CLAIM
from lightgc2n.files.writer_lock import recover
from tests.files.test_atomic_writes import KIND, fill, fill_half, filled, names


def stop_with(out: Path, name: str) -> None:
    """Leave an unfinished folder that holds one file."""
    with pytest.raises(KeyboardInterrupt), resumable_folder(out, kind=KIND) as folder:
        fill_half(folder / name, KeyboardInterrupt)


def test_a_folder_with_names_like_ours_and_no_claim_is_left_alone(tmp_path: Path) -> None:
    partial = tmp_path / "out.partial"
    (partial / "part").mkdir(parents=True)
    (partial / "first").write_text("years of work")
    (partial / "part" / "1.txt").write_text("more of it")
    for force in (False, True):
        with pytest.raises(OutputError, match=r"out\.partial is not an unfinished thing.*Move it elsewhere"):
            resumable_folder(tmp_path / "out", force, kind=KIND).__enter__()
    assert (partial / "first").read_text() == "years of work"
    assert (partial / "part" / "1.txt").read_text() == "more of it"
    assert names(tmp_path) == ["out.partial"]


@pytest.mark.parametrize("claim", ["", "{}", "[]", '{"made_by": "lightgc2n fan club"}', '{"made_by": 3}'])
def test_a_claim_that_is_not_ours_does_not_count(claim: str, tmp_path: Path) -> None:
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial" / CLAIM).write_text(claim)
    with pytest.raises(OutputError, match="not an unfinished thing"):
        resumable_folder(tmp_path / "out", kind=KIND).__enter__()
    assert (tmp_path / "out.partial" / CLAIM).read_text() == claim


def test_a_link_or_a_foreign_file_in_a_claimed_folder_is_refused(tmp_path: Path) -> None:
    stop_with(tmp_path / "out", "first")
    (tmp_path / "thesis").write_text("years of work")
    (tmp_path / "out.partial" / "part").mkdir()
    (tmp_path / "out.partial" / "part" / "1.txt").symlink_to(tmp_path / "thesis")
    with pytest.raises(OutputError, match=r"part/1\.txt: expected a regular file, found a link"):
        resumable_folder(tmp_path / "out", kind=KIND).__enter__()
    (tmp_path / "out.partial" / "part" / "1.txt").unlink()
    (tmp_path / "out.partial" / "notes").write_text("mine")
    with pytest.raises(OutputError, match=r"out\.partial holds notes"):
        resumable_folder(tmp_path / "out", kind=KIND).__enter__()
    assert (tmp_path / "thesis").read_text() == "years of work"


def test_what_a_kill_before_the_claim_left_is_taken(tmp_path: Path) -> None:
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial" / f".lightgc2n-tmp-0badcafe-{CLAIM}").write_text("{")
    with resumable_folder(tmp_path / "out", kind=KIND) as folder:
        fill(folder)
    assert filled(tmp_path / "out") == "new"


KILLED_IN_A_RENAME = """
import os, sys
from pathlib import Path
from lightgc2n.files import atomic_writes
from tests.files.test_atomic_writes import KIND, fill
rename, at = os.rename, int(sys.argv[2])
def killed(one, other):
    global at
    if at == 0:
        os._exit(9)
    at -= 1
    rename(one, other)
os.rename = killed
with atomic_writes.resumable_folder(Path(sys.argv[1]), True, kind=KIND) as folder:
    (folder / "first").write_text("hours of training")
    fill(folder)
os._exit(0)
"""


@pytest.mark.parametrize(("renames", "left"), [(0, "old"), (1, "old"), (2, "new")])
def test_killed_while_it_replaces_the_earlier_result(renames: int, left: str, tmp_path: Path) -> None:
    """Two renames: the earlier folder goes aside, the finished one comes. Neither is lost before either of them."""
    out = tmp_path / "out"
    with new_folder(out, kind=KIND) as folder:
        fill(folder, "old")
    ended = subprocess.run([sys.executable, "-c", KILLED_IN_A_RENAME, out, str(renames)], check=False)
    assert ended.returncode == (0 if renames == 2 else 9)
    recover(out)
    assert filled(out) == left
    if left == "old":
        assert (tmp_path / "out.partial" / "first").read_text() == "hours of training"
        with resumable_folder(out, True, kind=KIND) as folder:
            assert json.loads((folder / "marker").read_text())["text"] == "new"
    assert (filled(out), names(tmp_path), names(out)) == ("new", ["out"], ["first", "marker"])


def test_a_folder_that_appears_while_the_earlier_one_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, put = tmp_path / "out", atomic_writes._install

    def put_late(*words: object) -> None:
        out.mkdir()
        (out / "thesis.txt").write_text("years of work")
        put(*words)  # type: ignore[arg-type]

    with new_folder(out, kind=KIND) as folder:
        fill(folder, "old")
    monkeypatch.setattr(atomic_writes, "_install", put_late)
    with (
        pytest.raises(OutputError, match="was created meanwhile"),
        resumable_folder(out, True, kind=KIND) as folder,
    ):
        fill(folder)
    assert names(tmp_path) == ["out", "out.kept-0", "out.partial"]
    assert names(out) == ["thesis.txt"]
    assert (filled(tmp_path / "out.kept-0"), filled(tmp_path / "out.partial")) == ("old", "new")


def test_every_new_parent_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[str] = set()
    fsync = os.fsync

    def log_fsync(handle: int) -> None:
        fsync(handle)
        synced.add(os.readlink(f"/proc/self/fd/{handle}"))

    monkeypatch.setattr(os, "fsync", log_fsync)
    monkeypatch.setattr(atomic_writes.os, "fsync", log_fsync)
    with new_folder(tmp_path / "a" / "b" / "c" / "out", kind=KIND) as folder:
        fill(folder)
    assert {str(tmp_path / name) for name in ("", "a", "a/b", "a/b/c")} <= synced
    synced.clear()
    with atomic_writes.new_file(tmp_path / "x" / "y" / "out.txt") as temporary:
        temporary.write_text("new")
    assert {str(tmp_path / name) for name in ("", "x", "x/y")} <= synced

"""Which files and folders count as the product's own: by exact name and exact marker, and never a link."""

import json
import os
from pathlib import Path

import pytest

from lightgc2n.errors import OutputError
from lightgc2n.files.atomic_writes import new_file, new_folder, remove_leftovers
from lightgc2n.files.folder_kinds import FolderKind, is_made_by_us, refuse_foreign
from lightgc2n.files.writer_lock import recover
from tests.files.test_atomic_writes import KIND, fill, filled, names


@pytest.mark.parametrize(
    ("made_by", "ours"),
    [
        ("lightgc2n 0.1.0", True),
        ("lightgc2n 1.0rc1+local.2", True),
        ("lightgc2n fan club", False),
        ("lightgc2n", False),
        ("lightgc2next 1", False),
        ("lightgc2n 1 and me", False),
        (["lightgc2n 0.1.0"], False),
        (None, False),
    ],
)
def test_only_the_name_and_a_version_mark_a_folder(made_by: object, ours: bool, tmp_path: Path) -> None:
    (tmp_path / "marker").write_text(json.dumps({"made_by": made_by}))
    assert is_made_by_us(tmp_path / "marker") is ours
    assert KIND.is_marked(tmp_path) is ours


def test_force_leaves_the_folder_of_a_fan_club_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "marker").write_text('{"made_by": "lightgc2n fan club"}')
    with pytest.raises(OutputError, match="was not made by this command"):
        new_folder(tmp_path / "out", True, kind=KIND).__enter__()
    assert names(tmp_path / "out") == ["marker"]


def test_a_link_is_never_one_of_our_files(tmp_path: Path) -> None:
    out, thesis = tmp_path / "out", tmp_path / "thesis"
    out.mkdir()
    fill(out, "old")
    thesis.write_text("years of work")
    (out / "first").symlink_to(thesis)
    with pytest.raises(OutputError, match=r"out/first: expected a regular file, found a link .*cp -L"):
        new_folder(out, True, kind=KIND).__enter__()
    KIND.remove(out)
    assert (names(out), thesis.read_text()) == (["first"], "years of work")


def test_an_empty_folder_of_somebody_else_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "out" / "mine" / "empty").mkdir(parents=True)
    fill(tmp_path / "out")
    KIND.remove(tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").rglob("*")) == ["empty", "mine"]


def test_a_link_to_a_folder_is_not_walked(tmp_path: Path) -> None:
    out, papers = tmp_path / "out", tmp_path / "papers"
    out.mkdir()
    papers.mkdir()
    (papers / "1.txt").write_text("years of work")
    fill(out, "old")
    (out / "part").symlink_to(papers)
    with pytest.raises(OutputError, match="out/part: expected a regular file, found a link"):
        refuse_foreign(out, KIND)
    KIND.remove(out)
    assert (names(out), names(papers)) == (["part"], ["1.txt"])


def test_a_pipe_with_one_of_our_names_is_left_alone(tmp_path: Path) -> None:
    fill(tmp_path)
    os.mkfifo(tmp_path / "first")
    with pytest.raises(OutputError, match="first: expected a regular file"):
        refuse_foreign(tmp_path, KIND)


def test_a_name_that_only_begins_like_an_unfinished_file_is_foreign(tmp_path: Path) -> None:
    mine = [
        ".lightgc2n-tmp-notes",
        ".lightgc2n-tmp-0badcafe",
        ".lightgc2n-tmp-a-my-thesis",
        ".lightgc2n-tmp-0BADCAFE-a",
    ]
    for name in mine:
        (tmp_path / name).write_text("mine")
    (tmp_path / ".lightgc2n-tmp-0badcafe-a").write_text("half")
    remove_leftovers(tmp_path)
    assert names(tmp_path) == sorted(mine)
    assert all(FolderKind("thing", "marker").owns(name) is False for name in mine)


@pytest.mark.parametrize("name", ["*", "a[1].csv", "?.csv", "[!x]"])
def test_pattern_characters_in_a_name_are_literal(name: str, tmp_path: Path) -> None:
    others = [".lightgc2n-tmp-0badcafe-a1.csv", ".lightgc2n-tmp-0badcafe-b.csv", ".lightgc2n-tmp-0badcafe-z"]
    for other in (*others, f".lightgc2n-tmp-0badcafe-{name}"):
        (tmp_path / other).write_text("half")
    with new_file(tmp_path / name) as temporary:
        temporary.write_text("new")
    assert names(tmp_path) == sorted([*others, name])


def test_a_leftover_that_is_a_pipe_a_link_or_a_folder_does_not_stop_a_writer(tmp_path: Path) -> None:
    thesis = tmp_path / "thesis"
    thesis.write_text("years of work")
    os.mkfifo(tmp_path / ".lightgc2n-tmp-00000001-a")
    (tmp_path / ".lightgc2n-tmp-00000002-a").symlink_to(thesis)
    (tmp_path / ".lightgc2n-tmp-00000003-a").mkdir()
    with new_file(tmp_path / "a") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "a").read_text() == "new"
    assert len(names(tmp_path)) == 5
    assert thesis.read_text() == "years of work"


@pytest.mark.parametrize(
    "files",
    [
        {"owner.json": "my name", "new/thesis.txt": "years of work"},
        {"owner.json": '{"made_by": "me"}', "lock": "", "old/thesis.txt": "years of work"},
        {"lock": "the combination is 1234"},
        {"new/thesis.txt": "years of work"},
    ],
)
def test_a_folder_named_like_the_writers_own_is_left_alone(files: dict[str, str], tmp_path: Path) -> None:
    staging = tmp_path / ".out.lightgc2n"
    for name, text in files.items():
        (staging / name).parent.mkdir(parents=True, exist_ok=True)
        (staging / name).write_text(text)
    with pytest.raises(OutputError, match=r"\.out\.lightgc2n exists, and this command did not make it"):
        new_folder(tmp_path / "out", kind=KIND).__enter__()
    recover(tmp_path / "out")
    assert {name: (staging / name).read_text() for name in files} == files


@pytest.mark.parametrize("name", ["new", "ready", "old", "scratch"])
def test_a_link_in_the_writers_folder_is_not_followed(name: str, tmp_path: Path) -> None:
    """Somebody else may make that folder, with an owner file like ours, where everybody may write."""
    thesis, staging = tmp_path / "thesis", tmp_path / ".out.lightgc2n"
    thesis.mkdir()
    (thesis / "first").write_text("years of work")
    staging.mkdir()
    kind = {"name": "thing", "marker": "marker", "files": ["*"]}
    (staging / "owner.json").write_text(json.dumps({"made_by": "lightgc2n 0.1.0", "kind": kind}))
    (staging / name).symlink_to(thesis)
    recover(tmp_path / "out")
    with pytest.raises(OutputError, match="exists, and this command did not make it"):
        new_folder(tmp_path / "out", kind=KIND).__enter__()
    assert (thesis / "first").read_text() == "years of work"


def test_a_kill_while_the_owner_is_written_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    staging = tmp_path / ".out.lightgc2n"
    staging.mkdir()
    (staging / "lock").touch()
    (staging / ".lightgc2n-tmp-00000000-owner.json").write_text('{"made_')
    with new_folder(tmp_path / "out", kind=KIND) as folder:
        fill(folder)
    assert (names(tmp_path), filled(tmp_path / "out")) == (["out"], "new")

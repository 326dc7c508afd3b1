"""Results that come home in an archive: they replace files of runs, and no other file."""

import json
from pathlib import Path

import pytest

from lightgc2n.errors import OutputError
from lightgc2n.paper.experiment_pack import _copy_run
from lightgc2n.training.runs import RUN

OURS = json.dumps({"made_by": "lightgc2n 0.1.0"})


def folder_with(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_a_run_replaces_its_own_files_alone(tmp_path: Path) -> None:
    packed = folder_with(tmp_path / "packed", run_json=OURS, metrics_jsonl="new", notes_txt="theirs", results_json="{}")
    home = folder_with(tmp_path / "home", run_json=OURS, metrics_jsonl="old", notes_txt="mine")
    _copy_run(packed, home)
    found = {path.name: path.read_text() for path in home.iterdir()}
    assert found == {RUN: OURS, "metrics.jsonl": "new", "notes.txt": "mine", "results.json": "{}"}


def test_a_run_with_a_linked_file_is_left_alone(tmp_path: Path) -> None:
    packed = folder_with(tmp_path / "packed", run_json=OURS, metrics_jsonl="new")
    home = folder_with(tmp_path / "home", run_json=OURS)
    (tmp_path / "thesis").write_text("years of work")
    (home / "metrics.jsonl").symlink_to(tmp_path / "thesis")
    with pytest.raises(OutputError, match="found a link"):
        _copy_run(packed, home)
    assert (tmp_path / "thesis").read_text() == "years of work"


def test_logs_come_home_and_other_folders_only_add_files(tmp_path: Path) -> None:
    _copy_run(folder_with(tmp_path / "logs", a_txt="new"), folder_with(tmp_path / "home" / "logs", a_txt="old"))
    assert (tmp_path / "home" / "logs" / "a.txt").read_text() == "new"
    _copy_run(folder_with(tmp_path / "x", a_txt="new", b_txt="new"), folder_with(tmp_path / "home" / "x", a_txt="mine"))
    assert [(tmp_path / "home" / "x" / name).read_text() for name in ("a.txt", "b.txt")] == ["mine", "new"]

"""Paths that no file can have are explained, wherever they are given."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lightgc2n as lg
from lightgc2n.errors import LightGC2NError
from lightgc2n.training.runs import plan_of, read_run
from tests.api.world import data, run
from tests.cli.test_commands import run as command

CALLS: dict[str, Callable[[str], Any]] = {
    "load a dataset": lg.Dataset.load,
    "read a log": lambda path: lg.Dataset.from_path(path, progress=False),
    "read items": lambda path: lg.Dataset.from_frame(data().to_frame(), items=path, progress=False),
    "save": lambda path: lg.Dataset.load(data().folder).save(path),
    "load a run": lambda path: lg.load(path, progress=False),
    "save a run": lambda path: lg.load(run().folder, data(), progress=False).save(path),
    "export": lambda path: run().export(path),
    "train": lambda path: lg.train(data(), epochs=1, out=path, progress=False),
    "start from a run": lambda path: lg.train(data(), from_run=path, progress=False),
    "compare": lambda path: lg.compare(data(), ["popularity"], out=path, progress=False),
}


@pytest.mark.parametrize("path", ["a\0b", "x" * 300, "/".join(["d" * 200] * 25)], ids=["NUL", "long", "deep"])
@pytest.mark.parametrize("name", CALLS)
def test_a_path_that_no_file_can_have(name: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LightGC2NError):
        CALLS[name](path)
    assert list(tmp_path.iterdir()) == []


def test_a_path_in_a_plan_or_in_a_run(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text('data = "a\\u0000b"\nmodel = "popularity"\n')
    done = command("train", "--plan", tmp_path / "plan.toml", "--out", tmp_path / "runs")
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert "NUL" in done.stderr


def test_a_run_may_have_the_longest_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A staging folder beside it could not, so there is nothing to recover."""
    monkeypatch.chdir(tmp_path)
    place = Path("r" * 255)
    lg.train(data(), epochs=1, out=place, progress=False)
    assert plan_of(place).model == read_run(place)["model"]


def test_a_dataset_may_have_a_name_that_is_no_text(tmp_path: Path) -> None:
    place = tmp_path / "shop\udcff"
    done = command("generate", "--accounts", "60", "--out", place)
    assert (done.returncode, done.stderr) == (0, "")
    assert lg.Dataset.load(place).name == "shop?"

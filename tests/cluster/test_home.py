"""The keeper of runs at home, without a cluster."""

import math
import os
from pathlib import Path

import pytest

from lightgc2n.cluster.attempts import scratch
from lightgc2n.cluster.home import Home
from lightgc2n.errors import ClusterError, OutputError
from lightgc2n.training.checkpoints import BEST, LAST, METRICS
from lightgc2n.training.runs import RUN


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / RUN).write_text("{}")
    return tmp_path / "run"


def test_a_late_checkpoint_of_an_older_attempt_is_refused(run: Path) -> None:
    home = Home()
    home.open("one", run, math.inf)
    home.expect("one", 1)
    order = home.begin("one", 1, "frozen")
    assert order is not None
    assert set(order.files) == {RUN}
    assert home.keep("one", 1, "frozen", {LAST: b"epoch 1", METRICS: b'{"epoch": 0}\n'})
    home.expect("one", 2)
    order = home.begin("one", 2, "awake")
    assert order is not None
    assert order.files[LAST] == b"epoch 1"
    assert home.keep("one", 2, "awake", {LAST: b"epoch 2"})
    assert not home.keep("one", 1, "frozen", {LAST: b"late", BEST: b"late"})
    assert home.begin("one", 1, "frozen") is None
    assert (run / LAST).read_bytes() == b"epoch 2"
    assert not (run / BEST).exists()
    sight = home.sights()["one"]
    assert (sight.attempt, sight.node, sight.epochs, sight.refused) == (2, "awake", 1, ("frozen", "frozen"))


def test_files_that_no_run_has_are_not_written(run: Path) -> None:
    home = Home()
    home.open("one", run, math.inf)
    home.expect("one", 1)
    assert home.keep("one", 1, "node", {"../outside": b"no", RUN: b"no", "notes.txt": b"no"})
    assert sorted(path.name for path in run.parent.rglob("*")) == ["run", RUN]
    assert (run / RUN).read_text() == "{}"


def test_the_folder_of_a_run_has_one_writer(run: Path) -> None:
    home = Home()
    home.open("one", run, math.inf)
    with pytest.raises(OutputError, match="being trained by another process"):
        Home().open("one", run, math.inf)
    home.close("one")
    Home().open("one", run, math.inf)


def test_nothing_begins_after_the_time_budget(run: Path) -> None:
    home = Home()
    home.open("one", run, until=0.0)
    home.expect("one", 1)
    assert home.begin("one", 1, "node") is None


def test_scratch_of_killed_processes_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with scratch() as first:
        left, foreign = first.parent / "attempt-left", first.parent / "thesis"
        left.mkdir()
        foreign.mkdir()
        (left / "file").touch()
        with scratch() as second:
            assert first.is_dir()
            assert second.is_dir()
            assert not left.exists()
            assert foreign.is_dir()
        assert not second.exists()
    assert not first.exists()


@pytest.mark.parametrize("kind", ["link", "dangling link", "file"])
def test_scratch_that_is_no_folder_is_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    place, target = tmp_path / f"lightgc2n-scratch-{os.getuid()}", tmp_path / "somewhere"
    if kind == "file":
        place.touch()
    else:
        place.symlink_to(target)
        if kind == "link":
            target.mkdir()
    with pytest.raises(ClusterError, match="is not a folder of this user"), scratch():
        pass
    assert not target.exists() or not list(target.iterdir())

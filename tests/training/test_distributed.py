"""Runs of several workers: an ordinary run folder comes out, and a lost worker changes nothing but the time."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.testing import assert_close

from lightgc2n.data.splits import SplitConfig
from lightgc2n.errors import LightGC2NError, ScoreError, SettingError
from lightgc2n.export.write_bundle import ExportOptions, export_run
from lightgc2n.layers.workers import LostWorkerError
from lightgc2n.recommending.loading import load
from lightgc2n.synthetic.households import HouseholdConfig, generate
from lightgc2n.training.checkpoints import BEST, LAST, epochs_of, load_checkpoint, read_rows
from lightgc2n.training.distributed import Job, join_run, train_with
from lightgc2n.training.loop import TrainingConfig
from lightgc2n.training.run import evaluate_run, train_run
from lightgc2n.training.runs import RunPlan, load_run, read_run
from tests.training.together import HERE, SECONDS, Started, Together

THREE = TrainingConfig(epochs=3, batch_size=16)


@pytest.fixture(scope="module")
def two() -> Iterator[Together]:
    together = Together(2)
    yield together
    together.close()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world") / "data"
    generate(HouseholdConfig(accounts=60), seed=3, out=folder)
    return folder


@pytest.fixture(scope="module")
def trained(two: Together, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two workers."""
    folder = tmp_path_factory.mktemp("runs") / "two"
    train_with(two.start, RunPlan(data, "lightgc2n", "video", training=THREE), folder, 2)
    return folder


def losses(folder: Path) -> list[list[float]]:
    return [[row[name] for name in ("next_item", "contrast", "validation")] for row in read_rows(folder)]


def assert_same_weights(first: Path, second: Path, tolerance: float) -> None:
    for name in (BEST, LAST):
        (one, moments, progress), (other, more, _) = load_checkpoint(first / name), load_checkpoint(second / name)
        assert (one.keys(), moments.keys()) == (other.keys(), more.keys())
        for key, tensor in (one | moments).items():
            assert_close(
                tensor, (other | more)[key], rtol=0, atol=tolerance, msg=lambda text, key=key: f"{key}: {text}"
            )
        assert progress.ended_by == ("budget" if name == LAST else "")


def test_the_run_of_two_workers_is_that_of_one_process(trained: Path, data: Path, tmp_path: Path) -> None:
    train_run(RunPlan(data, "lightgc2n", "video", training=THREE), tmp_path / "one")
    assert np.allclose(losses(trained), losses(tmp_path / "one"), rtol=0, atol=1e-5)
    assert_same_weights(trained, tmp_path / "one", 1e-3)  # of float32, where Adam makes much of a small gradient
    one, two = (read_run(folder) for folder in (tmp_path / "one", trained))
    assert two.pop("workers") == 2
    assert one == two
    assert sorted(path.name for path in trained.iterdir()) == sorted(path.name for path in (tmp_path / "one").iterdir())


def test_the_run_evaluates_and_exports_like_any_other(trained: Path, tmp_path: Path) -> None:
    tested = evaluate_run(trained)
    assert np.isfinite(tested.ranks["lightgc2n"]).any()
    assert load_run(trained)[2].epochs == 3
    recommender = load(trained)
    account = recommender.dataset.accounts[3]
    expected = recommender.recommend(account)
    export_run(trained, tmp_path / "bundle", ExportOptions(people=False))
    actual = load(tmp_path / "bundle").recommend(account)
    assert [one.item_id for one in actual] == [one.item_id for one in expected]


def test_unseen_accounts_start_from_the_mean_of_all_workers(two: Together, data: Path, tmp_path: Path) -> None:
    plan = RunPlan(data, "lightgc2n", "video", split=SplitConfig(protocol="cold-accounts"), training=THREE)
    train_run(plan, tmp_path / "one")
    train_with(two.start, plan, tmp_path / "two", 2)
    assert np.allclose(losses(tmp_path / "two"), losses(tmp_path / "one"), rtol=0, atol=1e-5)


def test_a_run_resumes_with_workers_or_without(two: Together, trained: Path, data: Path, tmp_path: Path) -> None:
    """One epoch each: two workers, one process, two workers."""
    plan = RunPlan(data, "lightgc2n", "video", training=THREE)
    assert train_with(two.start, plan, tmp_path / "run", 2, stop_after=1).ended_by == ""
    train_run(plan, tmp_path / "run", stop_after=2)
    assert train_with(two.start, plan, tmp_path / "run", 2).ended_by == "budget"
    assert np.allclose(losses(tmp_path / "run"), losses(trained), rtol=0, atol=1e-5)


def test_a_single_worker_is_one_process(data: Path, tmp_path: Path) -> None:
    plan = RunPlan(data, "lightgc2n", "video", training=THREE)
    train_run(plan, tmp_path / "one", stop_after=1)
    train_with(lambda jobs, port: Started([]), plan, tmp_path / "alone", 1, stop_after=1)
    assert np.allclose(losses(tmp_path / "alone"), losses(tmp_path / "one"), rtol=0, atol=1e-5)


class Killing:
    """Starts the other worker, which in the first attempt ends itself after one epoch of the run."""

    def __init__(self, together: Together, folder: Path) -> None:
        self.together, self.folder, self.attempts = together, folder, 0

    def __call__(self, jobs: list[Job], port: int) -> Started:
        self.attempts += 1
        if self.attempts > 1:
            return self.together.start(jobs, port)
        _, pipe = self.together.others[0]
        pipe.send((join_and_die, (jobs[0], port, self.folder)))
        return Started([pipe])


def join_and_die(job: Job, port: int, folder: Path) -> None:
    threading.Thread(target=die_after_an_epoch, args=(folder,), daemon=True).start()
    join_run(job, HERE, port, "cpu", SECONDS)


def die_after_an_epoch(folder: Path) -> None:
    while epochs_of(folder) < 1:
        time.sleep(0.01)
    os._exit(9)


def test_a_killed_worker_changes_no_digit(two: Together, trained: Path, data: Path, tmp_path: Path) -> None:
    start = Killing(two, tmp_path / "run")
    train_with(start, RunPlan(data, "lightgc2n", "video", training=THREE), tmp_path / "run", 2)
    assert start.attempts == 2
    assert losses(tmp_path / "run") == losses(trained)
    assert_same_weights(tmp_path / "run", trained, 0)


class Stopping(Started):
    """The other worker, whose process stops after one epoch of the run; it is killed once it is given up."""

    def __init__(self, together: Together, job: Job, port: int, folder: Path) -> None:
        self.process, pipe = together.others[0]
        pipe.send((join_and_stop, (job, port, folder)))
        super().__init__([pipe])

    def leave(self, number: int) -> None:
        assert number == 1
        self.process.kill()
        self.process.join()


def join_and_stop(job: Job, port: int, folder: Path) -> None:
    threading.Thread(target=stop_after_an_epoch, args=(folder,), daemon=True).start()
    join_run(job, HERE, port, "cpu", SECONDS)


def stop_after_an_epoch(folder: Path) -> None:
    while epochs_of(folder) < 1:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGSTOP)


def test_a_stopped_worker_is_not_waited_for(two: Together, trained: Path, data: Path, tmp_path: Path) -> None:
    """An exchange would wait for it much longer."""
    attempts = []

    def start(jobs: list[Job], port: int) -> Started:
        attempts.append(port)
        return two.start(jobs, port) if len(attempts) > 1 else Stopping(two, jobs[0], port, tmp_path / "run")

    plan = RunPlan(data, "lightgc2n", "video", training=THREE)
    train_with(start, plan, tmp_path / "run", 2, seconds_of_silence=3.0)
    assert len(attempts) == 2
    assert losses(tmp_path / "run") == losses(trained)


def test_a_worker_that_is_lost_again_and_again_ends_the_run(data: Path, tmp_path: Path) -> None:
    def nobody(jobs: list[Job], port: int) -> Started:
        raise LostWorkerError("worker 1: lost")

    with pytest.raises(LightGC2NError, match="5 attempts at one epoch failed; the last: worker 1: lost"):
        train_with(nobody, RunPlan(data, "lightgc2n", "video", training=THREE), tmp_path / "run", 2)


def test_a_loss_that_is_not_finite_ends_all_workers(two: Together, data: Path, tmp_path: Path) -> None:
    wild = TrainingConfig(epochs=3, batch_size=16, learning_rate=1e30, clip=0.0)
    with pytest.raises(ScoreError, match="smaller learning rate"):
        train_with(two.start, RunPlan(data, "lightgc2n", "video", training=wild), tmp_path / "run", 2)


@pytest.mark.parametrize("name", ["lightgc2n-plus", "sasrec"])
def test_models_without_accounts_train_on_rows(two: Together, data: Path, tmp_path: Path, name: str) -> None:
    plan = RunPlan(data, name, "video", training=THREE)
    progress = train_with(two.start, plan, tmp_path / "run", 2)
    assert (progress.epochs, progress.ended_by, read_run(tmp_path / "run")["workers"]) == (3, "budget", 2)
    trained_on = losses_of_rows(tmp_path / "run")
    assert trained_on[-1] < trained_on[0]
    assert len(evaluate_run(tmp_path / "run").ranks[name])
    assert load_run(tmp_path / "run")[1].is_finished  # the blend of plus is fitted


def losses_of_rows(folder: Path) -> list[float]:
    return [row["next_item"] for row in read_rows(folder)]


@pytest.mark.parametrize(
    ("model", "settings", "count", "message"),
    [
        ("lightgcn", {}, 2, "lightgcn trains on one machine.*choose one of: lightgc2n,"),
        ("markov", {}, 2, "markov trains on one machine"),
        ("lightgc2n", {"negatives": "batch"}, 2, "negatives=batch.*trains on one machine"),
        ("lightgc2n", {}, 61, "workers: expected 1 to 60, the number of accounts, found 61"),
    ],
)
def test_what_cannot_be_divided_is_refused(
    data: Path, tmp_path: Path, model: str, settings: dict[str, Any], count: int, message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        train_with(refuse_to_start, RunPlan(data, model, "video", settings, training=THREE), tmp_path / "run", count)
    assert not (tmp_path / "run").exists()


def refuse_to_start(jobs: list[Job], port: int) -> Started:
    raise AssertionError("no worker is needed to see that the settings are wrong")


def test_a_warm_start_needs_one_machine(trained: Path, data: Path, tmp_path: Path) -> None:
    plan = RunPlan(data, "lightgc2n", "video", training=THREE, from_run=trained)
    with pytest.raises(SettingError, match="a warm start trains on one machine"):
        train_with(refuse_to_start, plan, tmp_path / "run", 2)

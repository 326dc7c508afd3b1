"""One model on a real cluster: worker 0 here, worker 1 on a node that dies or hangs."""

import json
import os
import re
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lightgc2n.cluster.connect import FIT, HUNG
from lightgc2n.training.checkpoints import epochs_of
from tests.cluster.conftest import Raylets, end, run, start, until
from tests.cluster.test_training import EPOCHS, content

pytestmark = pytest.mark.services
TASK = "join_run"


def words(homes: Path, folder: Path, raylets: Raylets, *more: object) -> tuple[object, ...]:
    of_run = ("--epochs", EPOCHS, "--set", f"training.patience={EPOCHS}", "--set", "training.batch_size=16")
    cluster = ("--cluster", raylets.address, "--workers", 2)
    return ("train", homes, "--model", "lightgc2n", *of_run, "--out", folder, *cluster, *more)


@pytest.fixture(scope="module")
def trained(raylets: Raylets, homes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("runs") / "two"
    messages = run(*words(homes, folder, raylets))
    assert re.search(r"worker 1 of 2 on node 127\.0\.0\.1/\w+", messages)
    return folder


def assert_same_digits(actual: Path, expected: Path) -> None:
    for name in ("metrics.jsonl", "last.safetensors", "best.safetensors"):
        assert content(actual / name) == content(expected / name), name


def facts(folder: Path) -> dict[str, Any]:
    described: dict[str, Any] = json.loads((folder / "run.json").read_text())
    return described


def test_the_run_is_an_ordinary_one(trained: Path, homes: Path, tmp_path: Path) -> None:
    assert (facts(trained)["workers"], facts(trained)["threads"]) == (2, 1)
    assert epochs_of(trained) == EPOCHS
    run("evaluate", trained)
    run("recommend", trained, "--all", "--out", tmp_path / "lists.csv")
    run("export", trained, "--out", tmp_path / "bundle")
    run("recommend", tmp_path / "bundle", "--all", "--out", tmp_path / "of-bundle.csv")
    lines = [(tmp_path / name).read_text().count("\n") for name in ("lists.csv", "of-bundle.csv")]
    assert lines[0] == lines[1] > 60


def test_a_killed_node_changes_no_digit(raylets: Raylets, trained: Path, homes: Path, tmp_path: Path) -> None:
    process = start(*words(homes, tmp_path / "run", raylets))
    until(lambda: epochs_of(tmp_path / "run") >= 1 or process.poll() is not None, "the first epoch")
    busy = raylets.node_with(TASK)
    assert busy
    raylets.kill(busy)
    resumed = re.search(r"all workers start again after epoch (\d+)", end(process))
    assert resumed is not None
    assert 1 <= int(resumed[1]) < EPOCHS
    assert_same_digits(tmp_path / "run", trained)


def test_a_frozen_node_is_left(raylets: Raylets, trained: Path, homes: Path, tmp_path: Path) -> None:
    process = start(*words(homes, tmp_path / "run", raylets), **{HUNG: "3"})
    until(lambda: epochs_of(tmp_path / "run") >= 1 or process.poll() is not None, "the first epoch")
    busy = raylets.node_with(TASK)
    assert busy
    thaw = raylets.freeze(busy)
    try:
        until(lambda: raylets.node_with(TASK, busy) or process.poll() is not None, "a worker on the other node")
    finally:
        thaw()
    assert "all workers start again after epoch" in end(process)
    assert_same_digits(tmp_path / "run", trained)


def test_a_stopped_worker_is_left_though_its_node_answers(
    raylets: Raylets, trained: Path, homes: Path, tmp_path: Path
) -> None:
    process = start(*words(homes, tmp_path / "run", raylets), **{HUNG: "5"})
    until(lambda: epochs_of(tmp_path / "run") >= 1 or process.poll() is not None, "the first epoch")
    worker = raylets.worker_with(TASK)
    assert worker
    os.kill(worker, signal.SIGSTOP)
    try:
        messages = end(process)
    finally:
        with suppress(ProcessLookupError):  # Ray may have killed it
            os.kill(worker, signal.SIGCONT)
    assert "worker 1 is silent for 5 s; all workers start again after epoch" in messages
    assert_same_digits(tmp_path / "run", trained)


def test_workers_that_do_not_fit_are_refused(raylets: Raylets, homes: Path, tmp_path: Path) -> None:
    messages = run(*words(homes, tmp_path / "run", raylets, "--threads", 8), code=2, **{FIT: "1"})
    assert "1 workers beside this machine's need 8 CPUs each" in messages
    assert not (tmp_path / "run").exists()


def test_a_model_of_accounts_alone_is_refused(raylets: Raylets, homes: Path, tmp_path: Path) -> None:
    cluster = ("--cluster", raylets.address, "--workers", 2)
    messages = run("train", homes, "--model", "lightgcn", "--out", tmp_path / "run", *cluster, code=2)
    assert "lightgcn trains on one machine" in messages
    assert "Traceback" not in messages
    assert not (tmp_path / "run").exists()

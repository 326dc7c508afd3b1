"""Runs, searches and comparisons on a real cluster, held against the same on this machine."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from lightgc2n.cluster.connect import FIT, HUNG
from lightgc2n.training.checkpoints import epochs_of
from tests.cluster.conftest import Raylets, end, run, start, until

pytestmark = pytest.mark.services
ONE_RUN, TRIAL = "lightgc2n.experiments.one_run", "lightgc2n.experiments.trials"
EPOCHS = 100  # an epoch takes a fifteenth of a second on a quiet machine, and the node must fail before the last one
COST = ("seconds", "peak_bytes", "training_seconds", "test_seconds", "peak_memory_mb", "side_by_side")


def without_cost(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name not in COST}


def content(path: Path) -> object:
    """What a file of a run holds but for the cost of training, which no two runs share."""
    if path.suffix == ".safetensors":
        with safe_open(path, framework="np") as file:
            progress = without_cost(json.loads(file.metadata()["progress"]))
            return progress, {name: file.get_tensor(name).tobytes() for name in file.keys()}  # noqa: SIM118
    if path.suffix == ".jsonl":
        return [without_cost(json.loads(line)) for line in path.read_text().splitlines()]
    if path.suffix == ".json":
        return without_cost(json.loads(path.read_text()))
    return path.read_bytes()


def assert_same_run(actual: Path, wanted: Path) -> None:
    files = sorted(path.name for path in wanted.iterdir() if path.is_file() and path.name != "log.txt")
    assert sorted(path.name for path in actual.iterdir() if path.is_file() and path.name != "log.txt") == files
    assert "run.json" in files
    for name in files:
        assert content(actual / name) == content(wanted / name), f"{actual / name} differs"


def plan_of(homes: Path, folder: Path, models: list[str], seeds: list[int], epochs: int) -> Path:
    plan = folder / "plan.toml"
    lines = [
        f"data = {json.dumps(str(homes))}",
        f"model = {json.dumps(models)}",
        f"seed = {seeds}",
        "[training]",
        f"epochs = {epochs}",
        f"patience = {epochs}",
    ]
    plan.write_text("\n".join(lines))
    return plan


def test_a_plan_of_six_runs_equals_the_local_one(raylets: Raylets, homes: Path, tmp_path: Path) -> None:
    plan = plan_of(homes, tmp_path, ["lightgc2n", "sasrec", "popularity"], [0, 1], 1)
    messages = run("train", "--plan", plan, "--out", tmp_path / "there", "--cluster", raylets.address)
    run("train", "--plan", plan, "--out", tmp_path / "here")
    names = sorted(path.name for path in (tmp_path / "here").iterdir() if (path / "run.json").exists())
    assert len(names) == 6
    for name in names:
        assert_same_run(tmp_path / "there" / name, tmp_path / "here" / name)
        assert re.search(rf"{name}: on node 127\.0\.0\.1/\w+, from epoch 1", messages)
    described = json.loads((tmp_path / "there" / names[0] / "run.json").read_text())
    assert described["threads"] == 1
    messages = run("train", "--plan", plan, "--out", tmp_path / "there", "--cluster", raylets.address)
    assert "6 runs, 6 of them finished" in messages


def test_a_killed_node_costs_its_running_epoch(raylets: Raylets, homes: Path, tmp_path: Path) -> None:
    plan = plan_of(homes, tmp_path, ["sasrec"], [0], EPOCHS)
    there, here = tmp_path / "there" / "homes-sasrec-seed0", tmp_path / "here" / "homes-sasrec-seed0"
    process = start("train", "--plan", plan, "--out", there.parent, "--cluster", raylets.address)
    until(lambda: epochs_of(there) >= 1 or process.poll() is not None, "the first epoch")
    busy = raylets.node_with(ONE_RUN)
    assert busy
    raylets.kill(busy)
    messages = end(process)
    resumed = re.search(r"homes-sasrec-seed0: lost on .* resumes after epoch (\d+)", messages)
    assert resumed is not None
    assert 1 <= int(resumed[1]) < EPOCHS
    run("train", "--plan", plan, "--out", here.parent)
    assert_same_run(there, here)


def test_a_frozen_node_is_left_and_its_late_checkpoint_refused(raylets: Raylets, homes: Path, tmp_path: Path) -> None:
    plan = plan_of(homes, tmp_path, ["sasrec"], [0], EPOCHS)
    there, here = tmp_path / "there" / "homes-sasrec-seed0", tmp_path / "here" / "homes-sasrec-seed0"
    process = start("train", "--plan", plan, "--out", there.parent, "--cluster", raylets.address, **{HUNG: "3"})
    until(lambda: epochs_of(there) >= 1 or process.poll() is not None, "the first epoch")
    busy = raylets.node_with(ONE_RUN)
    assert busy
    thaw = raylets.freeze(busy)
    try:
        until(lambda: raylets.node_with(ONE_RUN, busy) or process.poll() is not None, "an attempt on the other node")
    finally:
        thaw()
    messages = end(process)
    assert "silent for 3 s" in messages
    assert re.search(r"homes-sasrec-seed0: a late checkpoint from \S+ is refused", messages)
    run("train", "--plan", plan, "--out", here.parent)
    assert_same_run(there, here)


def rows(table: Path) -> list[dict[str, str]]:
    with table.open(newline="") as file:
        return [{name: value for name, value in row.items() if name != "seconds"} for row in csv.DictReader(file)]


def test_a_search_gives_the_same_trials_though_a_node_is_killed(raylets: Raylets, homes: Path, tmp_path: Path) -> None:
    options = ("--model", "sasrec", "--trials", 4, "--epochs", 6)
    run("tune", homes, *options, "--out", tmp_path / "here")
    process = start("tune", homes, *options, "--out", tmp_path / "there", "--cluster", raylets.address)
    until(lambda: any(epochs_of(trial) for trial in (tmp_path / "there").glob("trial-*")), "an epoch of a trial")
    until(lambda: raylets.node_with(TRIAL), "a trial on a node")
    raylets.kill(raylets.node_with(TRIAL))
    end(process)
    assert rows(tmp_path / "there" / "trials.csv") == rows(tmp_path / "here" / "trials.csv")
    assert len(rows(tmp_path / "here" / "trials.csv")) == 4


def test_a_comparison_equals_the_local_one(raylets: Raylets, homes: Path, tmp_path: Path) -> None:
    options = ("--models", "popularity,sasrec", "--set", "training.epochs=2")
    run("compare", homes, *options, "--out", tmp_path / "here")
    run("compare", homes, *options, "--out", tmp_path / "there", "--cluster", raylets.address)
    for name in ("popularity", "sasrec", "owner"):
        here, there = (np.load(tmp_path / side / "ranks" / f"{name}.npy") for side in ("here", "there"))
        assert np.array_equal(here, there)
    assert_same_run(tmp_path / "there" / "runs" / "sasrec", tmp_path / "here" / "runs" / "sasrec")


def test_a_request_that_no_node_can_fit_ends(raylets: Raylets, homes: Path, tmp_path: Path) -> None:
    plan = plan_of(homes, tmp_path, ["sasrec"], [0], 1)
    words = ("train", "--plan", plan, "--out", tmp_path / "out", "--cluster", raylets.address, "--threads", 8)
    messages = run(*words, code=2, **{FIT: "1"})
    assert "no node can take a task of 8 CPUs and 0 GPUs" in messages
    assert "Traceback" not in messages


def test_ctrl_c_cancels_and_the_same_command_resumes(raylets: Raylets, homes: Path, tmp_path: Path) -> None:
    plan = plan_of(homes, tmp_path, ["sasrec"], [0], EPOCHS)
    there = tmp_path / "there" / "homes-sasrec-seed0"
    words = ("train", "--plan", plan, "--out", there.parent, "--cluster", raylets.address)
    process = start(*words)
    until(lambda: epochs_of(there) >= 1 or process.poll() is not None, "the first epoch")
    process.terminate()
    assert "rerun the command to resume" in end(process, code=130).lower()
    until(lambda: not raylets.node_with(ONE_RUN), "the end of the attempt")
    done = epochs_of(there)
    assert 1 <= done < EPOCHS
    messages = run(*words)
    assert re.search(rf"on node \S+, from epoch {done + 1}\b", messages)
    assert epochs_of(there) == EPOCHS


def test_doctor_shows_the_nodes(raylets: Raylets) -> None:
    process = start("doctor", "--cluster", raylets.address, "--json")
    facts = json.loads(process.communicate(timeout=200)[0])
    assert sorted(node["cpus"] for node in facts["nodes"]) == [0, 1, 1]
    assert [node["problem"] for node in facts["nodes"]] == ["", "", ""]
    assert sum(node["home"] for node in facts["nodes"]) == 1

"""A run that is killed without warning, wherever it is, ends as one that was left alone."""

import json
import os
import random
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from lightgc2n.synthetic.households import HouseholdConfig, generate
from lightgc2n.training.checkpoints import BEST, LAST, load_checkpoint, read_rows
from lightgc2n.training.run import train_run
from tests.training.killing import EPOCHS, plan_on

ROOT = Path(__file__).parents[2]
draw = random.Random(20)
AT_RANDOM = [0.0, 0.0, *sorted(draw.uniform(0, EPOCHS - 1) for _ in range(4))]
AT_FILES = ["rename run.json", "rename best.safetensors", "half last.safetensors", "rename metrics.jsonl"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody stopped, beside its data."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("kill")
    generate(HouseholdConfig(accounts=60), seed=3, out=folder / "data")
    train_run(plan_on(folder / "data"), folder / "whole")
    return folder / "whole"


def state(run: Path) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """What must not depend on how often a run was stopped, besides the weights."""
    rows = [{name: value for name, value in row.items() if name != "seconds"} for row in read_rows(run)]
    progress = [asdict(load_checkpoint(run / file)[2]) for file in (BEST, LAST)]
    return rows, [one | {"seconds": 0.0, "peak_bytes": 0} for one in progress]


@pytest.mark.parametrize("moments", [AT_FILES, AT_RANDOM], ids=["at files", "at random"])
def test_kill_9_loses_no_more_than_the_epoch(moments: list[float | str], whole: Path, tmp_path: Path) -> None:
    words = ["-m", "tests.training.killing", whole.parent / "data", tmp_path / "run", json.dumps(moments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"killed": len(moments), "epochs": EPOCHS}
    assert state(tmp_path / "run") == state(whole)
    for file in (BEST, LAST):
        first, second = (load_checkpoint(run / file) for run in (whole, tmp_path / "run"))
        for before, after in zip(first[:2], second[:2], strict=True):
            assert before.keys() == after.keys()
            assert all(torch.equal(before[name], after[name]) for name in before)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == sorted(path.name for path in whole.iterdir())

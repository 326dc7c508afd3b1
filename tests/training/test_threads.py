"""Equal runs end with equal weights, byte by byte, with two threads too."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from lightgc2n.synthetic.households import HouseholdConfig, generate
from lightgc2n.training.checkpoints import LAST

MODELS = ("lightgc2n-plus", "lightgc2n", "sasrec", "gru4rec", "nais")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough events that two threads share the work on one tensor."""
    folder = tmp_path_factory.mktemp("data") / "data"
    generate(HouseholdConfig(accounts=300), seed=0, out=folder)
    return folder


def digest_of_run(data: Path, model: str, out: Path) -> str:
    """Trains one epoch in a process of its own with two threads; one checksum of all weights and moments."""
    command = [sys.executable, "-m", "lightgc2n", "train", data, "--model", model, "--epochs", 1, "--out", out]
    environment = os.environ | {"OMP_NUM_THREADS": "2"}
    subprocess.run(list(map(str, command)), env=environment, check=True, capture_output=True)
    assert json.loads((out / "run.json").read_text())["threads"] == 2
    tensors = sorted(load_file(out / LAST).items())
    return hashlib.sha256(b"".join(name.encode() + array.tobytes() for name, array in tensors)).hexdigest()


@pytest.mark.parametrize("model", [MODELS[0], *(pytest.param(one, marks=pytest.mark.slow) for one in MODELS[1:])])
def test_equal_runs_with_two_threads(model: str, data: Path, tmp_path: Path) -> None:
    assert len({digest_of_run(data, model, tmp_path / str(number)) for number in range(3)}) == 1

"""Run folders written by the code of commit d618e6e still load and give the scores that they gave then.

tests/golden/write_old_runs.py wrote them (seed 0); scores agree within rtol 1e-5, atol 1e-6.
"""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn
from torch.testing import assert_close

from lightgc2n.data.batches import Batch
from lightgc2n.data.dataset import Domain
from lightgc2n.errors import DataError
from lightgc2n.training.checkpoints import LAST, SCHEMA, Progress, load_checkpoint, save_checkpoint
from lightgc2n.training.runs import load_run

RUNS = sorted((Path(__file__).parents[1] / "golden" / "runs").iterdir())


@pytest.mark.parametrize("folder", RUNS, ids=lambda folder: folder.name)
def test_an_old_run_gives_its_scores(folder: Path) -> None:
    expected = load_file(folder / "expected.safetensors")
    batch = Batch(*(expected.get(part) for part in ("account", "history", "length", "ages", "moment")))
    _, model, _ = load_run(folder)
    everything = Domain("all", 0, expected["scores"].shape[1])
    close = {"rtol": 1e-5, "atol": 1e-6}
    assert_close(model.scores(model.encode(), batch, everything), expected["scores"], **close)
    assert_close(model.fold_in_scores(model.encode(), batch, everything), expected["folded_in"], **close)


def test_an_old_run_can_be_resumed() -> None:
    """The optimizer's state names every parameter of the model."""
    folder = next(folder for folder in RUNS if folder.name == "lightgc2n")
    _, moments, progress = load_checkpoint(folder / LAST)
    _, model, _ = load_run(folder)
    assert progress.epochs == 2
    assert {f"exp_avg.{name}" for name, _ in model.named_parameters()} <= moments.keys()


def test_a_checkpoint_says_its_schema(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_checkpoint(path, nn.Linear(1, 1), None, Progress())
    with safe_open(path, framework="pt") as file:
        assert file.metadata()["schema"] == str(SCHEMA)
    with safe_open(RUNS[0] / "best.safetensors", framework="pt") as file:
        assert "schema" not in file.metadata()  # the old ones have none


def test_a_checkpoint_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"weight": torch.zeros(1)}, path, metadata={"schema": str(SCHEMA + 1), "progress": '{"novelty": 1}'})
    with pytest.raises(DataError, match=rf"checkpoint schema {SCHEMA + 1}, written by a newer lightgc2n; .*Upgrade"):
        load_checkpoint(path)

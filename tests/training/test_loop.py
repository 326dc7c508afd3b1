"""The loop: what it chooses, what it keeps, and that a stopped run ends as one that was not stopped."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close

from lightgc2n import zoo
from lightgc2n.data.splits import SplitConfig, split_dataset
from lightgc2n.errors import DataError, ScoreError
from lightgc2n.models.contract import Model
from lightgc2n.training.checkpoints import BEST, LAST, METRICS, load_checkpoint
from lightgc2n.training.loop import TrainingConfig, train
from lightgc2n.training.run import new_model, validation
from tests.worlds import WORLDS

SPLIT = split_dataset(WORLDS["tastes"], SplitConfig())
SHORT = TrainingConfig(epochs=4, batch_size=32, learning_rate=0.01)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def fresh(seed: int = 0) -> Model:
    return new_model("lightgc2n", SPLIT, {}, seed)


def values(*given: float) -> Callable[[Model], float]:
    """A validation metric that says these numbers one after the other."""
    said = iter(given)
    return lambda model: next(said)


def test_the_best_weights_stay_in_the_model(tmp_path: Path) -> None:
    kept = {}

    def evaluate(model: Model) -> float:
        kept[len(kept)] = model.state_dict()["head.bias"].clone()
        return [0.1, 0.9, 0.2, 0.3][len(kept) - 1]

    for folder in (None, tmp_path):
        kept.clear()
        model = fresh()
        progress = train(model, SPLIT, SHORT, evaluate, folder)
        assert (progress.best_epoch, progress.best_value, progress.ended_by) == (1, 0.9, "budget")
        assert_close(model.state_dict()["head.bias"], kept[1], rtol=0, atol=0)
    assert_close(load_checkpoint(tmp_path / BEST)[0]["head.bias"], kept[1], rtol=0, atol=0)


def test_patience_ends_a_run() -> None:
    config = TrainingConfig(epochs=50, batch_size=64, patience=2)
    progress = train(fresh(), SPLIT, config, values(0.1, 0.3, 0.2, 0.25, 0.9))
    assert (progress.epochs, progress.best_epoch, progress.ended_by) == (4, 1, "patience")


def test_evaluations_can_be_rarer() -> None:
    config = TrainingConfig(epochs=5, batch_size=64, evaluate_every=2)
    asked = []
    train(fresh(), SPLIT, config, lambda model: float(asked.append(1) or len(asked)))
    assert len(asked) == 3  # after epochs 2, 4 and the last


def test_a_loss_that_is_not_finite_stops_the_run() -> None:
    model = fresh()
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    with pytest.raises(ScoreError, match="smaller learning rate"):
        train(model, SPLIT, SHORT, values(0.1, 0.1, 0.1, 0.1))


def test_the_same_seed_gives_the_same_weights_and_another_seed_others() -> None:
    actual = []
    for seed in (1, 1, 2):
        model = fresh(seed)
        train(model, SPLIT, TrainingConfig(epochs=2, batch_size=32, seed=seed), validation(SPLIT, "cpu"))
        actual.append(model.state_dict()["item_embeddings"])
    assert torch.equal(actual[0], actual[1])
    assert not torch.equal(actual[0], actual[2])


class _StopError(Exception):
    pass


def started(folder: Path) -> Model:
    """A model for a run that is new, or that goes on: then its first weights must not matter."""
    return fresh(seed=99 if (folder / LAST).exists() else 0)


@pytest.mark.parametrize("stops", [[1], [2], [3, 1], [1, 1, 1]])
def test_an_interrupted_run_resumes_to_the_same_weights(tmp_path: Path, stops: list[int]) -> None:
    """Each number says in which evaluation the next attempt breaks off."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    train(fresh(), SPLIT, SHORT, validation(SPLIT, "cpu"), whole)
    for stop in stops:
        left = [stop]

        def evaluate(model: Model, left: list[int] = left) -> float:
            left[0] -= 1
            if left[0] == 0:
                raise _StopError
            return validation(SPLIT, "cpu")(model)

        with pytest.raises(_StopError):
            train(started(broken), SPLIT, SHORT, evaluate, broken)
    train(started(broken), SPLIT, SHORT, validation(SPLIT, "cpu"), broken)
    first, second = load_file(whole / LAST), load_file(broken / LAST)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    rows = [json.loads(row) for row in (broken / METRICS).read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [0, 1, 2, 3]


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / LAST).write_bytes(b"no tensors")
    with pytest.raises(DataError, match="not a checkpoint"):
        train(fresh(), SPLIT, SHORT, values(1.0), tmp_path)
    with pytest.raises(DataError, match="no such checkpoint"):
        load_checkpoint(tmp_path / "none")


def test_every_trained_model_uses_the_same_loop() -> None:
    for name, entry in zoo.ZOO.items():
        if not entry.is_simple:
            model = new_model(name, SPLIT, {}, 0)
            assert train(model, SPLIT, TrainingConfig(epochs=1, batch_size=64), values(0.5)).epochs == 1

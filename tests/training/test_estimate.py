"""The estimate before a run: what it adds up, and that it leaves the run as it is."""

import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lightgc2n import zoo
from lightgc2n.data.splits import SplitConfig, split_dataset
from lightgc2n.models.contract import Model
from lightgc2n.synthetic.households import HouseholdConfig, generate
from lightgc2n.training import loop
from lightgc2n.training.checkpoints import BEST, LAST
from lightgc2n.training.loop import Estimate, TrainingConfig, estimate
from lightgc2n.training.run import new_model, train_run, validation
from lightgc2n.training.runs import RunPlan
from tests.worlds import WORLDS

SPLIT = split_dataset(WORLDS["tastes"], SplitConfig())
LONG = TrainingConfig(epochs=1000, batch_size=8)
TRAINED = [name for name, entry in zoo.ZOO.items() if not entry.is_simple]


def test_the_sentence() -> None:
    assert str(Estimate(4.2, 200, 480_000_000)) == (
        "estimate: about 4.2 s an epoch, at most 14 min for 200 epochs; about 480 MB"
    )
    assert "at most 4.2 s for 1 epoch;" in str(Estimate(4.2, 1, 1))
    assert "; ends earlier when validation no longer improves; about" in str(Estimate(4.2, 200, 1, ends_early=True))
    assert "about 2.0 min an epoch, at most 6.7 h" in str(Estimate(120, 200, 1))


def test_an_epoch_is_its_steps_and_its_share_of_an_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    """80 accounts make 10 steps of 8; a step takes 2 s, an evaluation, every third epoch, 30 s."""
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    def step(*_: object) -> None:
        clock[0] += 2.0

    def evaluate(_: Model) -> float:
        clock[0] += 30.0
        return 0.5

    monkeypatch.setattr(loop.Steps, "__call__", step)
    config = TrainingConfig(epochs=50, batch_size=8, evaluate_every=3)
    found = estimate(new_model("lightgc2n-wo-a", SPLIT, {}, 0), SPLIT, config, evaluate)
    assert found is not None
    assert found.epoch_seconds == pytest.approx(10 * 2 + 30 / 3)
    assert found.bytes > 50e6  # Python and torch alone take more


def test_a_short_run_gets_no_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    """49 epochs of 10 steps: 490 steps are few, and last less than ten seconds where a step takes 0.02 s."""
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    def step(*_: object) -> None:
        clock[0] += 0.02

    def never(_: Model) -> float:
        raise AssertionError

    monkeypatch.setattr(loop.Steps, "__call__", step)
    config = TrainingConfig(epochs=49, batch_size=8)
    assert estimate(new_model("lightgc2n", SPLIT, {}, 0), SPLIT, config, never) is None
    monkeypatch.setattr(loop, "FEWEST_SECONDS", 9.0)
    assert estimate(new_model("lightgc2n", SPLIT, {}, 0), SPLIT, config, lambda _: 0.5) is not None


@pytest.mark.parametrize("name", TRAINED)
def test_the_model_and_what_is_random_stay_as_they_are(name: str) -> None:
    model = new_model(name, SPLIT, {}, 0)
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    state = torch.random.get_rng_state()
    assert estimate(model, SPLIT, LONG, validation(SPLIT, "cpu")) is not None
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_run_is_the_same_with_and_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.set_num_threads(1)
    generate(HouseholdConfig(accounts=60), seed=3, out=tmp_path / "data")
    plan = RunPlan(tmp_path / "data", "lightgc2n", training=TrainingConfig(epochs=2, batch_size=32))
    train_run(plan, tmp_path / "without")
    assert "estimate" not in capsys.readouterr().err
    monkeypatch.setattr(loop, "FEWEST_STEPS", 1)
    train_run(plan, tmp_path / "with")
    assert "estimate: about" in capsys.readouterr().err
    for file in (BEST, LAST):
        first, second = load_file(tmp_path / "without" / file), load_file(tmp_path / "with" / file)
        assert all(torch.equal(first[key], second[key]) for key in first)
    train_run(plan, tmp_path / "with")
    assert "estimate" not in capsys.readouterr().err  # it has been trained already

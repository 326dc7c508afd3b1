"""A model has the same ranks in a comparison, in memory or in a run folder, and in the test of its run."""

from pathlib import Path

import numpy as np
import pytest

from lightgc2n.experiments.rank_model import Conditions, ranked
from lightgc2n.training.loop import TrainingConfig
from lightgc2n.training.run import evaluate_run, open_data
from lightgc2n.training.runs import RunPlan, load_run
from tests.export.town import SETTINGS, data

MODEL = "lightgc2n-plus"  # it fits a blend when training has ended


@pytest.fixture
def plan() -> RunPlan:
    return RunPlan(data(), MODEL, settings=SETTINGS[MODEL], training=TrainingConfig(epochs=2, batch_size=16))


def test_a_comparison_ranks_as_the_test_of_the_run_does(plan: RunPlan, tmp_path: Path) -> None:
    conditions, folder = Conditions(*open_data(plan)), tmp_path / "run"
    in_memory, _ = ranked(plan, conditions)
    in_folder, facts = ranked(plan, conditions, folder)
    tested = evaluate_run(folder)
    assert load_run(folder)[1].is_finished
    assert np.array_equal(in_folder, in_memory)
    assert np.array_equal(in_folder, tested.ranks[MODEL])
    assert facts["fitted"] == tested.facts[MODEL]["fitted"]


def test_a_comparison_that_resumes_an_ended_run_fits_its_blend(
    plan: RunPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conditions, folder = Conditions(*open_data(plan)), tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("lightgc2n.training.run.finish", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            ranked(plan, conditions, folder)
    resumed, _ = ranked(plan, conditions, folder)
    assert np.array_equal(resumed, ranked(plan, conditions)[0])


def _interrupted(*_: object) -> bool:
    raise KeyboardInterrupt

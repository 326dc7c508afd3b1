"""A captured step does what an eager one does; on a GPU alone."""

import gc
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from lightgc2n.data.splits import SplitConfig, split_dataset
from lightgc2n.models.contract import Model
from lightgc2n.training.cuda_graph import CapturedStep
from lightgc2n.training.loop import Steps, TrainingConfig, train
from lightgc2n.training.run import new_model, validation
from tests.contract.test_cuda_graph_safety import last_place
from tests.worlds import WORLDS

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no usable GPU was found"),
]

SPLIT = split_dataset(WORLDS["tastes"], SplitConfig())
CONFIG = TrainingConfig(epochs=6, batch_size=32, learning_rate=0.01)  # the last batch of an epoch is smaller
QUIET = {"dropout": 0.0}


def model(**settings: int) -> Model:
    return new_model("lightgc2n", SPLIT, {**QUIET, **settings}, 0)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("lightgc2n", {"capsule_width": 16}),  # kernels for all
        ("lightgc2n", {"capsule_width": 64}),  # matrix products left to cuBLAS
        ("lightgc2n-plus", {}),
        ("pi-net", {"width": 16}),
        ("pi-net", {"max_length": 10}),  # rows are cut into parts
        ("psjnet-2", {"width": 16}),
        ("da-gcn", {}),
        ("tida-gcn", {}),
        ("gru4rec", {"input_dropout": 0.0, "state_dropout": 0.0}),
        ("hrnn", {"user_dropout": 0.0, "session_dropout": 0.0, "start_dropout": 0.0}),
    ],
)
def test_the_losses_of_every_step_are_those_on_a_cpu(
    name: str, settings: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lightgc2n.layers.domain_views.draw_cuts", last_place)
    actual: dict[str, list[float]] = {}
    quiet = QUIET if name not in ("gru4rec", "hrnn") else {}
    for device in ("cpu", "cuda"):
        trained = new_model(name, SPLIT, {**quiet, **settings}, 0).to(device).train()
        steps = Steps(trained, SPLIT.train, CONFIG, device)
        assert isinstance(steps.run, CapturedStep) == (device == "cuda")
        actual[device] = [float(steps(batch)["next_item"]) for epoch in range(4) for batch in steps.batches(epoch)]
    assert len(actual["cpu"]) == 12
    assert_close(actual["cuda"], actual["cpu"], rtol=2e-3, atol=2e-3)


def test_one_model_after_another_may_be_captured() -> None:
    """What a search does: each model leaves its graphs in a circle of references behind."""
    before = gc.get_threshold()
    gc.set_threshold(1)  # rubbish is looked for at every chance
    try:
        for seed in range(6):
            trained = new_model("lightgc2n", SPLIT, QUIET, seed).to("cuda").train()
            steps = Steps(trained, SPLIT.train, CONFIG, "cuda")
            assert len([steps(batch) for epoch in range(3) for batch in steps.batches(epoch)]) == 9
            trained.__dict__["itself"] = steps
    finally:
        gc.set_threshold(*before)
    assert gc.isenabled()


def test_a_setting_turns_capture_off() -> None:
    trained = new_model("lightgc2n", SPLIT, QUIET, 0).to("cuda").train()
    assert not isinstance(Steps(trained, SPLIT.train, replace(CONFIG, cuda_graph=False), "cuda").run, CapturedStep)


def test_dropout_differs_from_step_to_step_and_follows_from_the_seed() -> None:
    runs = []
    for _ in range(2):
        trained = new_model("lightgc2n", SPLIT, {"dropout": 0.5}, 0).to("cuda").train()
        steps = Steps(trained, SPLIT.train, TrainingConfig(batch_size=128, learning_rate=0.0), "cuda")
        torch.manual_seed(7)
        runs.append([float(steps(batch)["next_item"]) for epoch in range(8) for batch in steps.batches(epoch)])
    assert len(set(runs[0])) == len(runs[0])
    assert_close(runs[0], runs[1], rtol=1e-5, atol=1e-5)


def test_an_interrupted_run_resumes(tmp_path: Path) -> None:
    whole = model()
    train(whole, SPLIT, CONFIG, validation(SPLIT, "cuda"), None, "cuda")
    for _ in range(10):
        ended = train(model(), SPLIT, CONFIG, validation(SPLIT, "cuda"), tmp_path, "cuda", seconds=0)
        if ended.ended_by:
            break
    again = model()
    train(again, SPLIT, CONFIG, validation(SPLIT, "cuda"), tmp_path, "cuda")
    assert ended.epochs == 6
    for name, tensor in whole.state_dict().items():
        assert_close(again.state_dict()[name], tensor, rtol=0.02, atol=0.02, msg=name)

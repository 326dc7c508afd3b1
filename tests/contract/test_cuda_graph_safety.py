"""A model that is `cuda_graph_safe` trains in fixed shapes without waiting for the GPU, and padding changes nothing.

The CPU is told that it captures CUDA graphs, so the models take the path of a GPU, without kernels.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing import assert_close

from lightgc2n import devices, zoo
from lightgc2n.data.batches import EXACT, TrainingBatch, sizes_of, training_batches
from lightgc2n.data.splits import SplitConfig, split_dataset
from lightgc2n.models.contract import Model
from tests.worlds import WORLDS

TRAIN = split_dataset(WORLDS["tastes"], SplitConfig()).train
LONGEST = int(np.diff(TRAIN.offsets).max())
SETTINGS: dict[str, tuple[dict[str, Any], ...]] = {  # besides the defaults
    "pi-net": ({"max_length": LONGEST // 2},),  # rows are cut into parts
    "psjnet-2": ({"max_length": LONGEST // 2}, {"transfer": "none"}),
    "tida-gcn": ({"max_length": LONGEST // 2},),
}
NO_DROPOUT = ("dropout", "input_dropout", "state_dropout", "user_dropout", "session_dropout", "start_dropout")


CAPTURING = replace(devices.CPU, is_gpu=True, has_cuda_graphs=True)


def safe_models() -> list[Any]:
    trained = [name for name, entry in zoo.ZOO.items() if not entry.is_simple]
    cases = [(name, settings) for name in trained for settings in ({}, *SETTINGS.get(name, ()))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(devices.DEVICES, "cpu", CAPTURING)
        safe = [case for case in cases if zoo.build(case[0], TRAIN, case[1]).cuda_graph_safe]
    return [pytest.param(name, settings, id=f"{name}{settings or ''}") for name, settings in safe]


def last_place(batch: TrainingBatch) -> Tensor:
    """A cut that is not drawn."""
    return (batch.counts.sum(dim=1) - 1).clamp(min=0)


@pytest.fixture(autouse=True)
def captures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(devices.DEVICES, "cpu", CAPTURING)
    monkeypatch.setattr("lightgc2n.layers.domain_views.draw_cuts", last_place)


def model_of(name: str, settings: dict[str, Any]) -> Model:
    fields = zoo.entry_of(name).settings.__dataclass_fields__
    torch.manual_seed(0)
    model = zoo.build(name, TRAIN, settings | {field: 0.0 for field in NO_DROPOUT if field in fields}).train()
    model.start_epoch(0)
    return model


def gradients(model: Model, batch: TrainingBatch) -> dict[str, Tensor]:
    model.zero_grad()
    torch.manual_seed(0)
    terms = model.losses(model.encode(), batch)
    torch.stack(list(terms.values())).sum().backward()
    actual = {f"loss {name}": term.detach() for name, term in terms.items()}
    given = {name: parameter.grad for name, parameter in model.named_parameters()}
    return actual | {name: gradient.clone() for name, gradient in given.items() if gradient is not None}


def pretend(module: nn.Module, mode: FakeTensorMode) -> None:
    """Replace every tensor of a model by one that has a shape and no values."""
    for part in module.modules():
        for table in (part._parameters, part._buffers):
            table.update({name: mode.from_tensor(given) for name, given in table.items() if given is not None})


@pytest.mark.parametrize(("name", "settings"), safe_models())
def test_no_shape_depends_on_values(name: str, settings: dict[str, Any]) -> None:
    """A tensor without values raises an error where a shape or a branch would depend on them."""
    model, mode = model_of(name, settings), FakeTensorMode()
    batch = next(training_batches(TRAIN, 32, sizes=sizes_of(TRAIN, 32)))
    with mode:
        pretend(model, mode)
        valueless = {name: mode.from_tensor(tensor) for name, tensor in batch.tensors().items()}
        terms = model.losses(model.encode(), replace(batch, **valueless))
        torch.stack(list(terms.values())).sum().backward()


@pytest.mark.parametrize(("name", "settings"), safe_models())
def test_padding_a_batch_changes_no_loss_and_no_gradient(name: str, settings: dict[str, Any]) -> None:
    model = model_of(name, settings)
    batch, padded = (next(training_batches(TRAIN, 21, sizes=sizes)) for sizes in (EXACT, sizes_of(TRAIN, 40)))
    assert len(padded.account) > len(batch.account)
    assert_close(gradients(model, padded), gradients(model, batch), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("name", "settings"), safe_models())
def test_fixed_shapes_give_what_a_cpu_gives(
    name: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = next(training_batches(TRAIN, 21))
    fixed = gradients(model_of(name, settings), batch)
    monkeypatch.setitem(devices.DEVICES, "cpu", devices.CPU)
    assert_close(fixed, gradients(model_of(name, settings), batch), rtol=1e-4, atol=1e-6)

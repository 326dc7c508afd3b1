"""The model and its six ablations compute what plain numpy loops compute from the paper's equations."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from lightgc2n.data.batches import Batch, TrainingBatch
from lightgc2n.models.lightgc2n.ablations import VARIANTS
from lightgc2n.models.lightgc2n.lightgc2n import LightGC2N
from tests.graph.logs import training_of
from tests.models.lightgc2n.paper_reference import Reference
from tests.models.small import model_of, one_batch, scores

# Repeated items, an item watched twice in a row, an account of one event, one without any; items 7 and 8 are nobody's.
LOGS = [[0, 1, 2, 1, 3], [2, 2, 4], [5], [], [6, 0, 5, 4, 3, 1]]
TRAIN = training_of(LOGS, items=9)
SMALL = {"embedding_width": 5, "capsule_width": 4}


def model_and_reference(name: str, **settings: Any) -> tuple[LightGC2N, Reference]:
    model = model_of(name, TRAIN, **{**SMALL, **settings}).double()
    with torch.no_grad():
        for parameter in model.parameters():  # as large as trained weights
            parameter.mul_(2)
    return model, reference_of(model, name)


def reference_of(model: LightGC2N, name: str) -> Reference:
    tensors = {key: tensor.detach().numpy().copy() for key, tensor in model.state_dict().items()}
    return Reference(tensors, model.config, name.partition("-wo-")[2], LOGS, items=9)


SETTINGS: list[dict[str, Any]] = [
    {},
    {"negatives": "batch", "temperature": 0.2},
    {"pooling": "sum", "layers": 1},
    {"layers": 3, "latent_users": 5, "routing_steps": 1},
    {"latent_users": 1, "routing_steps": 4, "smoothing": 0.1},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("name", VARIANTS)
def test_losses(name: str, settings: dict[str, Any]) -> None:
    model, reference = model_and_reference(name, **settings)
    losses = model.losses(model.encode(), double(one_batch(TRAIN)))
    assert {term: value.item() for term, value in losses.items()} == pytest.approx(reference.losses(), rel=1e-6)


@pytest.mark.parametrize("name", VARIANTS)
def test_scores(name: str) -> None:
    model, reference = model_and_reference(name)
    histories = {0: [1, 3], 1: [8, 8, 2], 3: [4], 4: []}
    width = max(map(len, histories.values()))
    padded = torch.tensor([[*log, *[0] * (width - len(log))] for log in histories.values()])
    batch = Batch(torch.tensor(list(histories)), padded, torch.tensor([len(log) for log in histories.values()]))
    for row, (account, log) in zip(scores(model, batch), histories.items(), strict=True):
        np.testing.assert_allclose(row.numpy(), reference.scores(account, log), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", VARIANTS)
def test_gradients(name: str) -> None:
    """The derivative along a random direction, of the model by autograd and of the reference by differences."""
    model, reference = model_and_reference(name, embedding_width=3, capsule_width=3)
    total = torch.stack(list(model.losses(model.encode(), double(one_batch(TRAIN))).values())).sum()
    total.backward()
    random = np.random.default_rng(0)
    direction = {key: random.normal(size=parameter.shape) for key, parameter in model.named_parameters()}
    slope = sum(float((parameter.grad.numpy() * direction[key]).sum()) for key, parameter in model.named_parameters())
    step, ends = 1e-5, []
    for sign in (1, -1):
        moved = {key: tensor + sign * step * direction.get(key, 0) for key, tensor in reference.tensors.items()}
        shifted = Reference(moved, reference.config, reference.variant, LOGS, items=9)
        ends.append(sum(shifted.losses().values()))
    assert slope == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-5)


def double(batch: TrainingBatch) -> TrainingBatch:
    """The batch with its weights in float64."""
    floats = {key: tensor.double() for key, tensor in batch.tensors().items() if tensor.is_floating_point()}
    return replace(batch, **floats)

"""Several workers compute what one process computes, with few exchanges, and a lost worker costs one epoch."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from lightgc2n import zoo
from lightgc2n.data.account_parts import part_of_split
from lightgc2n.data.batches import TrainingBatch, training_batches
from lightgc2n.data.splits import Split, SplitConfig, split_dataset
from lightgc2n.layers.workers import Workers
from lightgc2n.models.contract import Model
from lightgc2n.models.lightgc2n.ablations import VARIANTS
from lightgc2n.models.lightgc2n.account_parts import build_part, gather_checkpoint
from lightgc2n.training.checkpoints import checkpoint_tensors
from lightgc2n.training.distributed import ManyProcesses, PartOfAccounts, PartOfRows
from lightgc2n.training.loop import ALONE, OneProcess, Steps, TrainingConfig
from lightgc2n.training.run import new_model
from tests.training.together import Together
from tests.worlds import tastes_world

SPLIT = split_dataset(tastes_world(accounts=41, clusters=3, size=5, length=9), SplitConfig())
TRAINING = TrainingConfig(batch_size=7, learning_rate=0.01, weight_decay=0.01, clip=0.5)


@pytest.fixture(scope="module")
def two() -> Iterator[Together]:
    together = Together(2)
    yield together
    together.close()


@pytest.fixture(scope="module")
def three() -> Iterator[Together]:
    together = Together(3)
    yield together
    together.close()


def in_double(batch: TrainingBatch) -> TrainingBatch:
    """The batch with its shares rounded to float64 instead of float32."""
    share = (1 / (1 / batch.share.double()).round()) if len(batch.share) else batch.share.double()
    item_share = (batch.item_share.double() * batch.events).round() / batch.events
    return replace(batch, share=share, item_share=item_share)


def steps_of(
    model: Model, process: OneProcess, count: int, double: bool, training: TrainingConfig = TRAINING
) -> tuple[Steps, list[dict[str, float]]]:
    """The steps of a model after the first `count` batches, and the losses of each."""
    model.train()
    steps = Steps(model.double() if double else model, SPLIT.train, training, "cpu", process)
    torch.manual_seed(11)
    process.start_epoch(model, steps.optimizer, 0)
    losses = []
    for batch, _ in zip(steps.batches(0), range(count), strict=False):
        terms = steps(in_double(batch) if double else batch)
        losses.append({name: float(term) for name, term in terms.items()})
    return steps, losses


def one_process(
    name: str, settings: dict[str, Any], count: int, double: bool, training: TrainingConfig = TRAINING
) -> tuple[dict[str, Tensor], list[dict[str, float]]]:
    model = new_model(name, SPLIT, settings, seed=3)
    steps, losses = steps_of(model, ALONE, count, double, training)
    return checkpoint_tensors(model, steps.optimizer), losses


def by_accounts(
    workers: Workers, name: str, settings: dict[str, Any], count: int, double: bool
) -> tuple[dict[str, Tensor], list[dict[str, float]], dict[str, int]]:
    """The gathered checkpoint after some steps of one worker, the losses, and the bytes it exchanged."""
    part = part_of_split(SPLIT, workers.number, workers.count)
    torch.manual_seed(3)
    model = build_part(name, zoo.model_config(name, settings), part, workers)
    steps, losses = steps_of(model, PartOfAccounts(workers, part), count, double)
    exchanged = dict(workers.bytes)
    return gather_checkpoint(checkpoint_tensors(model, steps.optimizer), part.accounts, workers), losses, exchanged


def by_rows(
    workers: Workers, name: str, settings: dict[str, Any], count: int, training: TrainingConfig
) -> tuple[dict[str, Tensor], list[dict[str, float]]]:
    model = new_model(name, SPLIT, settings, seed=3)
    steps, losses = steps_of(model, PartOfRows(workers), count, True, training)
    return checkpoint_tensors(model, steps.optimizer), losses


def assert_same(actual: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        assert_close(actual[name], tensor, rtol=0, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("name", VARIANTS)
def test_six_steps_of_two_workers_are_those_of_one_process(two: Together, name: str) -> None:
    """With dropout, clipping, weight decay and Adam; some parts of a batch have no row."""
    expected, losses = one_process(name, {}, 6, double=True)
    (actual, first, _), (nothing, second, _) = two.run(by_accounts, name, {}, 6, True)
    assert_same(actual, expected, 1e-12)
    assert nothing == {}
    assert first == second
    assert [[pytest.approx(value, abs=1e-12) for value in step.values()] for step in losses] == [
        list(step.values()) for step in first
    ]

"""One small world for the tests of the models, and models on it."""

from typing import Any

import torch
from torch import Tensor

from lightgc2n import zoo
from lightgc2n.data.batches import Batch, TrainingBatch, make_batch, training_batches
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import Split, SplitConfig, Training, split_dataset
from lightgc2n.models.lightgc2n.lightgc2n import LightGC2N
from tests.worlds import tastes_world

SPLIT = split_dataset(tastes_world(accounts=12, clusters=3, size=4, length=9), SplitConfig())


def model_of(name: str = "lightgc2n", train: Training = SPLIT.train, **settings: Any) -> LightGC2N:
    """The model so called on untrained weights, as it is asked: without dropout."""
    torch.manual_seed(0)
    model = zoo.build(name, train, settings)
    assert isinstance(model, LightGC2N)
    return model.eval()


def scores(model: LightGC2N, batch: Batch) -> Tensor:
    with torch.no_grad():
        return model.scores(model.encode(), batch, Domain("all", 0, model.head.out_features))


def asked_batch(split: Split = SPLIT) -> Batch:
    return make_batch(split.test)


def one_batch(train: Training = SPLIT.train) -> TrainingBatch:
    """All training sequences at once."""
    return next(training_batches(train, rows_per_batch=10_000))


def total_loss(model: LightGC2N, batch: TrainingBatch) -> Tensor:
    return torch.stack(list(model.losses(model.encode(), batch).values())).sum()

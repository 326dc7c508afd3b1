"""Nothing becomes infinite at the corners of the settings, nor with accounts of one item or of ten thousand events."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim import Adam

from lightgc2n.data.batches import Batch
from lightgc2n.data.splits import UNSEEN, Training
from lightgc2n.models.lightgc2n.ablations import VARIANTS
from lightgc2n.models.lightgc2n.lightgc2n import LightGC2N
from tests.graph.logs import training_of
from tests.models.small import model_of, one_batch, scores, total_loss

# An account of one event, one of a single item again and again, one without any, and some others; item 9 is nobody's.
TINY = training_of([[3], [4, 4, 4], [], [0, 1, 2, 3, 4, 5, 6, 7, 8], [0, 1], [2, 1, 2, 8]], items=10)
CORNERS = {
    "latent_users": (1, 5),
    "layers": (1, 5),
    "routing_steps": (1, 5),
    "temperature": (0.1, 1.0),
    "contrast_weight": (0.0, 1.0),
    "smoothing": (1e-4, 1e-12),
    "dropout": (0.0, 0.5),
}


def finite_after_steps(model: LightGC2N, train: Training, steps: int) -> None:
    """Some steps of Adam at ten times the paper's rate, bases started on the way, then questions to old and new."""
    model.train()
    optimizer, batch = Adam(model.parameters(), lr=0.05), one_batch(train)
    for step in range(steps):
        model.start_epoch(step)
        optimizer.zero_grad()
        loss = total_loss(model, batch)
        loss.backward()
        assert torch.isfinite(loss)
        for name, parameter in model.named_parameters():
            assert parameter.grad is None or torch.isfinite(parameter.grad).all(), name
        optimizer.step()
    model.eval()
    accounts = [*range(train.accounts), UNSEEN, UNSEEN]
    history = torch.zeros(len(accounts), 3, dtype=torch.long)
    history[:, 0] = train.items - 1  # an item that nobody has
    length = torch.full((len(accounts),), 3)
    length[-1] = 0
    assert torch.isfinite(scores(model, Batch(torch.tensor(accounts), history, length))).all()


@pytest.mark.parametrize("corner", list(product(*CORNERS.values())), ids=lambda corner: "-".join(map(str, corner)))
def test_corners_of_the_settings(corner: tuple[Any, ...]) -> None:
    settings = dict(zip(CORNERS, corner, strict=True))
    finite_after_steps(model_of(train=TINY, **settings), TINY, steps=3)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_variants(name: str, pooling: str) -> None:
    finite_after_steps(model_of(name, TINY, pooling=pooling, temperature=0.1), TINY, steps=6)


@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_an_account_of_ten_thousand_events(pooling: str) -> None:
    long = np.random.default_rng(0).integers(39, size=10_000).tolist()
    train = training_of([long, [0], [1, 1], [2, 3, 4]], items=40)
    finite_after_steps(model_of(train=train, pooling=pooling), train, steps=3)


def test_scores_stay_finite_with_hundreds_of_items_in_an_account() -> None:
    train = training_of([list(range(1500)), [0, 1]], items=1501)
    finite_after_steps(model_of(train=train, negatives="all"), train, steps=2)

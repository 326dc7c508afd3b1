"""The plain model that benchmarks time has the losses and the gradients of the model."""

import importlib
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from lightgc2n.data.batches import training_batches
from lightgc2n.data.splits import SplitConfig, split_dataset
from lightgc2n.models.lightgc2n.ablations import build_variant
from lightgc2n.models.lightgc2n.lightgc2n import LightGC2NConfig
from tests.worlds import WORLDS

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"negatives": "all", "temperature": 0.1},
        {"pooling": "sum", "layers": 1},
        {"layers": 3, "latent_users": 5, "capsule_width": 8, "routing_steps": 2},
        {"latent_users": 1, "embedding_width": 5},
    ],
)
@pytest.mark.parametrize("targets", ["all", "last"])
def test_losses_and_gradients_agree(settings: dict[str, object], targets: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    plain_losses = importlib.import_module("plain_model").plain_losses
    train = split_dataset(WORLDS["tastes"], SplitConfig(targets=targets)).train
    torch.manual_seed(0)
    model = build_variant("lightgc2n", LightGC2NConfig(dropout=0.0, **settings), train)
    with torch.no_grad():
        for parameter in model.parameters():  # weights as large as trained ones
            parameter.mul_(2)
    batch = next(training_batches(train, 1000))
    actual = []
    for losses in (model.losses(model.encode(), batch), plain_losses(model, batch)):
        gradients = torch.autograd.grad(
            torch.stack(list(losses.values())).sum(), list(model.parameters()), allow_unused=True
        )
        actual.append((losses, gradients))
    (fast, fast_gradients), (plain, plain_gradients) = actual
    for name in plain:
        assert_close(fast[name], plain[name], rtol=1e-5, atol=1e-6)
    for (name, _), one, other in zip(model.named_parameters(), fast_gradients, plain_gradients, strict=True):
        if one is None or other is None:
            assert one is other is None or (one if other is None else other).abs().max() == 0, name
        else:
            assert_close(one, other, rtol=1e-3, atol=1e-5, msg=name)

"""Training in blocks: the loss and gradients of a slow loop, and memory that does not grow with the square of a log."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy, layer_norm
from torch.nn.utils.rnn import pad_sequence
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lightgc2n import devices, zoo
from lightgc2n.data.batches import Batch, TrainingBatch, training_batches
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import Training
from lightgc2n.models.plus.ablations import PLUS_VARIANTS
from lightgc2n.models.plus.plus import LightGC2NPlus
from lightgc2n.models.plus.same_person import SHARPNESS
from lightgc2n.models.plus.training_blocks import TrainingQueries
from tests.graph.logs import training_of
from tests.models.plus.test_repeats import expected_features

ITEMS, LONGEST = 6, 5
LOGS = [[0, 1, 2, 0, 3, 1, 0, 0, 2], [4, 5, 4], [1, 1], [3, 2, 1, 0, 5, 4, 3, 2, 1, 0, 1, 2, 3], [5, 0, 5, 1, 5, 2]]
SETTINGS = {"width": 4, "views": 2, "latent_users": 3, "newest": 3, "followers": ITEMS, "hidden": 3}


def plus(train: Training, name: str = "lightgc2n-plus", **settings: Any) -> LightGC2NPlus:
    torch.manual_seed(0)
    model = zoo.build(name, train, SETTINGS | {"max_length": LONGEST, "dropout": 0.0} | settings)
    assert isinstance(model, LightGC2NPlus)
    for parameter in model.parameters():  # none at a start value that would hide a mistake
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model.train()


def whole_batch(train: Training) -> TrainingBatch:
    return next(training_batches(train, rows_per_batch=100))


@pytest.fixture(params=[1, 13, 31, 64, 10**9])
def cells(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Pairs of a query and an event in a block; a window has at most 5 times 5."""
    hold(request.param, monkeypatch)
    return int(request.param)


def hold(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(devices.DEVICES, "cpu", replace(devices.CPU, history_cells=count))


def slow_logits(model: Any, history: list[int], asked: tuple[int, int]) -> Tensor:
    """The scores of all items after a history, event by event; the transition that is asked for is not counted."""
    events = model.items[history]
    cosines = torch.stack(
        [cosine_similarity(events[:, None], bases[None], dim=-1) for bases in model.same_person.bases]
    )
    owned = torch.softmax(SHARPNESS * model.same_person.sharpness.exp()[:, None, None] * cosines, dim=-1)
    like = (owned * owned[:, -1:]).sum(dim=-1)  # [view, event]: the chance to be of who acts now
    logits = model.bias + model.items @ _slow_state(model.state, events, like)
    pairs = Counter(pair for log in LOGS for pair in pairwise(log))
    pairs[asked] -= 1
    chance = like.mean(dim=0)
    follow = model.followers
    for back, item in enumerate(history[::-1][: model.config.newest]):
        weight = follow.weight[back] + follow.person[back] * chance[len(history) - 1 - back]
        times = torch.tensor([float(pairs[item, other]) for other in range(ITEMS)])
        share = times / (times.sum() + follow.shrinking.exp())
        logits = logits + weight * torch.log1p(share / follow.floor[back].exp())
    for place, features in expected_features(history, chance.tolist()).items():
        order = features[1]
        known = torch.stack([*torch.tensor(features[:-2]), chance[place], chance[place] * order])
        bonus = model.memory.outer(torch.relu(model.memory.inner(known)))[0] + model.memory.readiness[history[place]]
        logits = logits + bonus * torch.eye(ITEMS)[history[place]]
    return logits


def _slow_state(state: Any, events: Tensor, like: Tensor) -> Tensor:
    """The state after the last event."""
    pooled = []
    for view in range(state.views):
        weights = [like[view, s] * state.fading[view, len(events) - 1 - s].exp() for s in range(len(events))]
        value = state.value.weight[view * state.width : (view + 1) * state.width]
        told_ = [weight * (value @ event) for weight, event in zip(weights, events, strict=True)]
        pooled.append(torch.stack(told_).sum(dim=0) / torch.stack(weights).sum())
    whole = state.own(events[-1]) + state.gather(torch.cat(pooled))
    return state.norm(whole + state.outer(torch.relu(state.inner(layer_norm(whole, (state.width,))))))


def slow_loss(model: LightGC2NPlus) -> Tensor:
    """The mean over all targets; a window is cut from the newest event that has a target backwards."""
    losses = []
    for log in LOGS:
        for place in range(len(log) - 1):
            behind = len(log) - 1 - place
            oldest = max(0, len(log) - 1 - LONGEST * math.ceil(behind / LONGEST))
            logits = slow_logits(model, log[oldest : place + 1], (log[place], log[place + 1]))
            losses.append(cross_entropy(logits[None], torch.tensor([log[place + 1]])))
    return torch.stack(losses).mean()


def test_blocks_of_any_size_have_the_loss_and_gradients_of_a_slow_loop(cells: int) -> None:
    train = training_of(LOGS, items=ITEMS)
    model, batch = plus(train), whole_batch(train)
    names, weights = zip(*model.named_parameters(), strict=True)
    loss = model.losses(model.encode(), batch)["next_item"]
    wanted = slow_loss(model)
    assert_close(loss, wanted, rtol=1e-5, atol=1e-6)
    actual = torch.autograd.grad(3 * loss, weights)
    for name, one, other in zip(names, actual, torch.autograd.grad(wanted, weights), strict=True):
        assert_close(one, 3 * other, rtol=1e-3, atol=2e-6, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("name", PLUS_VARIANTS)
def test_blocks_train_with_the_dropout_of_a_whole_batch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    train = training_of(LOGS, items=ITEMS)
    actual = []
    for count in (10**9, 31):
        hold(count, monkeypatch)
        model, batch = plus(train, name, dropout=0.5), whole_batch(train)
        assert (len(TrainingQueries.of(batch, LONGEST).blocks(count)) > 1) == (count == 31)
        torch.manual_seed(7)
        loss = model.losses(model.encode(), batch)["next_item"]
        loss.backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        actual.append([loss.detach(), *(parameter.grad for parameter in model.parameters())])
    for one, other in zip(*actual, strict=True):
        assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_a_block_without_gradients_has_the_same_loss(cells: int) -> None:
    train = training_of(LOGS, items=ITEMS)
    model, batch = plus(train), whole_batch(train)
    with torch.no_grad():
        actual = model.losses(model.encode(), batch)["next_item"]
    assert_close(actual, model.losses(model.encode(), batch)["next_item"].detach())


def test_logs_are_scored_alike_however_many_are_read_at_once(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    train = training_of(LOGS, items=ITEMS)
    model, domain = plus(train).eval(), Domain("all", 0, ITEMS)
    logs = [torch.tensor(log[-LONGEST:]) for log in LOGS]
    history, length = pad_sequence(logs, batch_first=True), torch.tensor([len(log) for log in logs])
    actual = model.scores(model.encode(), Batch(torch.zeros_like(length), history, length), domain)
    hold(10**9, monkeypatch)
    for row, log in enumerate(logs):
        alone = Batch(torch.tensor([0]), log[None], torch.tensor([len(log)]))
        assert_close(actual[row], model.scores(model.encode(), alone, domain)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("most", [1, 13, 31, 64])
def test_every_query_is_in_one_block_and_no_block_is_too_large(most: int) -> None:
    train = training_of(LOGS, items=ITEMS)
    queries = TrainingQueries.of(whole_batch(train), LONGEST)
    parts = [queries.select(rows) for rows in queries.blocks(most)]
    assert torch.cat([part.whole_at for part in parts]).tolist() == queries.whole_at.tolist()
    assert torch.cat([part.log.flatten()[part.at] for part in parts]).equal(queries.log.flatten()[queries.at])
    assert all(len(part.at) * LONGEST <= most or len(part.log) == 1 for part in parts)


def test_long_logs_train_on_whole_windows_chosen_anew() -> None:
    train = training_of(LOGS, items=ITEMS)
    queries = TrainingQueries.of(whole_batch(train), LONGEST)
    assert queries.sample(28) is queries  # 8 + 2 + 1 + 12 + 5 targets: nothing is left out
    asked = list(zip(queries.row.tolist(), queries.whole_at.tolist(), queries.target.tolist(), strict=True))
    windows = [{(at, item) for row, at, item in asked if row == window} for window in range(len(queries.log))]
    seen = set()
    for seed in range(30):
        torch.manual_seed(seed)
        some = queries.sample(13)
        assert 13 - LONGEST < len(some.at) <= 13  # another window of at most 5 would be too many
        assert_close(some.share, torch.full_like(some.share, 1 / len(some.at)))
        for row in range(len(some.log)):
            mine = (some.row == row).nonzero()[:, 0]
            chosen = set(zip(some.whole_at[mine].tolist(), some.target[mine].tolist(), strict=True))
            assert chosen in windows
            seen |= chosen
        assert some.log.flatten()[some.at].equal(whole_batch(train).log.flatten()[some.whole_at])
    assert len(seen) == 28  # in some epoch every target has its turn
    assert len(queries.sample(1).log) == 1


def test_a_step_trains_on_as_many_targets_as_the_setting_says(monkeypatch: pytest.MonkeyPatch) -> None:
    train = training_of(LOGS, items=ITEMS)
    counted: list[int] = []

    def count(model: LightGC2NPlus, encoded: Tensor, whole: TrainingBatch, block: TrainingQueries) -> Tensor:
        counted.append(len(block.at))
        return encoded.sum()

    monkeypatch.setattr(LightGC2NPlus, "_loss", count)
    for most in (128, 3):
        model, batch = plus(train, targets_per_log=most), whole_batch(train)
        model.losses(model.encode(), batch)
    assert counted[0] == 28
    assert 15 - LONGEST < counted[1] <= 15  # five logs
    assert not plus(train, max_length=20, targets_per_log=11).cuda_graph_safe  # the longest log has 13 events
    assert plus(train, max_length=20, targets_per_log=13).cuda_graph_safe


class LargestFloats(TorchDispatchMode):
    """Remembers the number of elements of the largest tensor of floats that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.largest = max([self.largest, *_sizes(result)])
        return result


def _sizes(result: Any) -> Iterator[int]:
    for leaf in tree_leaves(result):
        if isinstance(leaf, Tensor) and leaf.is_floating_point():
            yield leaf.untyped_storage().nbytes() // leaf.element_size()  # an expanded view holds no more


def test_the_largest_intermediate_does_not_grow_with_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    hold(40 * 20, monkeypatch)  # blocks of 40 queries of 20 events
    largest = {}
    for length in (100, 200, 400, 800):
        train = training_of([[(7 * n + n // 3) % ITEMS for n in range(length)]] * 3, items=ITEMS)
        model = plus(train, max_length=20, dropout=0.2, targets_per_log=length)
        with LargestFloats() as floats:
            model.losses(model.encode(), whole_batch(train))["next_item"].backward()
        largest[length] = floats.largest
    # A block has at most 40 queries of 3 newest events with 6 followers each and 20 earlier events with 11 features
    # each; states have 4 to 16 numbers at each of 40 places.
    assert max(largest.values()) <= max(40 * 20 * 11, 3 * 800)  # 3 · 800: the weights of all targets of the batch

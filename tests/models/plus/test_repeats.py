"""Bonuses of repeated items against a loop over every prefix, and their calibration against ranking all items again."""

import math
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import tensor
from torch.testing import assert_close

from lightgc2n.models.plus.repeats import (
    FEATURES,
    LEAK,
    NoRepeatMemory,
    RankInputs,
    RepeatMemory,
    describe,
    raise_earlier_items,
)

logs = st.lists(st.integers(0, 3), min_size=1, max_size=8)


def expected_features(log: list[int], like: list[float]) -> dict[int, list[float]]:
    """For each place that holds an item for the last time: what is known of the item after the whole log."""
    features: dict[int, list[float]] = {}
    newest = {item: place for place, item in enumerate(log)}
    order = sorted(newest.values(), reverse=True)
    before = [place for place in range(len(log) - 1) if log[place] == log[-1]]
    for item, place in newest.items():
        age, rank, count = len(log) - place, order.index(place) + 1, log.count(item)
        followed = sum(log[earlier + 1] == item for earlier in before)
        features[place] = [
            *(math.log(age), math.log(rank), math.log(count), math.log(len(log)), float(age == 1), float(rank <= 3)),
            *(math.log1p(followed), followed / (len(before) + 1), count / len(log)),
            *(like[place], like[place] * math.log(rank)),
        ]
    return features


@given(st.lists(logs, min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_every_prefix_is_described_as_if_it_were_read_alone(rows: list[list[int]]) -> None:
    longest = max(len(row) for row in rows)
    table = tensor([row + [0] * (longest - len(row)) for row in rows])  # padding holds item 0
    queries = [(row, place) for row, log in enumerate(rows) for place in range(len(log))]
    row, place = tensor([row for row, _ in queries]), tensor([place for _, place in queries])
    like = torch.rand(len(queries), longest)
    newest, _, features = describe(table, row, place, like)
    _, cells, listed = describe(table, row, place, like, listed=True)
    assert features.shape[-1] == FEATURES
    for number, (which, last) in enumerate(queries):
        wanted = expected_features(rows[which][: last + 1], like[number].tolist())
        assert newest[number].nonzero()[:, 0].tolist() == sorted(wanted)
        assert cells.where[cells.query == number].tolist() == sorted(wanted)
        for where, values in wanted.items():
            assert_close(features[number, where], tensor(values), rtol=1e-4, atol=1e-5)
            one = (cells.query == number) & (cells.where == where)
            assert_close(listed[one][0], tensor(values), rtol=1e-4, atol=1e-5)


def test_a_list_of_places_gives_the_bonus_and_gradients_of_all_places() -> None:
    torch.manual_seed(0)
    memory, log = RepeatMemory(items=5, hidden=4), torch.randint(5, (3, 7))
    row, place = torch.arange(3).repeat_interleave(7), torch.arange(7).repeat(3)
    results = []
    for listed in (False, True):
        memory.zero_grad()
        like = torch.linspace(0.1, 0.9, 21 * 7).view(21, 7).requires_grad_()
        newest, cells, features = describe(log, row, place, like, listed)
        bonus = cells.spread(memory.outer(torch.relu(memory.inner(features))).squeeze(-1))
        added = torch.where(newest, bonus, 0.0)
        (added * torch.linspace(-1, 1, added.numel()).view_as(added)).sum().backward()
        results.append((added.detach(), like.grad, memory.inner.weight.grad, memory.outer.weight.grad))
    for one, other in zip(*results, strict=True):
        assert one is not None
        assert one.any()
        assert_close(one, other)


def test_the_bonus_is_the_network_and_the_readiness_of_the_item() -> None:
    memory = RepeatMemory(items=4, hidden=5).eval()
    with torch.no_grad():
        memory.readiness.copy_(tensor([0.0, 1.0, 2.0, 3.0]))
    log, row, place = tensor([[1, 3, 1]]), tensor([0]), tensor([2])
    bonus = memory(log, row, place, torch.ones(1, 3))
    _, _, features = describe(log, row, place, torch.ones(1, 3))
    network = memory.outer(torch.relu(memory.inner(features)))[0, :, 0]
    assert_close(bonus.added[0], (network + tensor([1.0, 3.0, 1.0])) * tensor([0, 1, 1]))  # item 1 where it came last


def test_the_balance_counts_in_inference_and_not_in_training() -> None:
    memory = RepeatMemory(items=2, hidden=3)
    given_ = (tensor([[0, 1]]), tensor([0]), tensor([1]), torch.ones(1, 2))
    raw = memory.eval()(*given_).added
    memory.balance.copy_(tensor([0.5, 2.0, 0.0]))
    assert_close(memory(*given_).added, 0.5 + 2 * raw)
    assert_close(memory.train()(*given_).added, raw)


def test_without_memory_nothing_is_added() -> None:
    assert not NoRepeatMemory()(tensor([[0, 1]]), tensor([0]), tensor([1]), torch.ones(1, 2)).added.any()


@pytest.mark.parametrize("cutoff", [1, 3, 20])
def test_gains_are_those_of_ranking_all_items_again(cutoff: int) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(50, 30, generator=generator)
    earlier = torch.stack([torch.randperm(30, generator=generator)[:5] for _ in range(50)])
    bonus, known = torch.randn(50, 5, generator=generator), torch.rand(50, 5, generator=generator) < 0.7
    target = torch.randint(30, (50,), generator=generator)
    target[:20] = earlier[:20, 0]
    shown = RankInputs.of(scores, earlier, bonus, known, target, cutoff)
    for (added, times), place in product([(0.0, 1.0), (0.5, 0.5), (2.0, 0.0), (-1.0, 2.0)], [0, 1, 3, 8]):
        if place <= cutoff:
            lifted = scores.scatter_add(1, earlier, torch.where(known, added + times * bonus, 0.0))
            lifted = raise_earlier_items(lifted, earlier, known, place)
            rank = 1 + (lifted > lifted.gather(1, target[:, None])).sum(dim=1)
            wanted = torch.where(rank <= cutoff, 1 / torch.log2(1.0 + rank), 0.0).double().sum()
            assert shown.gain(added, times, place) == pytest.approx(float(wanted))


def test_batches_joined_gain_what_they_gain_apart() -> None:
    generator = torch.Generator().manual_seed(0)
    parts = []
    for rows, items, places in ((4, 9, 3), (7, 30, 6), (2, 5, 1)):
        earlier = torch.stack([torch.randperm(items, generator=generator)[:places] for _ in range(rows)])
        target = torch.randint(items, (rows,), generator=generator)
        target[0] = earlier[0, 0]
        scores, bonus = (torch.randn(rows, width, generator=generator) for width in (items, places))
        known = torch.ones(rows, places, dtype=torch.bool)
        parts.append(RankInputs.of(scores, earlier, bonus, known, target, 4))
    for balance in product([0.0, 1.0], [0.5, 2.0], [0, 2, 4]):
        apart = sum(float(part.gain(*balance)) for part in parts)
        assert float(RankInputs.joined(parts).gain(*balance)) == pytest.approx(apart)


def test_earlier_items_rank_just_behind_the_place_and_keep_their_order() -> None:
    scores = tensor([[9.0, 5.0, 4.0, 3.0, 1.0, -7.0, 8.0]])
    earlier, known = tensor([[4, 5, 6, 4, 0]]), tensor([[True, True, True, False, False]])
    # The others are 9, 5, 4, 3; the third of them is 4. 8 is above it, 1 is 3 below it and -7 11 below it.
    wanted = tensor([[9.0, 5.0, 4.0, 3.0, 4 - 3 * LEAK, 4 - 11 * LEAK, 8.0]])
    assert_close(raise_earlier_items(scores, earlier, known, 3), wanted)
    assert_close(raise_earlier_items(scores, earlier, known, 0), scores)


def test_a_place_that_a_small_catalogue_does_not_have_changes_nothing() -> None:
    scores, earlier = tensor([[3.0, 2.0, 1.0]]), tensor([[0, 2]])
    assert_close(raise_earlier_items(scores, earlier, tensor([[True, True]]), 3), scores)

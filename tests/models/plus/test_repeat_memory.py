"""What was had before, by a loop that reads every prefix again."""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import tensor
from torch.testing import assert_close

from lightgc2n.models.plus.repeat_memory import FEATURES, NoRepeatMemory, RepeatMemory, describe

logs = st.lists(st.integers(0, 3), min_size=1, max_size=8)


def told(log: list[int], like: list[float]) -> dict[int, list[float]]:
    """For each place that holds an item for the last time: what is known of the item after the whole log."""
    found: dict[int, list[float]] = {}
    newest = {item: place for place, item in enumerate(log)}
    order = sorted(newest.values(), reverse=True)
    before = [place for place in range(len(log) - 1) if log[place] == log[-1]]
    for item, place in newest.items():
        age, rank, count = len(log) - place, order.index(place) + 1, log.count(item)
        followed = sum(log[earlier + 1] == item for earlier in before)
        found[place] = [
            *(math.log(age), math.log(rank), math.log(count), math.log(len(log)), float(age == 1), float(rank <= 3)),
            *(math.log1p(followed), followed / (len(before) + 1), count / len(log)),
            *(like[place], like[place] * math.log(rank)),
        ]
    return found


@given(st.lists(logs, min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_every_prefix_is_described_as_if_it_were_read_alone(rows: list[list[int]]) -> None:
    longest = max(len(row) for row in rows)
    table = tensor([row + [0] * (longest - len(row)) for row in rows])  # padding holds item 0
    asked = [(row, place) for row, log in enumerate(rows) for place in range(len(log))]
    row, place = tensor([row for row, _ in asked]), tensor([place for _, place in asked])
    like = torch.rand(len(asked), longest)
    newest, _, features = describe(table, row, place, like)
    _, cells, listed = describe(table, row, place, like, listed=True)
    assert features.shape[-1] == FEATURES
    for number, (which, last) in enumerate(asked):
        wanted = told(rows[which][: last + 1], like[number].tolist())
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
    found = []
    for listed in (False, True):
        memory.zero_grad()
        like = torch.linspace(0.1, 0.9, 21 * 7).view(21, 7).requires_grad_()
        newest, cells, features = describe(log, row, place, like, listed)
        bonus = cells.spread(memory.outer(torch.relu(memory.inner(features))).squeeze(-1))
        added = torch.where(newest, bonus, 0.0)
        (added * torch.linspace(-1, 1, added.numel()).view_as(added)).sum().backward()
        found.append((added.detach(), like.grad, memory.inner.weight.grad, memory.outer.weight.grad))
    for one, other in zip(*found, strict=True):
        assert one is not None
        assert one.any()
        assert_close(one, other)


def test_the_bonus_is_the_network_and_the_readiness_of_the_item() -> None:
    memory = RepeatMemory(items=4, hidden=5).eval()
    with torch.no_grad():
        memory.readiness.copy_(tensor([0.0, 1.0, 2.0, 3.0]))
    log, row, place = tensor([[1, 3, 1]]), tensor([0]), tensor([2])
    found = memory(log, row, place, torch.ones(1, 3))
    _, _, features = describe(log, row, place, torch.ones(1, 3))
    network = memory.outer(torch.relu(memory.inner(features)))[0, :, 0]
    assert_close(found.added[0], (network + tensor([1.0, 3.0, 1.0])) * tensor([0, 1, 1]))  # item 1 where it came last


def test_the_balance_counts_where_the_model_is_asked_not_where_it_is_trained() -> None:
    memory = RepeatMemory(items=2, hidden=3)
    given_ = (tensor([[0, 1]]), tensor([0]), tensor([1]), torch.ones(1, 2))
    raw = memory.eval()(*given_).added
    memory.balance.copy_(tensor([0.5, 2.0, 0.0]))
    assert_close(memory(*given_).added, 0.5 + 2 * raw)
    assert_close(memory.train()(*given_).added, raw)


def test_without_memory_nothing_is_added() -> None:
    assert not NoRepeatMemory()(tensor([[0, 1]]), tensor([0]), tensor([1]), torch.ones(1, 2)).added.any()

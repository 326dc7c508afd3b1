"""What accounts hold, and fair draws from the rest."""

import torch
from hypothesis import given, settings
from torch import tensor
from torch.testing import assert_close

from lightgc2n.layers.holdings import Holdings, even_weights
from tests.graph.logs import ITEMS, LOGS, training_of


def test_holdings_by_hand() -> None:
    holdings = Holdings.of(training_of([[3, 1, 3], [], [0]], items=5))
    assert holdings.accounts == 3
    assert holdings.offsets.tolist() == [0, 2, 2, 3]
    assert holdings.items.tolist() == [1, 3, 0]
    assert_close(even_weights(holdings.offsets), tensor([0.5, 0.0, 0.5]))


def test_draws_are_even_among_what_is_not_held() -> None:
    holdings = Holdings.of(training_of([[0, 3, 4], [1], []], items=6))
    torch.manual_seed(0)
    drawn = holdings.absent(tensor([0, 1, 2]), 6000)
    for free, row in zip(([1, 2, 5], [0, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]), drawn, strict=True):
        counts = torch.bincount(row, minlength=6)
        assert counts.nonzero().flatten().tolist() == free
        # Each is drawn 6000 / n times, with a standard deviation below sqrt(6000 / n)
        assert (counts[free] - 6000 / len(free)).abs().max() < 5 * (6000 / len(free)) ** 0.5


@settings(max_examples=40)
@given(LOGS)
def test_nothing_that_is_held_is_ever_drawn(logs: list[list[int]]) -> None:
    drawn = Holdings.of(training_of(logs)).absent(torch.arange(len(logs)), 50)
    for log, row in zip(logs, drawn.tolist(), strict=True):
        assert set(row).isdisjoint(log)
        assert set(row) <= set(range(ITEMS))


def test_an_account_that_holds_everything_still_gets_an_item() -> None:
    holdings = Holdings.of(training_of([[0, 1, 2], [0]], items=3))
    assert holdings.absent(tensor([0]), 4).tolist() == [[2, 2, 2, 2]]


def test_restored_holdings_are_the_same() -> None:
    holdings = Holdings.of(training_of([[3, 1], [2]], items=5))
    saved = {f"holdings.{name}": value for name, value in holdings.state_dict().items()}
    again = Holdings.restored(saved, 5)
    assert again.offsets.equal(holdings.offsets)
    assert again.free_before.equal(holdings.free_before)


def test_padded_holdings_by_hand() -> None:
    holdings = Holdings.of(training_of([[3, 1, 3], [], [4]], items=5))
    items, known = holdings.padded(tensor([2, 0, 1, -1]), 3)
    assert [row[there].tolist() for row, there in zip(items, known, strict=True)] == [[4], [1, 3], [], []]
    assert not items[~known].any()
    nothing = Holdings.of(training_of([[]], items=5))
    assert nothing.padded(tensor([0, -1]), 0)[1].shape == (2, 0)

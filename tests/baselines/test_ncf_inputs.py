"""Who asks and what is asked, by hand."""

import pytest
import torch
from torch import nn, tensor
from torch.testing import assert_close

from lightgc2n.baselines.ncf import (
    AccountAlone,
    AccountAndHistory,
    NewestItems,
    held_item_queries,
    target_queries,
)
from lightgc2n.data.batches import Batch, TrainingBatch, training_batches
from lightgc2n.layers.holdings import Holdings
from tests.graph.logs import training_of

LOGS = [[2, 1, 2, 0], [3, 3, 1], [4, 5]]
TRAIN = training_of([*LOGS, []], items=6)  # the fourth account has nothing
HOLDINGS = Holdings.of(TRAIN)
ITEMS = torch.randn(6, 3)
FEEDS = {
    "account": lambda: AccountAlone(HOLDINGS, 3, 1.0),
    "history": lambda: AccountAndHistory(HOLDINGS, 3, 1.0, "mean", 0.0),
    "newest": lambda: NewestItems(2, 3),
}


def one_batch() -> TrainingBatch:
    return next(training_batches(TRAIN, 10))


def test_each_target_is_one_query() -> None:
    queries = target_queries(one_batch(), HOLDINGS, 5)
    assert queries.row.tolist() == [0, 0, 0, 1, 1, 2]
    assert queries.place.tolist() == [0, 1, 2, 0, 1, 0]
    assert queries.candidates[:, 0].tolist() == [1, 2, 0, 3, 1, 5]
    assert queries.candidates.shape == (6, 6)


def test_each_held_item_is_one_query_with_negatives_that_are_not_held() -> None:
    queries = held_item_queries(one_batch(), HOLDINGS, 50)
    pairs = list(zip(queries.row.tolist(), queries.candidates[:, 0].tolist(), strict=True))
    assert sorted(pairs) == [(0, 0), (0, 1), (0, 2), (1, 1), (1, 3), (2, 4), (2, 5)]
    for row, wrong in zip(queries.row.tolist(), queries.candidates[:, 1:].tolist(), strict=True):
        assert set(wrong) == set(range(6)) - set(LOGS[row])


@pytest.mark.parametrize("feed", FEEDS)
def test_training_shows_what_scoring_shows(feed: str) -> None:
    """At each place of a training log stands the vector of the history that ends there."""
    part, batch = FEEDS[feed](), one_batch()
    queries = target_queries(batch, HOLDINGS, 1)
    asked = part.for_queries(ITEMS, batch, queries)
    for vector, row, place in zip(asked, queries.row.tolist(), queries.place.tolist(), strict=True):
        history = tensor([LOGS[row][: place + 1]])
        assert_close(part.whole(ITEMS, Batch(tensor([row]), history, tensor([place + 1])))[0], vector)


def test_an_account_alone_by_hand() -> None:
    part = AccountAlone(HOLDINGS, 3, 1.0)
    batch = Batch(tensor([1, -1]), tensor([[0], [0]]), tensor([1, 1]))
    stranger = part.accounts[:3].mean(dim=0)  # of those that training has
    assert_close(part.whole(ITEMS, batch), torch.stack([part.accounts[1], stranger]))


def test_an_account_and_its_history_by_hand() -> None:
    part = AccountAndHistory(HOLDINGS, 3, 1.0, "mean", 0.5)
    batch = Batch(tensor([1, -1, 2]), tensor([[0, 4], [0, 4], [0, 0]]), tensor([2, 2, 0]))
    mean = (ITEMS[0] + ITEMS[4]) / 2
    assert_close(part.whole(ITEMS, batch), torch.stack([part.accounts[1] + mean, mean, part.accounts[2]]))


def test_training_drops_accounts_but_never_histories() -> None:
    part, batch = AccountAndHistory(HOLDINGS, 3, 1.0, "last", 0.5), one_batch()
    torch.manual_seed(0)
    kinds = set()
    for _ in range(20):
        queries = target_queries(batch, HOLDINGS, 1)  # draws who is hidden
        plain = ITEMS[batch.log[queries.row, queries.place]]
        account = part.accounts[batch.account[queries.row]]
        rest = part.for_queries(ITEMS, batch, queries) - plain
        nameless = rest.abs().amax(dim=1) < 1e-6
        assert_close(rest[~nameless], account[~nameless])
        kinds |= set(nameless.tolist())
    assert kinds == {True, False}
    part.eval()
    assert_close(part.for_queries(ITEMS, batch, queries), account + plain)


def test_newest_items_by_hand() -> None:
    part = NewestItems(2, 3)
    nn.init.zeros_(part.join.bias)
    left, right = part.join.weight[:, :3], part.join.weight[:, 3:]  # of the newest item, of the one before it
    batch = Batch(tensor([0, 0, 0]), tensor([[5, 4, 2], [3, 0, 0], [0, 0, 0]]), tensor([3, 1, 0]))
    expected = [left @ ITEMS[2] + right @ ITEMS[4], left @ ITEMS[3], torch.zeros(3)]
    assert_close(part.whole(ITEMS, batch), torch.stack(expected))

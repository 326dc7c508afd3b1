"""Histories as single vectors, by hand and by sets."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import tensor
from torch.testing import assert_close

from lightgc2n.data.batches import Batch
from lightgc2n.layers.pooling import (
    columns_of,
    distinct,
    first_occurrences,
    pooled_events,
    pooled_history,
    pooled_prefixes,
    running_sums,
)

TABLE = tensor([[9.0], [1.0], [-4.0]])


def test_first_occurrences_by_hand() -> None:
    actual = first_occurrences(tensor([[2, 2, 0, 2, 0], [1, 0, 0, 1, 2]]))
    assert actual.int().tolist() == [[1, 0, 1, 0, 0], [1, 1, 0, 0, 1]]


@given(st.lists(st.lists(st.integers(0, 4), min_size=6, max_size=6), min_size=1, max_size=4))
def test_first_occurrences_are_those_of_a_set(logs: list[list[int]]) -> None:
    expected = [[item not in log[:place] for place, item in enumerate(log)] for log in logs]
    assert first_occurrences(tensor(logs)).tolist() == expected


@pytest.mark.parametrize(("pooling", "expected"), [("sum", -2.0), ("mean", -2 / 3), ("max", 1.0)])
def test_pooled_events_by_hand(pooling: str, expected: float) -> None:
    """The first history is 1 2 1, then padding; the second is empty, the third 0."""
    items = tensor([[1, 2, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
    known = torch.arange(4) < tensor([[3], [0], [1]])
    assert_close(pooled_events(TABLE, items, known, pooling), tensor([[expected], [0.0], [9.0]]))


@pytest.mark.parametrize(("pooling", "expected"), [("mean", [1, 5, 2]), ("max", [1, 9, 9]), ("last", [1, 9, -4])])
def test_pooled_prefixes_by_hand(pooling: str, expected: list[float]) -> None:
    assert_close(pooled_prefixes(TABLE, tensor([[1, 0, 2]]), pooling)[0, :, 0], tensor(expected).float())


@pytest.mark.parametrize("pooling", ["mean", "max", "last"])
def test_a_history_is_the_prefix_that_ends_with_it(pooling: str) -> None:
    history = tensor([[1, 2, 2, 0], [2, 0, 1, 0], [0, 0, 0, 0]])
    prefixes = pooled_prefixes(TABLE, history, pooling)
    whole = pooled_history(TABLE, Batch(tensor([0, 1, 2]), history, tensor([2, 3, 0])), pooling)
    assert_close(whole, torch.stack([prefixes[0, 1], prefixes[1, 2], tensor([0.0])]))


ROWS = tensor([[100.0], [1.0], [10.0]])
LOG = tensor([[1, 2, 1], [2, 0, 0]])  # the second log has one event, and padding behind it


def test_sums_of_prefixes_by_hand() -> None:
    sums = running_sums(ROWS, LOG, "sum")[..., 0]
    assert_close(sums[0], tensor([1.0, 11.0, 12.0]))
    assert sums[1, 0] == 10


def test_means_of_prefixes_by_hand() -> None:
    means = running_sums(ROWS, LOG, "mean")[..., 0]
    assert_close(means[0], tensor([1.0, 5.5, 4.0]))
    assert means[1, 0] == 10


@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_a_prefix_knows_nothing_of_what_follows(pooling: str) -> None:
    log = tensor([[1, 2, 1, 0, 2]])
    whole = running_sums(ROWS, log, pooling)
    for length in range(1, 6):
        assert_close(running_sums(ROWS, log[:, :length], pooling), whole[:, :length], rtol=0, atol=0)


def test_distinct_items_by_hand() -> None:
    batch = Batch(tensor([0, 1, 2]), tensor([[2, 0, 2, 1], [1, 0, 0, 0], [0, 0, 0, 0]]), tensor([4, 1, 0]))
    items, known = distinct(batch.history, batch.known)
    assert [row[there].tolist() for row, there in zip(items, known, strict=True)] == [[0, 1, 2], [1], []]
    assert not items[~known].any()


def test_columns_by_hand() -> None:
    batch = Batch(tensor([0, 1]), tensor([[7, 4, 7, 9], [4, 9, 0, 0]]), tensor([4, 2]))
    items, known = distinct(batch.history, batch.known)  # 4 7 . 9 and 4 9 . .: the dot stands where 7 was said again
    columns = columns_of(batch.history, items, known)
    assert columns[0].tolist() == [1, 0, 1, 3]
    assert columns[1, :2].tolist() == [0, 1]


@given(st.lists(st.lists(st.integers(0, 5), max_size=9), min_size=1, max_size=4), st.integers(0, 5))
def test_distinct_items_are_those_of_a_set(logs: list[list[int]], padding: int) -> None:
    widest = max(1, max(len(log) for log in logs))
    history = tensor([log + [padding] * (widest - len(log)) for log in logs])
    batch = Batch(torch.arange(len(logs)), history, tensor([len(log) for log in logs]))
    items, known = distinct(batch.history, batch.known)
    assert [sorted(row[there].tolist()) for row, there in zip(items, known, strict=True)] == [
        sorted(set(log)) for log in logs
    ]
    columns = columns_of(batch.history, items, known)
    assert torch.equal(items.gather(1, columns)[batch.known], history[batch.known])
    assert known.gather(1, columns)[batch.known].all()

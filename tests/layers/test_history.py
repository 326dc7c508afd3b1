"""Prefixes and distinct items, by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import tensor
from torch.testing import assert_close

from lightgc2n.data.batches import Batch
from lightgc2n.layers.history import columns_of, distinct, running_sums

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

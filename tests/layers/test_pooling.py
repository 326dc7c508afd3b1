"""Histories as single vectors, by hand and by sets."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import tensor
from torch.testing import assert_close

from lightgc2n.data.batches import Batch
from lightgc2n.layers.pooling import first_occurrences, pooled_events, pooled_history, pooled_prefixes

TABLE = tensor([[9.0], [1.0], [-4.0]])


def test_first_occurrences_by_hand() -> None:
    found = first_occurrences(tensor([[2, 2, 0, 2, 0], [1, 0, 0, 1, 2]]))
    assert found.int().tolist() == [[1, 0, 1, 0, 0], [1, 1, 0, 0, 1]]


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

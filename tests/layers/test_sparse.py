"""Sparse tables say the same as dense ones."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from lightgc2n.layers.sparse import SparseRows, count_pairs

PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.floats(0.5, 2)), max_size=20)


def table(pairs: list[tuple[int, int, float]]) -> tuple[SparseRows, torch.Tensor]:
    dense = torch.zeros(4, 5, dtype=torch.float64)
    for row, column, weight in pairs:
        dense[row, column] += weight
    rows, columns = (np.array([pair[place] for pair in pairs], dtype=np.int64) for place in (0, 1))
    weights = np.array([pair[2] for pair in pairs], dtype=np.float64)
    return count_pairs(rows, columns, 4, 5, weights), dense


def test_counting_by_hand() -> None:
    counted = count_pairs(np.array([0, 0, 2]), np.array([1, 1, 0]), 3, 2)
    assert counted.offsets.tolist() == [0, 1, 1, 2]
    assert counted.columns.tolist() == [1, 0]
    assert counted.values.tolist() == [2.0, 1.0]


@given(PAIRS, st.lists(st.integers(0, 3), min_size=1, max_size=5))
def test_rows_are_added_as_in_the_dense_table(pairs: list[tuple[int, int, float]], rows: list[int]) -> None:
    sparse, dense = table(pairs)
    scores = torch.ones(len(rows), 5, dtype=torch.float64)
    sparse.add_rows_to(scores, torch.tensor(rows), weight=3.0)
    assert_close(scores, 1 + 3 * dense[rows])


@given(PAIRS)
def test_the_product_is_that_of_the_dense_table(pairs: list[tuple[int, int, float]]) -> None:
    sparse, dense = table(pairs)
    right = torch.arange(10, dtype=torch.float64).reshape(5, 2)
    assert_close(sparse.times(right), dense @ right)

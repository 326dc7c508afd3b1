"""Sparse tables against dense ones, and sums along edges against slow loops."""

from collections.abc import Callable

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, tensor
from torch.testing import assert_close

from lightgc2n.graph.sequential import Edges, build_graph
from lightgc2n.layers.sparse import SparseRows, WeightedSum, count_pairs, rows_of
from tests.graph.logs import LOGS, training_of
from tests.layers import slow_propagation as slow_layers

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


WIDTH = 3


def listed(edges: Edges) -> tuple[Tensor, Tensor, Tensor]:
    rows = np.repeat(np.arange(len(edges.offsets) - 1), np.diff(edges.offsets))
    return torch.from_numpy(rows), torch.from_numpy(edges.columns), torch.from_numpy(edges.weights)


def with_gradients(function: Callable[..., Tensor], *inputs: Tensor) -> list[Tensor]:
    """The value, and the gradient of a fixed mixture of it by each input."""
    leaves = [value.clone().requires_grad_() for value in inputs]
    actual = function(*leaves)
    mixture = torch.linspace(-1, 1, actual.numel()).view_as(actual)
    whole = (actual * mixture).sum() + sum(0 * leaf.sum() for leaf in leaves)  # so that each has a gradient, if only 0
    return [actual.detach(), *torch.autograd.grad(whole, leaves)]


def assert_same(fast: list[Tensor], slow: list[Tensor]) -> None:
    assert_close(fast[0], slow[0], rtol=1e-5, atol=1e-5)
    for quick, plainly in zip(fast[1:], slow[1:], strict=True):
        assert_close(quick, plainly, rtol=1e-4, atol=1e-4)


@settings(max_examples=40)
@given(LOGS, st.integers(0, 1000))
def test_weighted_sums_are_those_of_the_plain_layer(logs: list[list[int]], seed: int) -> None:
    graph = build_graph(training_of(logs))
    torch.manual_seed(seed)
    for edges in (graph.items_of_account, graph.accounts_of_item, graph.items_before_item):
        table, height = torch.randn(edges.width, WIDTH), len(edges.offsets) - 1
        rows, columns, weights = listed(edges)
        slow = with_gradients(
            lambda t, r=rows, c=columns, w=weights, h=height: slow_layers.weighted_sum(t, r, c, w, h), table
        )
        assert_same(with_gradients(WeightedSum(edges), table), slow)


def test_rows_of_a_table_and_their_gradient_by_hand() -> None:
    table = tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], requires_grad=True)
    actual = rows_of(table, tensor([[2, 0], [2, 2]]))
    assert actual.tolist() == [[[5.0, 6.0], [1.0, 2.0]], [[5.0, 6.0], [5.0, 6.0]]]
    actual.sum().backward()
    assert table.grad is not None
    assert table.grad.tolist() == [[1.0, 1.0], [0.0, 0.0], [3.0, 3.0]]

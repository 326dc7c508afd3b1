"""Weights that vary: by hand, and the fast form with its own gradient against edge-by-edge autograd."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, tensor
from torch.nn.functional import cosine_similarity
from torch.testing import assert_close

from lightgc2n.devices import CPU, DEVICES
from lightgc2n.graph.sequential import Edges
from lightgc2n.layers.edge_attention import EdgeList, RefreshedWeights, edge_products, edge_softmax, sum_along_edges
from tests.layers import slow_propagation as slow_layers
from tests.layers.test_sparse import assert_same, listed, with_gradients

NODES, WIDTH = 9, 3
PAIRS = st.sets(st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)), min_size=1)


def edges_of(pairs: set[tuple[int, int]], nodes: int = NODES) -> Edges:
    rows, columns = np.array(sorted(pairs), dtype=np.int64).T
    offsets = np.searchsorted(rows, np.arange(nodes + 1))
    return Edges(offsets, columns, np.ones(len(columns), dtype=np.float32), nodes)


def slow_likeness(table: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    strength = cosine_similarity(table[rows], table[columns], dim=1).exp()
    return strength / torch.zeros(NODES).index_add(0, rows, strength)[rows]


def test_likeness_by_hand() -> None:
    """Node 0 points right, node 1 up, node 2 left, however long they are: cosines 1, 0 and -1."""
    table = tensor([[2.0, 0.0], [0.0, 5.0], [-1.0, 0.0]])
    actual = edge_softmax(table, EdgeList(edges_of({(0, 0), (0, 1), (0, 2), (1, 2)}, nodes=3)))
    total = math.e + 1 + 1 / math.e
    assert_close(actual, tensor([math.e / total, 1 / total, 1 / math.e / total, 1.0]))


@settings(max_examples=40)
@given(PAIRS, st.integers(0, 1000))
def test_likeness_and_its_gradient_are_those_of_every_edge_alone(pairs: set[tuple[int, int]], seed: int) -> None:
    torch.manual_seed(seed)
    table, edges = torch.randn(NODES, WIDTH), edges_of(pairs)
    rows, columns, _ = listed(edges)
    slow = with_gradients(lambda t: slow_likeness(t, rows, columns), table)
    assert_same(with_gradients(lambda t: edge_softmax(t, EdgeList(edges)), table), slow)


@settings(max_examples=40)
@given(PAIRS, st.integers(0, 1000))
def test_messages_and_both_gradients_are_those_of_the_plain_layer(pairs: set[tuple[int, int]], seed: int) -> None:
    torch.manual_seed(seed)
    table, edges = torch.randn(NODES, WIDTH), edges_of(pairs)
    rows, columns, _ = listed(edges)
    weights = torch.randn(len(rows))
    slow = with_gradients(lambda t, w: slow_layers.weighted_sum(t, rows, columns, w, NODES), table, weights)
    assert_same(with_gradients(lambda t, w: sum_along_edges(t, w, EdgeList(edges)), table, weights), slow)


def test_products_in_blocks_are_those_of_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = torch.randn(4, WIDTH), torch.randn(5, WIDTH)
    row, column = torch.randint(4, (11,)), torch.randint(5, (11,))
    monkeypatch.setitem(DEVICES, "cpu", replace(CPU, edges_at_once=3))
    assert_close(edge_products(first, row, second, column), (first[row] * second[column]).sum(dim=1))


def test_refreshed_weights_stay_until_they_are_refreshed() -> None:
    edges = EdgeList(edges_of({(0, 1), (0, 2), (1, 1)}))
    weights, table = RefreshedWeights(3), torch.randn(NODES, WIDTH)
    weights.refresh(table, edges)
    kept = edge_softmax(table, edges)
    assert_close(weights(-table.flip(0), edges), kept)
    weights.refresh(table.flip(0), edges)
    assert_close(weights(table, edges), edge_softmax(table.flip(0), edges))

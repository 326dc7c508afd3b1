"""Messages along edges: Eq. 5 by hand, and the fast layers against the slow ones."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, tensor
from torch.testing import assert_close

from lightgc2n.graph.sequential import Edges, build_graph
from lightgc2n.layers import plain
from lightgc2n.layers.convolution import SHARPEST, GraphSums
from lightgc2n.layers.propagation import EveryAccountListens, WeightedSum, attend, rows_of
from tests.graph.logs import ITEMS, LOGS, training_of

WIDTH, USERS = 3, 2


def test_attention_by_hand() -> None:
    # One user u = (1, 0) and the items (0.5, 0), (0, 2), the third is padding: matches 0.5 and 0
    user, items = tensor([[[1.0, 0.0]]]), tensor([[[0.5, 0.0], [0.0, 2.0], [9.0, 9.0]]])
    halves = math.sqrt(math.exp(0.5)) + math.sqrt(math.exp(0.0))  # as printed: the root inside the sum
    first, second = math.exp(0.5) / halves, math.exp(0.0) / halves
    heard, weight = attend(user, items, tensor([[True, True, False]]))
    assert_close(weight, tensor([[[first, second, 0.0]]]))
    assert_close(heard, tensor([[[0.5 * first, 2.0 * second]]]))


def test_an_account_without_items_hears_nothing_and_learns_nothing() -> None:
    users, items = torch.randn(2, 2, 3, requires_grad=True), torch.randn(2, 4, 3, requires_grad=True)
    heard, weight = attend(users, items, tensor([[False] * 4, [True] * 4]))
    assert not heard[0].any()
    assert not weight[0].any()
    heard.sum().backward()
    assert users.grad is not None
    assert items.grad is not None
    assert not users.grad[0].any()
    assert torch.isfinite(users.grad).all()
    assert torch.isfinite(items.grad).all()


@given(st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=6))
def test_attention_is_bounded(matches: list[float]) -> None:
    """exp(x) / Σ √exp(x) is at most √exp(x), and squashed capsules match by less than the sharpest scale."""
    items = tensor(matches)[None, :, None]
    _, weight = attend(torch.full((1, 1, 1), SHARPEST), items, torch.ones(1, len(matches), dtype=torch.bool))
    assert (weight <= (SHARPEST * tensor(matches) / 2).exp() * (1 + 1e-5)).all()
    assert (weight > 0).all()


def test_attention_stays_finite_where_the_printed_form_overflows() -> None:
    """Matches of 100 are infinite in float32 once exponentiated; among equals exp(x/2) / n is not."""
    users, items = torch.full((1, 1, 1), 10.0), torch.full((1, 4, 1), 10.0)
    _, weight = attend(users, items, torch.ones(1, 4, dtype=torch.bool))
    assert_close(weight, torch.full((1, 1, 4), math.exp(50) / 4), rtol=1e-4, atol=0)
    assert tensor(100.0).exp() == math.inf


def listed(edges: Edges) -> tuple[Tensor, Tensor, Tensor]:
    rows = np.repeat(np.arange(len(edges.offsets) - 1), np.diff(edges.offsets))
    return torch.from_numpy(rows), torch.from_numpy(edges.columns), torch.from_numpy(edges.weights)


def with_gradients(function: Callable[..., Tensor], *inputs: Tensor) -> list[Tensor]:
    """The value, and the gradient of a fixed mixture of it by each input."""
    leaves = [value.clone().requires_grad_() for value in inputs]
    found = function(*leaves)
    mixture = torch.linspace(-1, 1, found.numel()).view_as(found)
    whole = (found * mixture).sum() + sum(0 * leaf.sum() for leaf in leaves)  # so that each has a gradient, if only 0
    return [found.detach(), *torch.autograd.grad(whole, leaves)]


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
            lambda t, r=rows, c=columns, w=weights, h=height: plain.weighted_sum(t, r, c, w, h), table
        )
        assert_same(with_gradients(WeightedSum(edges), table), slow)


@settings(max_examples=40)
@given(LOGS, st.integers(0, 1000))
def test_attention_of_all_accounts_is_that_of_the_plain_layer(logs: list[list[int]], seed: int) -> None:
    held = GraphSums(build_graph(training_of(logs))).held  # in the order of degrees
    torch.manual_seed(seed)
    users, items = torch.randn(len(logs), USERS, WIDTH), torch.randn(ITEMS, WIDTH)
    rows, columns, _ = listed(held)
    slow = with_gradients(lambda u, i: plain.attend(u, i, rows, columns), users, items)
    everybody = EveryAccountListens(held)
    assert_same(with_gradients(lambda u, i: everybody(u, i)[1], users, items), slow)
    assert_close(everybody(users, items)[0], WeightedSum(held)(items))


def test_very_uneven_degrees() -> None:
    logs = [[], [0], [1], list(range(300)), [*range(299), *range(299)], list(range(7)), [2, 2, 2]]
    held = GraphSums(build_graph(training_of(logs, items=302))).held
    torch.manual_seed(0)
    users, items = torch.randn(7, USERS, WIDTH), torch.randn(302, WIDTH)
    everybody, (rows, columns, _) = EveryAccountListens(held), listed(held)
    assert len(everybody.blocks) == 4  # none; one item (three accounts); seven; 299 and 300 together
    slow = with_gradients(lambda u, i: plain.attend(u, i, rows, columns), users, items)
    assert_same(with_gradients(lambda u, i: everybody(u, i)[1], users, items), slow)


def test_accounts_out_of_order_are_our_own_mistake() -> None:
    edges = build_graph(training_of([[0, 1], [2]])).items_of_account
    with pytest.raises(AssertionError, match="order of their degrees"):
        EveryAccountListens(edges)


def test_rows_of_a_table_and_their_gradient_by_hand() -> None:
    table = tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], requires_grad=True)
    found = rows_of(table, tensor([[2, 0], [2, 2]]))
    assert found.tolist() == [[[5.0, 6.0], [1.0, 2.0]], [[5.0, 6.0], [5.0, 6.0]]]
    found.sum().backward()
    assert table.grad is not None
    assert table.grad.tolist() == [[1.0, 1.0], [0.0, 0.0], [3.0, 3.0]]

"""Attention to the items of an account: Eq. 5 by hand, and all accounts at once against a slow loop over edges."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import tensor
from torch.testing import assert_close

from lightgc2n.graph.sequential import build_graph
from lightgc2n.layers.sparse import WeightedSum
from lightgc2n.models.lightgc2n.convolution import SHARPEST, GraphSums
from lightgc2n.models.lightgc2n.item_attention import AttentionOfAllAccounts, attend
from tests.graph.logs import ITEMS, LOGS, training_of
from tests.layers import slow_propagation as slow_layers
from tests.layers.test_sparse import assert_same, listed, with_gradients

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


@settings(max_examples=40)
@given(LOGS, st.integers(0, 1000))
def test_attention_of_all_accounts_is_that_of_the_plain_layer(logs: list[list[int]], seed: int) -> None:
    held = GraphSums(build_graph(training_of(logs))).held  # in the order of degrees
    torch.manual_seed(seed)
    users, items = torch.randn(len(logs), USERS, WIDTH), torch.randn(ITEMS, WIDTH)
    rows, columns, _ = listed(held)
    slow = with_gradients(lambda u, i: slow_layers.attend(u, i, rows, columns), users, items)
    everybody = AttentionOfAllAccounts(held)
    assert_same(with_gradients(lambda u, i: everybody(u, i)[1], users, items), slow)
    assert_close(everybody(users, items)[0], WeightedSum(held)(items))


def test_very_uneven_degrees() -> None:
    logs = [[], [0], [1], list(range(300)), [*range(299), *range(299)], list(range(7)), [2, 2, 2]]
    held = GraphSums(build_graph(training_of(logs, items=302))).held
    torch.manual_seed(0)
    users, items = torch.randn(7, USERS, WIDTH), torch.randn(302, WIDTH)
    everybody, (rows, columns, _) = AttentionOfAllAccounts(held), listed(held)
    assert len(everybody.blocks) == 4  # none; one item (three accounts); seven; 299 and 300 together
    slow = with_gradients(lambda u, i: slow_layers.attend(u, i, rows, columns), users, items)
    assert_same(with_gradients(lambda u, i: everybody(u, i)[1], users, items), slow)


def test_accounts_out_of_order_are_our_own_mistake() -> None:
    edges = build_graph(training_of([[0, 1], [2]])).items_of_account
    with pytest.raises(AssertionError, match="sorted by degree"):
        AttentionOfAllAccounts(edges)

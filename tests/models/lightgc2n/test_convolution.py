"""Graph convolutions: one layer by hand, and the whole of Eq. 3 to 12 by a slow loop."""

import itertools
import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import example, given, settings
from torch import Tensor, tensor
from torch.testing import assert_close

from lightgc2n.graph.sequential import build_graph
from lightgc2n.layers.squash import squash
from lightgc2n.models.lightgc2n.capsules import DynamicRouting, LinearAttention, PointwiseConvolution
from lightgc2n.models.lightgc2n.convolution import (
    SHARPEST,
    CapsuleConvolution,
    CapsuleLayer,
    GraphNeighbours,
    GraphSums,
    NoConvolution,
    PlainConvolution,
)
from lightgc2n.models.lightgc2n.item_attention import attend
from tests.graph.logs import ITEMS, LOGS, training_of

WIDTH, CAPSULE, USERS, LAYERS = 3, 4, 2, 2
UNEVEN = [[0, 1, 2], [5], [], list(range(20)), [3, 3, 3]]


def identity_layer() -> CapsuleLayer:
    layer = CapsuleLayer(2)
    with torch.no_grad():
        for linear in layer.children():
            linear.weight.copy_(torch.eye(2))  # type: ignore[union-attr, operator]
    return layer


def squashed(x: float, y: float) -> list[float]:
    length = math.hypot(x, y)
    return [x * length / (1 + length**2), y * length / (1 + length**2)]


def test_a_latent_user_by_hand() -> None:
    # An account of the items (0.6, 0) and (0, 0.8), which nobody else holds, and its one user (0.5, 0).
    items, user = tensor([[[0.6, 0.0], [0.0, 0.8]]]), tensor([[[0.5, 0.0]]])
    summed = tensor([[0.6, 0.8]]) / math.sqrt(2 * 1)  # W1: both weighted 1 / √(degrees 2 and 1)
    heard, _ = attend(user, items, tensor([[True, True]]))
    halves = math.exp(0.3 / 2) + 1  # matches 0.5 · 0.6 and 0
    first = 0.6 / math.sqrt(2) + 0.6 * math.exp(0.3) / halves + 0.5  # W1, W2 and the self-connection W3
    second = 0.8 / math.sqrt(2) + 0.8 / halves
    assert_close(identity_layer().users(summed, heard, user), tensor([[squashed(first, second)]]))


def test_an_item_by_hand() -> None:
    # Two users (0.5, 0) and (0, 0.1) send along W4, the item before, (0.2, 0.2), along W5; an item keeps nothing.
    from_users, from_before = tensor([[0.5, 0.1]]), tensor([[0.2, 0.2]])
    assert_close(identity_layer().items(from_users, from_before), tensor([squashed(0.7, 0.3)]))


def test_the_scale_starts_in_the_middle_and_is_bounded() -> None:
    layer = CapsuleLayer(2)
    assert layer.scale().item() == SHARPEST / 2
    for value in (-1000.0, 1000.0):
        with torch.no_grad():
            layer.sharpness.fill_(value)
        assert 0 <= layer.scale().item() <= SHARPEST


def capsule_convolution(logs: Sequence[Sequence[int]], layers: int = LAYERS, items: int = ITEMS) -> CapsuleConvolution:
    torch.manual_seed(0)
    return CapsuleConvolution(
        GraphSums(build_graph(training_of(logs, items))),
        LinearAttention(WIDTH, CAPSULE),
        PointwiseConvolution(WIDTH, USERS, CAPSULE),
        DynamicRouting(USERS, CAPSULE, steps=3),
        CAPSULE,
        layers,
    )


def slowly(
    convolution: CapsuleConvolution, logs: Sequence[Sequence[int]], items: Tensor, accounts: Tensor
) -> tuple[list[Tensor], Tensor]:
    """Item capsules of every layer and the sum of each user's layers, message by message."""
    held = [sorted(set(log)) for log in logs]
    holders = [[account for account, log in enumerate(held) if item in log] for item in range(ITEMS)]
    steps = {(before, after) for log in logs for before, after in itertools.pairwise(log)}
    sent = [sum(before == item for before, _ in steps) for item in range(ITEMS)]
    got = [sum(after == item for _, after in steps) for item in range(ITEMS)]
    item = squash(convolution.to_items(items))
    user = squash(convolution.to_users(accounts))
    actual, total = [item], user
    for layer in convolution.layers:
        next_item, next_user = torch.zeros_like(item), torch.zeros_like(user)
        for i in range(ITEMS):
            message = torch.zeros(CAPSULE)
            for k in holders[i]:
                for h in range(USERS):
                    message = message + layer.from_users(user[k, h]) / math.sqrt(len(held[k]) * len(holders[i]))
            for before, after in steps:
                if after == i:
                    message = message + layer.from_before(item[before]) / math.sqrt(sent[before] * got[i])
            next_item[i] = squash(message)
        for k, own in enumerate(held):
            for h in range(USERS):
                message = layer.from_self(user[k, h])
                match = [layer.scale() * user[k, h] @ item[i] for i in own]
                for x, i in zip(match, own, strict=True):
                    share = x.exp() / sum(y.exp().sqrt() for y in match)
                    message = message + layer.from_items(item[i]) / math.sqrt(len(own) * len(holders[i]))
                    message = message + layer.from_matches(share * item[i])
                next_user[k, h] = squash(message)
        item, user = next_item, next_user
        actual.append(item)
        total = total + user
    return actual, total


@settings(max_examples=5)
@example(UNEVEN)  # its order by degrees is not its own inverse
@given(LOGS)
def test_capsules_are_those_of_a_slow_loop(logs: list[list[int]]) -> None:
    """Their gradients too: the fast layers have backward passes of their own."""
    convolution = capsule_convolution(logs)
    items = torch.randn(ITEMS, WIDTH, requires_grad=True)
    accounts = torch.randn(len(logs), WIDTH, requires_grad=True)
    near = GraphNeighbours(build_graph(training_of(logs)))(torch.arange(len(logs)), accounts)
    layers = convolution.items(items, accounts)
    fast = [*layers, convolution.users(near, layers)]
    slow_layers, slow_users = slowly(convolution, logs, items, accounts)
    slow = [*slow_layers, slow_users]
    assert len(fast) == LAYERS + 2
    leaves = [items, accounts, *convolution.layers.parameters(), *convolution.to_items.parameters()]
    gradients = []
    for outputs in (fast, slow):
        mixtures = [torch.linspace(-1, 1, actual.numel()).view_as(actual) for actual in outputs]
        whole = sum((actual * mix).sum() for actual, mix in zip(outputs, mixtures, strict=True))
        gradients.append(torch.autograd.grad(whole + sum(0 * leaf.sum() for leaf in leaves), leaves))
    for quick, slowed in zip(fast, slow, strict=True):
        assert_close(quick, slowed, rtol=1e-5, atol=1e-5)
    for quick, slowed in zip(*gradients, strict=True):
        assert_close(quick, slowed, rtol=1e-4, atol=1e-4)
    assert_close(convolution.accounts(near, layers), convolution.routing(fast[-1]))


def test_capsules_of_every_layer_are_shorter_than_one() -> None:
    actual = capsule_convolution(UNEVEN, layers=5).items(torch.randn(ITEMS, WIDTH) * 50, torch.randn(5, WIDTH) * 50)
    assert all((layer.norm(dim=1) <= 1 + 1e-6).all() for layer in actual)


def test_neighbours_by_hand() -> None:
    neighbours, start = GraphNeighbours(build_graph(training_of(UNEVEN))), torch.randn(5, WIDTH)
    near = neighbours(tensor([2, 0, 4]), start)
    assert near.known.tolist() == [[False] * 3, [True] * 3, [True, False, False]]
    assert near.items.tolist() == [[0, 0, 0], [0, 1, 2], [3, 0, 0]]
    assert_close(near.start, start[[2, 0, 4]])


def test_ownership_sums_to_one_over_users_and_to_nothing_on_padding() -> None:
    convolution, start = capsule_convolution(UNEVEN), torch.randn(5, WIDTH)
    near = GraphNeighbours(build_graph(training_of(UNEVEN)))(torch.arange(5), start)
    actual = convolution.ownership(near, convolution.items(torch.randn(ITEMS, WIDTH), start))
    assert actual.shape == (5, USERS, 20)
    assert_close(actual.sum(dim=1), near.known.float())
    assert actual.min() >= 0


def test_ownership_is_the_last_layers_attention() -> None:
    """With one layer: the users are those of layer 0, and item 7 of account 0 is whose match is the greater share."""
    logs = [[7, 8]]
    convolution, start = capsule_convolution(logs, layers=1), torch.randn(1, WIDTH)
    layers = convolution.items(torch.randn(ITEMS, WIDTH), start)
    near = GraphNeighbours(build_graph(training_of(logs)))(tensor([0]), start)
    users = squash(convolution.to_users(start))[0] * SHARPEST / 2
    match = (users @ layers[0][[7, 8]].T).exp()
    share = match / match.sqrt().sum(dim=1, keepdim=True)
    assert_close(convolution.ownership(near, layers)[0], share / share.sum(dim=0))


def test_a_plain_convolution_by_hand() -> None:
    # Account 0 holds items 0 and 1, and 1 follows 0. All weights identities: layer 1 is the sum over neighbours.
    convolution = PlainConvolution(GraphSums(build_graph(training_of([[0, 1]], items=2))), 2, 2, layers=1)
    with torch.no_grad():
        for linear in (convolution.project, *convolution.layers):
            linear.weight.copy_(torch.eye(2))  # type: ignore[operator, union-attr]
        convolution.project.bias.zero_()
    items, account = tensor([[1.0, 0.0], [0.0, 1.0]]), tensor([[3.0, 5.0]])
    near = GraphNeighbours(build_graph(training_of([[0, 1]], items=2)))(tensor([0]), account)
    actual = convolution.items(items, account)
    half = 2**-0.5  # 1 / √(the account's degree 2 · the item's degree 1)
    assert_close(actual[1], tensor([[3.0 * half, 5.0 * half], [3.0 * half + 1.0, 5.0 * half]]))
    assert_close(convolution.accounts(near, actual), tensor([[3.0 + half, 5.0 + half]]))


def test_no_convolution_is_a_projection() -> None:
    convolution, items, accounts = NoConvolution(WIDTH, CAPSULE), torch.randn(ITEMS, WIDTH), torch.randn(5, WIDTH)
    near = GraphNeighbours(build_graph(training_of(UNEVEN)))(tensor([3, 2]), accounts)
    assert_close(convolution.items(items, accounts)[0], convolution.project(items))
    assert_close(convolution.accounts(near, []), convolution.project(accounts[[3, 2]]))


@pytest.mark.parametrize("logs", [[[]], [[], []], [[0]]], ids=["nobody", "two without items", "one event"])
def test_graphs_with_next_to_no_edges(logs: list[list[int]]) -> None:
    convolution, accounts = capsule_convolution(logs, items=2), torch.randn(len(logs), WIDTH, requires_grad=True)
    items = torch.randn(2, WIDTH, requires_grad=True)
    near = GraphNeighbours(build_graph(training_of(logs, 2)))(torch.arange(len(logs)), accounts)
    actual = convolution.items(items, accounts)
    (sum(layer.sum() for layer in actual) + convolution.accounts(near, actual).sum()).backward()
    for leaf in (items, accounts):
        assert leaf.grad is not None
        assert torch.isfinite(leaf.grad).all()

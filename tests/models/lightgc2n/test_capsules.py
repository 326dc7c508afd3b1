"""Squash, linear attention, point-wise convolution and routing, by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, tensor
from torch.testing import assert_close

from lightgc2n.layers.squash import squash
from lightgc2n.models.lightgc2n.capsules import (
    DynamicRouting,
    LinearAttention,
    OneCapsule,
    PointwiseConvolution,
    SumOfUsers,
    attention_map,
    routing_weights,
)


def test_squash_by_hand() -> None:
    # |(3, 4)| = 5: the length becomes 25 / 26 and the direction stays (0.6, 0.8)
    assert_close(squash(tensor([[3.0, 4.0]])), tensor([[0.6, 0.8]]) * 25 / 26)


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=3, max_size=3))
def test_squashed_vectors_are_no_longer_than_one(values: list[float]) -> None:
    assert squash(tensor([values])).norm() <= 1 + 1e-6


def test_squash_of_nothing_is_nothing_and_has_a_gradient() -> None:
    zero = torch.zeros(2, 3, requires_grad=True)
    squash(zero).sum().backward()
    assert zero.grad is not None
    assert torch.isfinite(zero.grad).all()
    assert_close(squash(zero), torch.zeros(2, 3), rtol=0, atol=0)


def test_attention_map_by_hand() -> None:
    # Columns (1, 2) and (0, 1): EᵀE = [[5, 2], [2, 1]], divided by √2, softmax along each row
    row = [[math.exp(x / math.sqrt(2)) for x in pair] for pair in ([5, 2], [2, 1])]
    expected = tensor([[x / sum(pair) for x in pair] for pair in row])
    assert_close(attention_map(tensor([[1.0, 0.0], [2.0, 1.0]])), expected)


def test_linear_attention_by_hand() -> None:
    layer = LinearAttention(2, 3)
    items = tensor([[1.0, 0.0], [2.0, 1.0]])
    expected = items @ attention_map(items) @ layer.project.weight.T + layer.project.bias
    assert_close(layer(items), expected)
    assert layer(items).shape == (2, 3)


def test_a_saturated_map_is_the_identity() -> None:
    """EᵀE grows with the number of items; once its diagonal leads by far, attention passes items through."""
    embeddings = torch.randn(5000, 4, generator=torch.Generator().manual_seed(0))
    assert_close(attention_map(embeddings), torch.eye(4))
    assert attention_map(embeddings / 100).diagonal().max() < 0.5


def test_pointwise_convolution_is_one_linear_map_for_each_user() -> None:
    layer = PointwiseConvolution(2, capsules=2, capsule_width=2)
    with torch.no_grad():
        layer.project.weight.copy_(tensor([[1.0, 0], [0, 1], [2, 0], [0, 3]]))
        layer.project.bias.copy_(tensor([0.0, 0, 10, 10]))
    # the first user's kernel is the identity, the second's scales by 2 and 3 and adds 10
    assert_close(layer(tensor([[1.0, 2.0]])), tensor([[[1.0, 2.0], [12.0, 16.0]]]))


def test_one_capsule_has_the_shape_of_linear_attention() -> None:
    layer, items = OneCapsule(3, 2), torch.randn(5, 3)
    assert_close(layer(items), layer.convolve.project(items))


def squash_slowly(vector: list[float]) -> list[float]:
    length = math.sqrt(sum(x * x for x in vector))
    return [x * length / (1 + length**2) for x in vector]


def route_slowly(users: Tensor, routing: DynamicRouting) -> list[list[float]]:
    """Eq. 12 and 13 for one account, number by number."""
    couple, weight = routing.start.tolist(), routing.agree.weight.tolist()
    width, account = users.shape[-1], [0.0] * users.shape[-1]
    terms: list[list[float]] = []
    for _ in range(routing.steps):
        terms = [squash_slowly([b * e for b, e in zip(couple[h], user, strict=True)]) for h, user in enumerate(users)]
        account = [sum(term[d] for term in terms) for d in range(width)]
        for h, user in enumerate(users.tolist()):
            product = [e * c for e, c in zip(user, account, strict=True)]
            couple[h] = [couple[h][d] + sum(weight[d][x] * product[x] for x in range(width)) for d in range(width)]
    return terms


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_routing_is_that_of_a_slow_loop(steps: int) -> None:
    torch.manual_seed(steps)
    routing, users = DynamicRouting(3, 4, steps), torch.randn(2, 3, 4)
    slow = tensor([route_slowly(account, routing) for account in users])
    assert_close(routing.terms(users), slow, rtol=1e-4, atol=1e-5)
    assert_close(routing(users), slow.sum(dim=1), rtol=1e-4, atol=1e-5)


def test_one_step_of_routing_by_hand() -> None:
    routing = DynamicRouting(2, 2, steps=1)
    routing.start.copy_(tensor([[1.0, 1.0], [2.0, 0.0]]))
    users = tensor([[[3.0, 4.0], [1.0, 7.0]]])
    # squash(3, 4) has length 25/26; (2, 0) ⊙ (1, 7) = (2, 0), whose length becomes 4/5
    assert_close(routing(users), tensor([[0.6 * 25 / 26 + 0.8, 0.8 * 25 / 26]]))


def test_the_start_of_routing_is_saved_with_the_weights() -> None:
    assert "start" in DynamicRouting(2, 3, 3).state_dict()


def test_a_sum_of_users_by_hand() -> None:
    users = tensor([[[1.0, 2.0], [3.0, 4.0]]])
    assert_close(SumOfUsers()(users), tensor([[4.0, 6.0]]))
    assert_close(SumOfUsers().terms(users), users)


def test_routing_weights_by_hand() -> None:
    # lengths 5 and 15; an account of nobody is everybody's alike
    actual = routing_weights(tensor([[[3.0, 4.0], [9.0, 12.0]], [[0.0, 0.0], [0.0, 0.0]]]))
    assert_close(actual, tensor([[0.25, 0.75], [0.5, 0.5]]))

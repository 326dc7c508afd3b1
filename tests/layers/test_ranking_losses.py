"""Losses among candidates: by hand, against slow loops, and at their limits."""

import math
from functools import partial

import torch
from torch import Tensor, tensor
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from lightgc2n.layers.ranking_losses import FullCrossEntropy, SampledLoss, bpr_max, sampled_cross_entropy, top1
from lightgc2n.layers.recurrent import ItemVectors
from tests.graph.logs import training_batch

ALL = torch.ones(1, 2, dtype=torch.bool)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def vectors(items: int = 6, width: int = 4) -> ItemVectors:
    torch.manual_seed(1)
    table = torch.randn(items, width)
    return ItemVectors(table, table, torch.randn(items))


def test_sampled_cross_entropy_by_hand() -> None:
    actual = sampled_cross_entropy(tensor([2.0]), tensor([[1.0, 5.0]]), tensor([[True, False]]))
    assert_close(actual, tensor([-math.log(math.exp(2) / (math.exp(2) + math.exp(1)))]))  # the 5 is no candidate


def test_bpr_max_by_hand() -> None:
    share = [math.exp(1) / (math.exp(1) + math.exp(-1)), math.exp(-1) / (math.exp(1) + math.exp(-1))]
    won = share[0] * sigmoid(2 - 1) + share[1] * sigmoid(2 + 1)
    expected = -math.log(won) + 0.5 * (share[0] * 1 + share[1] * 1)
    assert_close(bpr_max(tensor([2.0]), tensor([[1.0, -1.0]]), ALL, 0.5, 0.0), tensor([expected]))


def test_bpr_max_bends_scores_below_zero() -> None:
    bent = [0.5 * (math.exp(-3) - 1), 2.0, 0.5 * (math.exp(-1) - 1)]
    straight = bpr_max(tensor([bent[0]]), tensor([bent[1:]]), ALL, 0.5, 0.0)
    assert_close(bpr_max(tensor([-3.0]), tensor([[2.0, -1.0]]), ALL, 0.5, 0.5), straight)


def test_bpr_max_ignores_a_negative_far_below_the_others() -> None:
    negatives = tensor([[3.0, -80.0]], requires_grad=True)
    bpr_max(tensor([1.0]), negatives, ALL, 1.0, 0.0).sum().backward()
    assert negatives.grad is not None
    assert abs(float(negatives.grad[0, 0])) > 0.1
    assert abs(float(negatives.grad[0, 1])) < 1e-20  # its share π is e^-83


def test_bpr_max_without_any_negative_is_finite_and_still() -> None:
    positive = tensor([1.0], requires_grad=True)
    loss = bpr_max(positive, tensor([[1.0, 2.0]]), ~ALL, 1.0, 0.5)
    loss.sum().backward()
    assert torch.isfinite(loss).all()
    assert positive.grad is not None
    assert not positive.grad.any()


def test_top1_by_hand() -> None:
    right, wrong = math.tanh(0.5), [math.tanh(-1.0), math.tanh(2.0)]
    own = sigmoid(0) + sigmoid(right**2)
    others = sum(sigmoid(score - right) + sigmoid(score**2) for score in wrong)
    expected = (own + others) / 3 - sigmoid(right**2) / 3
    assert_close(top1(tensor([0.5]), tensor([[-1.0, 2.0]]), ALL), tensor([expected]))


def test_full_cross_entropy_is_the_mean_over_the_targets() -> None:
    items, batch = vectors(), training_batch([[1, 2, 3], [4, 5]])
    states = torch.randn(2, 2, 4)
    asked = [(0, 0, 2), (0, 1, 3), (1, 0, 5)]  # row, place, target
    expected = [
        cross_entropy(items.outputs @ states[row, place] + items.bias, tensor(item)) for row, place, item in asked
    ]
    assert_close(FullCrossEntropy()(states, items, batch), torch.stack(expected).mean())


def among(loss: SampledLoss, query: Tensor, target: Tensor, drawn: Tensor, items: ItemVectors) -> Tensor:
    return loss.among(query, target, torch.ones_like(target, dtype=torch.bool), drawn, items)


def test_one_target_alone_costs_nothing() -> None:
    loss = SampledLoss(torch.ones(6), sampled_cross_entropy, samples=0, alpha=0.5)
    assert len(loss.drawn()) == 0
    assert float(among(loss, torch.randn(1, 1, 4), tensor([[3]]), loss.drawn(), vectors())) == 0.0


def test_among_all_items_it_is_the_full_cross_entropy() -> None:
    items, query = vectors(), torch.randn(1, 1, 4)
    loss = SampledLoss(torch.ones(6), sampled_cross_entropy, samples=6, alpha=0.5, correction=0.0)
    full = cross_entropy(items.logits(query[0]), tensor([3]))
    assert_close(among(loss, query, tensor([[3]]), torch.arange(6), items)[0, 0], full)


def test_the_correction_by_hand() -> None:
    """Target 0 (seen 8 times) against target 1 of another row (seen twice) and a drawn item 2 (seen 16 times)."""
    table = torch.zeros(3, 4)
    items = ItemVectors(table, table, tensor([0.3, 0.2, 0.1]))
    loss = SampledLoss(tensor([8.0, 2.0, 16.0]), sampled_cross_entropy, samples=1, alpha=0.5, correction=0.7)
    scores = [0.3 - 0.7 * math.log(8), 0.2 - 0.7 * math.log(2), 0.1 - 0.7 * math.log(16**0.5)]
    expected = -math.log(math.exp(scores[0]) / sum(math.exp(score) for score in scores))
    actual = among(loss, torch.randn(1, 2, 4), tensor([[0, 1]]), tensor([2]), items)
    assert_close(actual[0, 0], tensor(expected))


def test_sampled_losses_are_those_of_a_slow_loop() -> None:
    """Five targets in two groups of three rows, taken place by place; no candidate repeats the target."""
    batch = training_batch([[1, 2, 3], [4, 2, 5], [0, 1]])
    criterion = partial(bpr_max, regularisation=0.3, elu=0.5)
    loss = SampledLoss(tensor([1.0, 2.0, 2.0, 1.0, 1.0, 1.0]), criterion, samples=4, alpha=0.75)
    items, states = vectors(), torch.randn(3, 2, 4)
    torch.manual_seed(5)
    drawn = loss.drawn().tolist()
    places = [(0, 0, 2), (1, 0, 2), (2, 0, 1), (0, 1, 3), (1, 1, 5)]  # row, place, target
    expected = []
    for group in (places[:3], places[3:]):
        for row, place, target in group:
            negatives = [item for _, _, item in group if item != target] + [item for item in drawn if item != target]
            scores = items.outputs @ states[row, place] + items.bias
            usable = torch.ones(len(negatives), dtype=torch.bool)
            expected.append(criterion(scores[target], scores[negatives], usable))
    torch.manual_seed(5)
    assert_close(loss(states, items, batch), torch.stack(expected).mean())


def test_items_are_drawn_by_a_power_of_their_counts() -> None:
    torch.manual_seed(0)
    loss = SampledLoss(tensor([0.0, 1.0, 16.0]), sampled_cross_entropy, samples=50_000, alpha=0.5)
    shares = torch.bincount(loss.drawn(), minlength=3) / 50_000
    assert_close(shares, tensor([0.0, 0.2, 0.8]), atol=0.01, rtol=0)  # √1 to √16
    even = SampledLoss(tensor([0.0, 1.0, 16.0]), sampled_cross_entropy, samples=50_000, alpha=0.0)
    shares = torch.bincount(even.drawn(), minlength=3) / 50_000
    assert_close(shares, tensor([0.0, 0.5, 0.5]), atol=0.01, rtol=0)  # nobody's item is never drawn

"""Losses against drawn classes, by hand and against the losses they stand for."""

import math

import pytest
import torch
from torch import tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from torch.testing import assert_close

from lightgc2n.layers.sampled_losses import (
    DrawnSoftmax,
    base_rate,
    candidates_of,
    drawn_scores,
    gbce,
    mean_gbce,
    mean_sampled_softmax,
    mean_softmax,
    other_items,
    pointwise_loss,
    positive_weight,
    sampled_softmax,
    softmax_loss,
)


def test_gbce_by_hand() -> None:
    # σ(log 3) = 3/4; two negatives of four others: α = 1/2, and β = 1 - 0.5·(1 - 1/2) = 3/4
    own, others = torch.tensor([math.log(3.0)]), torch.tensor([[0.0, math.log(3.0)]])
    expected = -(0.75 * math.log(3 / 4) + math.log(1 / 2) + math.log(1 / 4)) / 3
    assert_close(gbce(own, others, classes=5, calibration=0.5), torch.tensor([expected]))


@pytest.mark.parametrize(("classes", "expected"), [(3226, 0.309), (257, 1.0)])
def test_weight_of_the_positive(classes: int, expected: float) -> None:
    # 1 - 0.75·(1 - 256/3225) = 0.3095; all 256 others drawn: 1
    assert positive_weight(classes, 256, 0.75) == pytest.approx(expected, abs=1e-3)


def test_gbce_is_the_published_transformation_of_the_score() -> None:
    """The paper raises σ(s⁺) to the power β."""
    own, others = torch.randn(4), torch.randn(4, 7)
    beta = positive_weight(20, 7, 0.6)
    logits = torch.cat([(own.sigmoid() ** beta).logit()[:, None], others], dim=1)
    labels = torch.zeros(4, 8)
    labels[:, 0] = 1
    published = binary_cross_entropy_with_logits(logits, labels, reduction="none").mean(dim=1)
    assert_close(gbce(own, others, 20, 0.6), published)


def test_one_negative_without_calibration_is_half_the_original_loss() -> None:
    own, others = torch.randn(4), torch.randn(4, 1)
    original = -own.sigmoid().log() - (1 - others[:, 0].sigmoid()).log()
    assert_close(gbce(own, others, classes=9, calibration=0.0), original / 2)
    assert base_rate(9, 1, 0.0) == 0


def test_at_the_base_rate_a_common_score_cannot_be_bettered() -> None:
    score = torch.tensor(base_rate(30, 6, 0.75), requires_grad=True)
    gbce(score.expand(1), score.expand(1, 6), 30, 0.75).sum().backward()
    assert_close(score.grad, torch.tensor(0.0), atol=1e-7, rtol=0)


def test_softmax_against_all_others_is_the_full_softmax() -> None:
    logits, target = torch.randn(5, 9), torch.randint(9, (5,))
    others = logits[torch.arange(9) != target[:, None]].view(5, 8)
    own = logits.gather(1, target[:, None])[:, 0]
    assert_close(sampled_softmax(own, others), cross_entropy(logits, target, reduction="none"))


def test_drawn_scores_are_products_with_classes() -> None:
    torch.manual_seed(0)
    queries, classes, target = torch.randn(37, 3), torch.randn(6, 3), torch.randint(6, (37,))
    own, others, is_target = drawn_scores(queries, classes, target, negatives=4)
    table = queries @ classes.T
    assert_close(own, table[torch.arange(37), target])
    actual = (others[:, :, None] - table[:, None, :]).abs().argmin(dim=2)  # which class each score belongs to
    assert_close(others, table.gather(1, actual))
    assert torch.equal(is_target, actual == target[:, None])
    assert torch.equal(actual[:16], actual[:1].expand(16, -1))  # shared by sixteen neighbours
    assert not torch.equal(actual[15], actual[16])


def test_a_negative_that_is_the_target_does_not_count_in_the_sampled_softmax() -> None:
    # Two classes: the only negative is the target (nothing to tell apart: 0) or the other one (log 2).
    queries, classes = torch.zeros(1, 2), torch.zeros(2, 2)
    actual = set()
    for seed in range(20):
        torch.manual_seed(seed)
        actual.add(round(float(mean_sampled_softmax(queries, classes, torch.tensor([0]), 5)), 4))
    assert actual == {0.0, round(math.log(2), 4)}


def test_negatives_are_never_more_than_the_other_classes() -> None:
    _, others, _ = drawn_scores(torch.zeros(2, 1), torch.zeros(4, 1), torch.tensor([0, 1]), negatives=256)
    assert others.shape == (2, 3)
    assert torch.isfinite(mean_gbce(torch.zeros(1, 1), torch.zeros(1, 1), torch.tensor([0]), 256, 0.75))


def test_drawn_softmax_by_hand() -> None:
    """Two classes, one negative: with the target drawn nothing is left to lose, else the odds are corrected."""
    loss = DrawnSoftmax(torch.tensor([0.25, 0.75]), negatives=1)
    queries, classes = torch.tensor([[1.0]]), torch.tensor([[0.0], [math.log(2.0)]])
    actual = set()
    for seed in range(40):
        torch.manual_seed(seed)
        actual.add(round(float(loss(queries, classes, torch.tensor([0]))), 4))
    # e^0 = 1 against e^log 2 / 0.75 = 8/3
    assert actual == {0.0, round(math.log(1 + 8 / 3), 4)}


def test_drawn_softmax_comes_near_the_full_one() -> None:
    torch.manual_seed(0)
    queries, classes, target = torch.randn(50, 4), torch.randn(30, 4), torch.randint(30, (50,))
    chance = torch.rand(30) + 0.1
    actual = DrawnSoftmax(chance / chance.sum(), negatives=20_000)(queries, classes, target)
    assert_close(actual, mean_softmax(queries, classes, target), rtol=0.02, atol=0)


def test_mean_softmax() -> None:
    queries, classes, target = torch.randn(5, 4), torch.randn(9, 4), torch.randint(9, (5,))
    assert_close(mean_softmax(queries, classes, target), cross_entropy(queries @ classes.T, target))


def test_wrong_items_are_drawn_evenly_from_all_but_the_target() -> None:
    torch.manual_seed(0)
    drawn = other_items(tensor([0, 2, 4]), items=5, count=4000)
    for target, row in zip([0, 2, 4], drawn, strict=True):
        counts = torch.bincount(row, minlength=5)
        assert counts[target] == 0
        others = counts[torch.arange(5) != target]
        # 1000 expected for each of four, with a standard deviation of sqrt(4000 · 1/4 · 3/4) = 27
        assert (others - 1000).abs().max() < 5 * 27


def test_the_target_is_the_first_candidate() -> None:
    candidates = candidates_of(tensor([3, 1]), items=4, wrong=6)
    assert candidates.shape == (2, 7)
    assert candidates[:, 0].tolist() == [3, 1]
    assert not (candidates[:, 1:] == candidates[:, :1]).any()


def test_a_catalogue_of_one_item_has_no_other() -> None:
    assert other_items(tensor([0]), items=1, count=3).tolist() == [[0, 0, 0]]


def test_pointwise_loss_by_hand() -> None:
    scores = tensor([[0.0, math.log(3.0)]])  # σ = 1/2 for the right item, 3/4 for the wrong one
    assert_close(pointwise_loss(scores), tensor(-(math.log(1 / 2) + math.log(1 / 4)) / 2))


def test_softmax_loss_by_hand() -> None:
    scores = tensor([[math.log(2.0), 0.0, 0.0], [0.0, 0.0, 0.0]])  # the right item has 2/4, then 1/3
    assert_close(softmax_loss(scores), tensor(-(math.log(2 / 4) + math.log(1 / 3)) / 2))


def test_one_wrong_item_makes_it_bpr() -> None:
    right, wrong = torch.randn(9), torch.randn(9)
    expected = torch.nn.functional.softplus(wrong - right).mean()
    assert_close(softmax_loss(torch.stack([right, wrong], dim=1)), expected)
    assert_close(softmax_loss(torch.ones(4, 2)), tensor(math.log(2)))


def test_no_question_costs_nothing() -> None:
    nothing = torch.zeros(0, 5)
    assert pointwise_loss(nothing) == 0
    assert softmax_loss(nothing) == 0

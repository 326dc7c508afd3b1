"""Wrong items and what is asked of them, by hand."""

import math

import torch
from torch import tensor
from torch.testing import assert_close

from lightgc2n.layers.pairwise import candidates_of, other_items, pointwise_loss, softmax_loss


def test_wrong_items_are_drawn_evenly_from_all_but_the_target() -> None:
    torch.manual_seed(0)
    drawn = other_items(tensor([0, 2, 4]), items=5, count=4000)
    for target, row in zip([0, 2, 4], drawn, strict=True):
        counts = torch.bincount(row, minlength=5)
        assert counts[target] == 0
        others = counts[torch.arange(5) != target]
        # 1000 expected for each of four, with a standard deviation of sqrt(4000 · 1/4 · 3/4) = 27
        assert (others - 1000).abs().max() < 5 * 27


def test_the_right_item_stands_in_front() -> None:
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

"""The contrast of pairs: its ratio by hand, its slopes by small differences, and what it learns."""

import numpy as np
import pytest

from lightgc2n.people.contrast import gradients, learn_contrast, log_ratio, outputs


def test_the_ratio_by_hand() -> None:
    # Half the pairs of an account are one person's, 5 times as likely as strangers': odds (5 + 1) / 2 = 3.
    assert log_ratio(np.log([3.0]))[0] == pytest.approx(np.log(5))
    assert log_ratio(np.log([1.0]))[0] == pytest.approx(0)
    # A quarter are, and these are 9 times as likely: odds (9 + 3) / 4 = 3.
    assert log_ratio(np.log([3.0]), share=0.25)[0] == pytest.approx(np.log(9))
    assert log_ratio(np.log([0.1]))[0] == pytest.approx(np.log(0.02))  # as small as it gets


def test_outputs_by_hand() -> None:
    weights = (np.array([[1.0], [0.0]]), np.array([0.5]), np.array([2.0]), np.array([0.0, 3.0]), np.array([-1.0]))
    log_odds, hidden = outputs(np.array([[0.5, 2.0]]), weights)
    assert hidden[0, 0] == pytest.approx(np.tanh(1.0))
    assert log_odds[0] == pytest.approx(2 * np.tanh(1.0) + 6 - 1)


def test_slopes_are_those_of_the_loss() -> None:
    random = np.random.default_rng(0)
    rows, target = random.normal(size=(7, 3)), random.integers(2, size=7).astype(np.float64)
    weights = tuple(random.normal(size=shape) for shape in ((3, 4), 4, 4, 3, 1))

    def loss() -> float:
        chance = 1 / (1 + np.exp(-outputs(rows, weights)[0]))
        return float(-np.log(np.where(target == 1, chance, 1 - chance)).mean())

    for part, slope in zip(weights, gradients(rows, target, weights), strict=True):
        for place in np.ndindex(part.shape):
            plain = part[place]
            part[place] = plain + 1e-6
            above = loss()
            part[place] = plain - 1e-6
            below = loss()
            part[place] = plain
            assert slope[place] == pytest.approx((above - below) / 2e-6, abs=1e-7)


def test_known_odds_are_learned_whatever_the_share_of_pairs() -> None:
    # One feature, 1 in 60 % of the pairs of an account and in 20 % of the others: odds 3 and 1/2.
    random = np.random.default_rng(0)
    target = (np.arange(40_000) % 4 == 0).astype(np.float64)
    seen = (random.random(40_000) < np.where(target == 1, 0.6, 0.2)).astype(np.float64)
    contrast = learn_contrast(seen[:, None], target, random)
    assert np.exp(contrast.log_odds(np.array([[1.0], [0.0]]))) == pytest.approx([3, 0.5], rel=0.08)


def test_what_never_changed_says_nothing() -> None:
    random = np.random.default_rng(0)
    rows = np.column_stack([random.normal(size=400), np.full(400, 2.0)])
    contrast = learn_contrast(rows, np.arange(400) % 2.0, random)
    first, second = contrast.log_odds(np.array([[0.5, 2.0], [0.5, 9.0]]))
    assert first == second


def test_the_same_seed_learns_the_same() -> None:
    rows, target = np.random.default_rng(0).normal(size=(500, 3)), np.arange(500) % 2.0
    first, second = (learn_contrast(rows, target, np.random.default_rng(5)).log_odds(rows) for _ in range(2))
    assert np.array_equal(first, second)


@pytest.mark.parametrize("target", [np.ones(3), np.zeros(3), np.zeros(0)])
def test_without_both_kinds_it_says_nothing(target: np.ndarray) -> None:
    contrast = learn_contrast(np.ones((len(target), 2)), target, np.random.default_rng(0))
    assert contrast.log_odds(np.array([[1.0, 5.0]])).tolist() == [0]

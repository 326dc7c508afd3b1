"""Types of people by their hours as planted; weights against known probabilities and a slow gradient."""

import numpy as np
import pytest

from lightgc2n.people.habit_training import MOVED, RIDGE, hours_by_kind, moved, regression


def test_planted_kinds_are_found() -> None:
    random = np.random.default_rng(0)
    person = np.repeat(np.arange(120), 12)
    early = person % 3 == 0  # a third of all
    hour = np.where(early, 8, 20) + random.integers(-1, 2, size=len(person))
    hours, shares = hours_by_kind(person, hour, np.zeros_like(hour), random, kinds=2)
    order = hours[:, 0].argmax(axis=1).argsort()
    assert hours[order, 0].argmax(axis=1).tolist() == pytest.approx([8, 20], abs=1)
    assert np.exp(shares[order]) == pytest.approx([1 / 3, 2 / 3], abs=0.02)
    assert np.exp(hours).sum(axis=2) == pytest.approx(np.ones((2, 2)), abs=1e-6)


def test_hours_never_seen_on_a_kind_of_day_are_left_to_nobody() -> None:
    hours, _ = hours_by_kind(np.array([0, 0]), np.array([8, 9]), np.array([0, 0]), np.random.default_rng(0), kinds=1)
    assert np.isfinite(hours).all()
    assert hours[0, 1] == pytest.approx(np.full(24, -np.log(24)))  # nobody acted at a weekend: all hours are alike


def test_planted_weights_are_found() -> None:
    random = np.random.default_rng(0)
    features, wanted = random.normal(size=(4000, 4, 3)), np.array([2.0, 0.5, 0.0])
    features[::2, 3] = np.nan  # every second example has three choices
    scores = np.where(np.isnan(features[..., 0]), -np.inf, np.nan_to_num(features) @ wanted)
    target = (scores + random.gumbel(size=scores.shape)).argmax(axis=1)
    found = regression(features, target, np.ones(len(target)))
    assert found == pytest.approx(wanted, abs=0.1)


def test_the_regression_ends_where_its_gradient_is_nothing() -> None:
    random = np.random.default_rng(1)
    features, target, weight = random.normal(size=(30, 3, 2)), random.integers(0, 3, 30), random.random(30)
    found = regression(features, target, weight)
    spread, slope = features.std(axis=(0, 1)), np.zeros(2)
    for rows, right, heavy in zip(features, target.tolist(), weight / weight.sum(), strict=True):
        likely = np.exp(rows @ found) / np.exp(rows @ found).sum()
        slope += heavy * (rows[right] - likely @ rows)
    # Of standardised features, whose weights are found · spread.
    assert slope / spread - RIDGE * found * spread == pytest.approx(np.zeros(2), abs=1e-9)


def test_a_feature_that_is_always_the_same_has_no_weight() -> None:
    features = np.zeros((10, 2, 2))
    features[:, 0, 0] = 1.0
    assert regression(features, np.zeros(10, dtype=np.int64), np.ones(10))[1] == 0


def test_a_fifth_of_the_sessions_is_given_to_anyone() -> None:
    person = np.zeros(20_000, dtype=np.int64)
    found = moved(person, 4, np.random.default_rng(0))
    assert (found != person).mean() == pytest.approx(MOVED * 3 / 4, abs=0.01)

"""When people act: the calendar by hand, kinds of people as planted."""

import numpy as np
import pytest

from lightgc2n.people.habits import calendar, hours_by_kind
from lightgc2n.people.sessions import DAY, HOUR


def test_the_calendar_by_hand() -> None:
    # The first day of 1970 was a Thursday; half past six in the evening, then Saturday at midnight.
    hour, weekend, weekday = calendar(np.array([18.5 / 24, 2.0]))
    assert hour.tolist() == [18, 0]
    assert weekend.tolist() == [0, 1]
    assert weekday.tolist() == [3, 5]


def test_whole_hours_stay_themselves() -> None:
    begun = (19000 * DAY + np.arange(24) * HOUR) / DAY
    assert calendar(begun)[0].tolist() == list(range(24))


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

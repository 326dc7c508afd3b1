"""Profiles of a person, with numbers to redo by hand."""

import numpy as np
import pytest

from lightgc2n.people.sessions import DAY, HOUR
from lightgc2n.recommending.people_report import (
    TOO_FEW,
    activity,
    characteristic_items,
    describe,
    preferences,
)
from lightgc2n.recommending.results import Activity, Preference

ALIKE = (1 / 7,) * 7


def hours(**shares: float) -> tuple[float, ...]:
    return tuple(float(shares.get(f"h{hour}", 0)) for hour in range(24))


def test_characteristic_items_by_hand() -> None:
    """Everybody: 6, 1 and 0 events of three items, one more each: shares 7/10, 2/10, 1/10. The person has 6 events."""
    items, owner = np.array([0, 0, 1, 1, 2, 2]), np.zeros(6, dtype=np.int64)
    found = characteristic_items(items, owner, 0, np.array([6, 1, 0]), most=5)
    # Item 0: 2 of 4.2 expected, less than everybody. Item 1: 2 of 1.2. Item 2: 2 of 0.6, the most typical.
    assert [(one.item, one.events) for one in found] == [(2, 2), (1, 2)]
    assert [one.times for one in found] == pytest.approx([2 / 0.6, 2 / 1.2])
    assert characteristic_items(items, owner, 0, np.array([6, 1, 0]), most=1) == found[:1]


def test_one_event_is_not_a_trait() -> None:
    assert characteristic_items(np.array([0, 1]), np.zeros(2, dtype=np.int64), 0, np.array([9, 0]), most=5) == []


def test_a_trait_belongs_to_whom_it_is_listed_for() -> None:
    """Item 1: three events of A and two of B. It is typical of A alone."""
    items, owner = np.array([1, 1, 1, 1, 1, 0, 0]), np.array([0, 0, 0, 1, 1, 1, 1])
    popularity = np.array([5, 5, 90])
    assert [one.item for one in characteristic_items(items, owner, 0, popularity, most=5)] == [1]
    assert [one.item for one in characteristic_items(items, owner, 1, popularity, most=5)] == [0]


def test_what_two_people_have_equally_often_is_typical_of_neither() -> None:
    items, owner = np.array([1, 1, 1, 1, 0, 0]), np.array([0, 0, 1, 1, 1, 1])
    assert characteristic_items(items, owner, 0, np.array([5, 5]), most=5) == []


def test_nothing_is_typical_of_somebody_without_events() -> None:
    assert characteristic_items(np.array([0, 1]), np.zeros(2, dtype=np.int64), 1, np.array([1, 1]), most=5) == []
    assert describe(0, [], None) == TOO_FEW


def test_preferences_count_events() -> None:
    """Four events; the second item is of two categories, and music was had once."""
    found = preferences([("History",), ("History", "Crime"), ("Crime",), ("Music",)], most=3)
    assert found == [Preference("Crime", 2, 0.5), Preference("History", 2, 0.5)]
    assert preferences([], most=3) == []


@pytest.mark.parametrize(
    ("shares", "weekdays", "clock", "words"),
    [
        ({"History": 0.6}, (0, 0, 0, 0, 0.2, 0.4, 0.4), hours(h9=0.7, h20=0.3), "mostly history, weekend mornings"),
        ({"Crime": 0.4, "TV Movie": 0.3}, ALIKE, hours(h23=0.5, h3=0.5), "often crime and TV movie, nights"),
        ({"Crime": 0.3}, (0.2, 0.2, 0.2, 0.2, 0.2, 0, 0), hours(h18=1), "often crime, weekday evenings"),
        ({"Crime": 0.1}, (0.6, 0, 0, 0.4, 0, 0, 0), None, "a bit of everything, Mondays"),
        ({}, ALIKE, None, TOO_FEW),
    ],
)
def test_a_description_is_what_a_person_would_say(
    shares: dict[str, float], weekdays: tuple[float, ...], clock: tuple[float, ...] | None, words: str
) -> None:
    liked = [Preference(name, round(10 * share), share) for name, share in shares.items()]
    assert describe(10, liked, Activity(tuple(map(float, weekdays)), (), clock)) == words


def test_times_of_a_few_events_are_not_described() -> None:
    assert describe(3, [], Activity((1.0, *[0.0] * 6), (), None)) == TOO_FEW
    assert describe(4, [], Activity((1.0, *[0.0] * 6), (), None)) == "Mondays"


def test_activity_by_hand() -> None:
    """Thursday, 1 January 1970 at 9, and Monday, 2 February 1970 at 23, three times as likely the person's."""
    found = activity(np.array([9 * HOUR, 32 * DAY + 23 * HOUR]), np.array([0.25, 0.75]))
    assert found.weekdays == (0.75, 0, 0, 0.25, 0, 0, 0)
    assert found.months == (0.25, 0.75, *[0] * 10)
    assert found.hours == tuple({9: 0.25, 23: 0.75}.get(hour, 0) for hour in range(24))


def test_days_have_no_hours() -> None:
    assert activity(np.array([0, DAY]), np.ones(2)).hours is None

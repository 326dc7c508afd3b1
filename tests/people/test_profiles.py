"""What tells of a person, and when they act, with numbers to redo by hand."""

import numpy as np
import pytest

from lightgc2n.people.profiles import activity, characteristic_items
from lightgc2n.people.sessions import DAY, HOUR


def test_characteristic_items_by_hand() -> None:
    """Everybody: 6, 1 and 0 events of three items, one more each: shares 7/10, 2/10, 1/10. The person has 3 events."""
    items, weight = np.array([0, 0, 1, 2]), np.array([1.0, 0.5, 1.0, 0.5])
    found = characteristic_items(items, weight, np.array([6, 1, 0]), most=5)
    # Item 0: 1.5 of 2.1 expected, less than everybody. Item 1: 1 of 0.6, 1 log(1.67). Item 2: 0.5 of 0.3, half of that.
    assert [one.item for one in found] == [1, 2]
    assert [one.events for one in found] == [1.0, 0.5]
    assert [one.times for one in found] == pytest.approx([1 / 0.6, 0.5 / 0.3])
    assert characteristic_items(items, weight, np.array([6, 1, 0]), most=1) == found[:1]


def test_nothing_tells_of_somebody_without_events() -> None:
    assert characteristic_items(np.array([0, 1]), np.zeros(2), np.array([1, 1]), most=5) == []


def test_activity_by_hand() -> None:
    """Thursday, 1 January 1970 at 9, and Monday, 2 February 1970 at 23, three times as likely the person's."""
    found = activity(np.array([9 * HOUR, 32 * DAY + 23 * HOUR]), np.array([0.25, 0.75]))
    assert found.weekdays == (0.75, 0, 0, 0.25, 0, 0, 0)
    assert found.months == (0.25, 0.75, *[0] * 10)
    assert found.hours == tuple({9: 0.25, 23: 0.75}.get(hour, 0) for hour in range(24))


def test_days_have_no_hours() -> None:
    assert activity(np.array([0, DAY]), np.ones(2)).hours is None

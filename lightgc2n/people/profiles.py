"""What a person is like, by their own events: the items that tell most of them, and when they act."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lightgc2n.data.dataset import Ints, Longs
from lightgc2n.people.session_points import Floats
from lightgc2n.people.sessions import clock, has_hours


class Telling(NamedTuple):
    """An item that a person has more often than everybody has."""

    item: int
    events: float  # how many of the person's events it is; the sum of their shares
    times: float  # how many times as often as with everybody


@dataclass(frozen=True)
class Activity:
    """When a person acts: shares that sum to one, by the clock of the log."""

    weekdays: tuple[float, ...]  # from Monday
    months: tuple[float, ...]  # from January
    hours: tuple[float, ...] | None  # from midnight; none where times are whole days


def telling_items(items: Ints | Longs, weight: Floats, popularity: Longs, most: int) -> list[Telling]:
    """The items with the largest n log(n / expected): n with the person, expected if they were like everybody.

    Args:
        weight: how likely each event is the person's.
        popularity: training events of each item of the catalogue.
    """
    had = np.bincount(items, weight, len(popularity))
    # One event more for everything, so that what training never shows is rare and not impossible.
    expected = max(float(had.sum()), 1e-9) * (popularity + 1) / (popularity.sum() + len(popularity))
    times = had / expected
    value = had * np.log(np.maximum(times, 1.0))
    best = np.argsort(-value, kind="stable")[:most]
    return [Telling(item, float(had[item]), float(times[item])) for item in best.tolist() if value[item] > 0]


def activity(times: Longs, weight: Floats) -> Activity:
    """When events happen, each counting by its weight.

    Args:
        times: microseconds since 1970.
    """
    weekday, hour = clock(times)
    month = times.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64) % 12
    return Activity(
        weekdays=_shares(weekday, weight, 7),
        months=_shares(month, weight, 12),
        hours=_shares(hour, weight, 24) if has_hours(times) else None,
    )


def _shares(part: Longs, weight: Floats, parts: int) -> tuple[float, ...]:
    found = np.bincount(part, weight, parts)
    return tuple((found / max(float(found.sum()), 1e-9)).tolist())

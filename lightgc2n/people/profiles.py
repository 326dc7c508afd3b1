"""Profiles of a person: the most characteristic items, and the times of activity."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lightgc2n.data.dataset import Ints, Longs
from lightgc2n.people.sessions import Floats, clock, has_hours


class CharacteristicItem(NamedTuple):
    """An item that a person has more often than the average account."""

    item: int
    events: float  # expected number of the person's events with this item; the sum of their shares
    times: float  # ratio to the average frequency


@dataclass(frozen=True)
class Activity:
    """Distribution of a person's events over time, by the clock of the log; each sums to one."""

    weekdays: tuple[float, ...]  # from Monday
    months: tuple[float, ...]  # from January
    hours: tuple[float, ...] | None  # from midnight; None if times are whole days


def characteristic_items(items: Ints | Longs, weight: Floats, popularity: Longs, most: int) -> list[CharacteristicItem]:
    """Return the items with the largest n log(n / expected): n of the person, expected at average frequency.

    Args:
        weight: probability that each event is the person's.
        popularity: training events of each item of the catalogue.
    """
    counts = np.bincount(items, weight, len(popularity))
    # Add-one smoothing: an item without training events is rare, not impossible.
    expected = max(float(counts.sum()), 1e-9) * (popularity + 1) / (popularity.sum() + len(popularity))
    times = counts / expected
    value = counts * np.log(np.maximum(times, 1.0))
    best = np.argsort(-value, kind="stable")[:most]
    return [
        CharacteristicItem(item, float(counts[item]), float(times[item])) for item in best.tolist() if value[item] > 0
    ]


def activity(times: Longs, weight: Floats) -> Activity:
    """Return the distribution of events over time, weighted.

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
    counts = np.bincount(part, weight, parts)
    return tuple((counts / max(float(counts.sum()), 1e-9)).tolist())

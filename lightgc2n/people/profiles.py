"""Profiles of a person: characteristic items, preferred categories, times of activity, and a short description."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lightgc2n.data.dataset import Ints, Longs
from lightgc2n.people.sessions import WEEKEND, Floats, clock, has_hours

LEAST_EVENTS = 2  # with an item or a category before it is called typical of a person
LEAST_TIMED = 4  # events before a person's usual times are described
MAIN_SHARE = 0.5  # of the events, from which one category or one part of the day describes a person
SECOND_SHARE = 0.2  # of the events, from which a second category is named as well
WEEKEND_SHARE, WEEKDAY_SHARE = 0.6, 0.9  # of the events; two days in seven are 0.29
DAY_SHARE = 0.4  # of the events on one weekday
PARTS_OF_DAY = (("mornings", 5, 11), ("afternoons", 11, 17), ("evenings", 17, 22), ("nights", 22, 29))
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
TOO_FEW = "too few events to describe"


class CharacteristicItem(NamedTuple):
    """An item that a person has more often than the average account."""

    item: int
    events: int  # events of the person with this item
    times: float  # ratio to the average frequency


class Preference(NamedTuple):
    """A category, or a domain, that a person has at least twice."""

    name: str
    events: int
    share: float  # of the person's events


@dataclass(frozen=True)
class Activity:
    """Distribution of a person's events over time, by the clock of the log; each sums to one."""

    weekdays: tuple[float, ...]  # from Monday
    months: tuple[float, ...]  # from January
    hours: tuple[float, ...] | None  # from midnight; None if times are whole days


def characteristic_items(
    items: Ints | Longs, owner: Longs, person: int, popularity: Longs, most: int
) -> list[CharacteristicItem]:
    """Return the items with the largest n log(n / expected): n of the person, expected at average frequency.

    The person has each of them at least twice, and nobody else of the account has it more often.

    Args:
        owner: the most probable person of each event.
        popularity: training events of each item of the catalogue.
    """
    counts = np.bincount(items[owner == person], minlength=len(popularity))
    others = [np.bincount(items[owner == one], minlength=len(popularity)) for one in set(owner.tolist()) - {person}]
    typical = (counts >= LEAST_EVENTS) & (counts >= np.max([*others, np.zeros_like(counts)], axis=0))
    # Add-one smoothing: an item without training events is rare, not impossible.
    expected = max(int(counts.sum()), 1) * (popularity + 1) / (popularity.sum() + len(popularity))
    times = counts / expected
    value = np.where(typical, counts * np.log(np.maximum(times, 1.0)), 0.0)
    best = np.argsort(-value, kind="stable")[:most]
    return [
        CharacteristicItem(item, int(counts[item]), float(times[item])) for item in best.tolist() if value[item] > 0
    ]


def preferences(categories: Sequence[Sequence[str]], most: int) -> list[Preference]:
    """Return the most frequent categories of a person's events.

    Args:
        categories: of each event; an item may have several.
    """
    counts = Counter(name for names in categories for name in set(names))
    order = sorted(counts, key=lambda name: (-counts[name], name))
    frequent = [name for name in order if counts[name] >= LEAST_EVENTS]
    return [Preference(name, counts[name], counts[name] / len(categories)) for name in frequent[:most]]


def describe(events: int, preferred: Sequence[Preference], active: Activity | None) -> str:
    """Return a short description of a person, such as "mostly history, weekend mornings"."""
    tastes = _tastes(preferred)
    times = _usual_times(active) if active is not None and events >= LEAST_TIMED else None
    return ", ".join(part for part in (tastes, times) if part) or TOO_FEW


def _tastes(preferred: Sequence[Preference]) -> str | None:
    if not preferred:
        return None
    names = [_within_sentence(one.name) for one in preferred]
    first, *others = preferred
    if first.share >= MAIN_SHARE:
        return f"mostly {names[0]}"
    if others and others[0].share >= SECOND_SHARE:
        return f"often {names[0]} and {names[1]}"
    return f"often {names[0]}" if first.share >= SECOND_SHARE else "a bit of everything"


def _within_sentence(name: str) -> str:
    """A category in lower case, except words in capitals such as TV."""
    return " ".join(word if word.isupper() else word.lower() for word in name.split())


def _usual_times(active: Activity) -> str | None:
    weekend = sum(active.weekdays[WEEKEND:])
    day = max(range(7), key=lambda one: active.weekdays[one])
    if weekend >= WEEKEND_SHARE:
        days = "weekend"
    elif weekend <= 1 - WEEKDAY_SHARE and active.weekdays[day] < DAY_SHARE:
        days = "weekday"
    else:
        days = DAYS[day] if active.weekdays[day] >= DAY_SHARE else ""
    part = _part_of_day(active.hours) if active.hours is not None else None
    if part:
        return f"{days} {part}".strip()
    return f"{days}s" if days else None


def _part_of_day(hours: Sequence[float]) -> str | None:
    """The part of the day with at least half of the events, if there is one."""
    shares = {name: sum(hours[hour % 24] for hour in range(start, stop)) for name, start, stop in PARTS_OF_DAY}
    name = max(shares, key=lambda one: shares[one])
    return name if shares[name] >= MAIN_SHARE else None


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

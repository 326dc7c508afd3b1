"""Logs that people are estimated from, their sessions, which of them are compared, and sessions as points.

Events separated by less than a gap are one session, which nearly always belongs to one person.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import MICROSECONDS, Ints, Longs
from lightgc2n.data.split_types import Training, ranges

HOUR = 3600 * MICROSECONDS
DAY = 24 * HOUR
Matrix = npt.NDArray[np.float32]
Floats = npt.NDArray[np.floating[Any]]
CELLS_AT_ONCE = 2_000_000
WEEKEND = 5  # Saturday, counted from Monday


def session_numbers(offsets: Longs, times: Longs | None, gap: int | None = None) -> Longs:
    """Return the session id of each event, numbered over all accounts.

    Without times every event is its own session.

    Args:
        offsets: account a holds the events offsets[a] to offsets[a + 1], oldest first.
        gap: microseconds; a longer pause starts a new session. None: `usual_gap`.
    """
    if times is None:
        return np.arange(offsets[-1])
    gap = usual_gap(times) if gap is None else gap
    begins = np.ones(len(times), dtype=bool)
    begins[1:] = np.diff(times) > gap
    begins[offsets[:-1][np.diff(offsets) > 0]] = True
    return np.cumsum(begins) - 1


def newest_sessions(session: Longs, most: int) -> slice:
    """Return the slice of the events in the newest sessions of one account, at most `most` sessions.

    Args:
        session: session id of each event, from 0.
    """
    first = 0 if not len(session) else int(session[-1]) + 1 - most
    return slice(int(np.searchsorted(session, first)) if first > 0 else 0, len(session))


def usual_gap(times: Longs) -> int:
    """Return one hour, or 0 if times are whole days, so that each day is a session."""
    return HOUR if has_hours(times) else 0


def clock(times: Longs) -> tuple[Longs, Longs]:
    """Return the weekday (0 is Monday) and the hour of times in microseconds since 1970."""
    return (times // DAY + 3) % 7, times % DAY // HOUR  # the first day of 1970 was a Thursday


def has_hours(times: Longs) -> bool:
    """Return whether times have hours, not only dates."""
    return bool((np.asarray(times) % DAY != 0).any())


@dataclass(frozen=True)
class Logs:
    """The input of a method: whole logs of A accounts, and a vector for each item. It has no field for labels."""

    offsets: Longs  # account a holds the events offsets[a] to offsets[a + 1], oldest first
    items: Ints
    times: Longs | None
    vectors: Matrix
    gap: int | None = None  # microseconds; a longer pause starts a new session (None: the default)
    training: "Logs | None" = None  # training events of all accounts, to learn from (None: these logs)
    row: Longs | None = None  # the row of each account in `training`
    units: Longs | None = None  # the session of each event, if times do not determine it

    @classmethod
    def of_training(cls, train: Training, vectors: Matrix | None = None, gap: int | None = None) -> "Logs":
        """Return one log for each account of the dataset, empty where training has no event of it."""
        order = np.argsort(train.sequence_accounts, kind="stable")
        places, bounds = ranges(train.offsets[order], train.offsets[order + 1])
        events = np.bincount(train.sequence_accounts[order], np.diff(bounds), train.accounts).astype(np.int64)
        times = None if train.times is None else train.times[places]
        none = np.zeros((train.items, 0), dtype=np.float32)
        return cls(
            np.concatenate([[0], np.cumsum(events)]),
            train.events[places],
            times,
            none if vectors is None else vectors,
            gap,
        )

    @property
    def accounts(self) -> int:
        return len(self.offsets) - 1

    def of_accounts(self, accounts: Longs) -> "Logs":
        """Return the logs of these accounts, in this order."""
        places, offsets = ranges(self.offsets[accounts], self.offsets[accounts + 1])
        times = None if self.times is None else self.times[places]
        return Logs(offsets, self.items[places], times, self.vectors, self.gap)

    @cached_property
    def account(self) -> Longs:
        """The account of each event."""
        return np.repeat(np.arange(self.accounts), np.diff(self.offsets))

    @cached_property
    def session(self) -> Longs:
        """The session of each event, numbered over all accounts."""
        return session_numbers(self.offsets, self.times, self.gap) if self.units is None else self.units

    @cached_property
    def event(self) -> Longs:
        """A unit of its own for each event."""
        return np.arange(self.offsets[-1])


@dataclass(frozen=True)
class Points:
    """The points of B accounts, padded on the right to N."""

    vectors: Matrix  # [B, N, W], 0 for padding
    known: npt.NDArray[np.bool_]  # [B, N]


def tastes(logs: Logs, unit: Longs) -> Matrix:
    """Return the mean item vector of each unit (session or event)."""
    return unit_means(logs.vectors[logs.items], unit).astype(np.float32)


def unit_means(values: Floats, unit: Longs) -> Floats:
    """Return the mean of each unit's event values [E, W]."""
    starts = np.flatnonzero(np.diff(unit, prepend=-1))
    sizes = np.diff(np.append(starts, len(unit)))
    return np.add.reduceat(values, starts, dtype=np.float64) / sizes[:, None]


def hours(logs: Logs, unit: Longs) -> Matrix:
    """Return when each unit began: the hour on a circle, and a weekend flag."""
    assert logs.times is not None
    begun = logs.times[np.flatnonzero(np.diff(unit, prepend=-1))]
    angle = 2 * np.pi * (begun % DAY) / (24 * HOUR)
    weekday, _ = clock(begun)
    return np.column_stack([np.cos(angle), np.sin(angle), weekday >= WEEKEND]).astype(np.float32)


def dates(logs: Logs, unit: Longs) -> Matrix:
    """Return the date of each unit, standardised within the account."""
    assert logs.times is not None
    starts = np.flatnonzero(np.diff(unit, prepend=-1))
    owner, begun = logs.account[starts], (logs.times[starts] - logs.times.min()) / DAY
    units = np.maximum(np.bincount(owner, minlength=logs.accounts), 1)
    centred = begun - (np.bincount(owner, begun, logs.accounts) / units)[owner]
    spread = np.sqrt(np.bincount(owner, centred**2, logs.accounts) / units)[owner]
    return (centred / np.where(spread > 0, spread, 1.0))[:, None].astype(np.float32)


def account_points(features: Matrix, owner: Longs, accounts: int) -> Iterator[tuple[Longs, Longs, Points]]:
    """Yield batches of accounts of similar size: their numbers, the positions of their features, and the points.

    Args:
        owner: the account of each feature; features of one account are contiguous.
    """
    stops = np.searchsorted(owner, np.arange(accounts), side="right")
    sizes = np.diff(stops, prepend=0)
    order = np.argsort(-sizes, kind="stable")
    order = order[sizes[order] > 0]
    first = 0
    while first < len(order):
        widest = int(sizes[order[first]])
        rows = order[first : first + max(1, CELLS_AT_ONCE // (widest * max(widest, features.shape[1])))]
        known = np.arange(widest) < sizes[rows, None]
        places = np.where(known, (stops - sizes)[rows, None] + np.arange(widest), 0)
        yield rows, places[known], Points(features[places] * known[..., None], known)
        first += len(rows)


LANDMARKS = 64  # of these, with which each further session is compared
PAIRS_AT_ONCE = 150_000  # pairs of sessions of the accounts that are computed together


def sampled(number: int, most: int) -> Longs:
    """Return the positions of the sessions to compare, oldest first: all of a short history.

    Of a long one the newest half of `most`, and the others at equal distances.
    """
    if number <= most:
        return np.arange(number)
    newest = most // 2
    return np.concatenate([spread(number - newest, most - newest), np.arange(number - newest, number)])


def landmarks(number: int) -> Longs:
    """Return positions at equal distances, at most LANDMARKS."""
    return spread(number, min(number, LANDMARKS))


def spread(number: int, chosen: int) -> Longs:
    """Return `chosen` of `number` positions at equal distances, the first among them."""
    return np.arange(chosen) * number // chosen


def equal_sizes(size: Longs, cells: int = PAIRS_AT_ONCE) -> Iterator[Longs]:
    """Yield the positions of equal sizes together, few enough that the squares of their sizes fit into `cells`."""
    order = np.argsort(size, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(size[order])) + 1):
        if len(group):
            step = max(1, cells // max(int(size[group[0]]) ** 2, 1))
            yield from (group[first : first + step] for first in range(0, len(group), step))

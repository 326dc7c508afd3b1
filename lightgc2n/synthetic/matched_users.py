"""Households of users who were active in the same period, or whose households have equally long logs.

Users merged at random were active in different months, and more users make a longer log: dates separate them and the
length predicts their number. Neither holds for people who live together. Overlapping spans are not enough: within the
same span one user may act in spring and another in autumn, so bursts have to match too.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Ints, Longs

TRIES = 20  # members drawn for one household before it is given up
AHEAD = 0.4  # largest difference, at any time, of the shares of their events that two members have completed
INSTANTS = 256  # at which these shares are compared
TOLERANCE = 1.25  # a balanced member has at most this many times too many or too few events
Bools = npt.NDArray[np.bool_]
Random = np.random.Generator


@dataclass(frozen=True)
class Activity:
    """When each user was active, and how much."""

    first: Longs  # time of the first event
    last: Longs  # time of the last event
    events: Longs
    done: npt.NDArray[np.float32]  # share of the events of each user by each of some instants [U, INSTANTS]

    @classmethod
    def of(cls, account: Ints, times: Longs, accounts: int) -> "Activity":
        """Return the activity of all accounts.

        Args:
            account, times: of each event.
        """
        first = np.full(accounts, np.iinfo(np.int64).max)
        last = np.full(accounts, np.iinfo(np.int64).min)
        np.minimum.at(first, account, times)
        np.maximum.at(last, account, times)
        events = np.bincount(account, minlength=accounts)
        instants = np.quantile(times, np.arange(1, INSTANTS) / INSTANTS, method="nearest")
        cells = account * INSTANTS + np.searchsorted(instants, times)
        by_instant = np.bincount(cells, minlength=accounts * INSTANTS).reshape(accounts, INSTANTS)
        done = (np.cumsum(by_instant, axis=1) / np.maximum(events, 1)[:, None]).astype(np.float32)
        return cls(np.where(events > 0, first, 0), np.where(events > 0, last, 0), events, done)

    @cached_property
    def _together(self) -> dict[tuple[int, float], npt.NDArray[np.uint8]]:
        return {}

    def together(self, user: int, overlap: float) -> Bools:
        """Return who was active with `user`: their spans overlap enough, and neither is ever far ahead."""
        if (user, overlap) not in self._together:
            fitting = self.overlap(user) >= overlap
            if overlap > 0:
                fitting[fitting] = np.abs(self.done[fitting] - self.done[user]).max(axis=1) <= AHEAD
            self._together[user, overlap] = np.packbits(fitting)
        return np.unpackbits(self._together[user, overlap], count=len(self.events)).astype(bool)

    def overlap(self, user: int) -> npt.NDArray[np.float64]:
        """Return the intersection over union of the span of `user` and of every user's; 1 for two equal instants."""
        shared = np.minimum(self.last, self.last[user]) - np.maximum(self.first, self.first[user])
        together = np.maximum(self.last, self.last[user]) - np.minimum(self.first, self.first[user])
        return np.where(together > 0, np.maximum(shared, 0) / np.maximum(together, 1), 1.0)


def overlapping_households(
    activity: Activity, enough: Bools, sizes: tuple[int, int], overlap: float, random: Random
) -> Ints:
    """Return the household of each user, -1 for none; every two members overlap by at least `overlap`, bursts included.

    Args:
        enough: the users with enough events.
        sizes: the smallest and the largest household; all sizes are equally likely.
    """
    household, free, number = np.full(len(enough), -1, dtype=np.int32), enough.copy(), 0
    size = int(random.integers(sizes[0], sizes[1] + 1))
    for user in random.permutation(np.flatnonzero(enough)).tolist():
        members = _members(activity, free, user, size, overlap, random) if free[user] else None
        if members is not None:
            household[members], free[members] = number, False
            number, size = number + 1, int(random.integers(sizes[0], sizes[1] + 1))
    return household


def balanced_households(
    activity: Activity, enough: Bools, sizes: tuple[int, int], overlap: float, random: Random
) -> Ints:
    """Return the household of each user, -1 for none; households of every size have equally long logs.

    For each total number of events, one household of every size is made, whose members have similar numbers of events,
    or none.
    """
    household, free, number = np.full(len(enough), -1, dtype=np.int32), enough.copy(), 0
    least = int(activity.events[enough].min(initial=np.iinfo(np.int32).max)) * sizes[1]
    totals = activity.events[enough & (activity.events >= least) & (activity.events <= 2 * least)]
    for total in random.permutation(totals).tolist():
        remaining, made = free.copy(), []
        for size in range(sizes[1], sizes[0] - 1, -1):
            members = _balanced_members(activity, remaining, size, total, overlap, random)
            if members is None:
                break
            remaining[members] = False
            made.append(members)
        else:
            free = remaining
            for place, members in enumerate(made[i] for i in random.permutation(len(made))):
                household[members] = number + place
            number += len(made)
    return household


def _balanced_members(
    activity: Activity, free: Bools, size: int, total: int, overlap: float, random: Random
) -> list[int] | None:
    near = np.abs(np.log(activity.events * (size / total), where=activity.events > 0, out=np.full(len(free), np.inf)))
    fitting = free & (near <= np.log(TOLERANCE))
    for user in random.permutation(np.flatnonzero(fitting))[:TRIES].tolist():
        if (members := _members(activity, fitting, user, size, overlap, random)) is not None:
            return members
    return None


def _members(activity: Activity, free: Bools, user: int, size: int, overlap: float, random: Random) -> list[int] | None:
    """Return `user` and other free users, every two of whom overlap enough; None if they were not found."""
    for _ in range(TRIES):
        members, fitting = [user], free.copy()
        while len(members) < size:
            fitting &= activity.together(members[-1], overlap)
            fitting[members[-1]] = False
            if not fitting.any():
                break
            members.append(int(random.choice(np.flatnonzero(fitting))))
        else:
            return members
        if len(members) == 1:
            return None  # nobody overlaps with the first user
    return None

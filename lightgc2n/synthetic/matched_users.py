"""Households of users who were active in the same period, or whose households have equally long logs.

Users merged at random were active in different months, and more of them make a longer log: dates tell them apart and
length tells how many they are, neither of which holds for people who live together.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Ints, Longs

TRIES = 20  # members drawn for one household before its first user, or its total, is given up
TOLERANCE = 1.25  # a balanced member has at most this many times too many or too few events
Bools = npt.NDArray[np.bool_]
Random = np.random.Generator


@dataclass(frozen=True)
class Activity:
    """When each user was active, and how much."""

    first: Longs  # time of the first event
    last: Longs  # time of the last event
    events: Longs

    def overlap(self, user: int) -> npt.NDArray[np.float64]:
        """Return the intersection over union of the span of `user` and of every user's; 1 for two equal instants."""
        shared = np.minimum(self.last, self.last[user]) - np.maximum(self.first, self.first[user])
        together = np.maximum(self.last, self.last[user]) - np.minimum(self.first, self.first[user])
        return np.where(together > 0, np.maximum(shared, 0) / np.maximum(together, 1), 1.0)


def overlapping_households(
    activity: Activity, enough: Bools, sizes: tuple[int, int], overlap: float, random: Random
) -> Ints:
    """Return the household of each user, -1 for none; every two members overlap by at least `overlap`.

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
            fitting &= activity.overlap(members[-1]) >= overlap
            fitting[members[-1]] = False
            if not fitting.any():
                break
            members.append(int(random.choice(np.flatnonzero(fitting))))
        else:
            return members
        if len(members) == 1:
            return None  # nobody overlaps with the first user
    return None

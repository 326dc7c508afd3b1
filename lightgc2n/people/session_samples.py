"""Which sessions of a long history are compared pair by pair, and which accounts are computed together."""

from collections.abc import Iterator

import numpy as np

from lightgc2n.data.dataset import Longs

LANDMARKS = 64  # of these, with which each further session is compared
CELLS_AT_ONCE = 150_000  # pairs of sessions of the accounts that are computed together


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


def equal_sizes(size: Longs, cells: int = CELLS_AT_ONCE) -> Iterator[Longs]:
    """Yield the positions of equal sizes together, few enough that the squares of their sizes fit into `cells`."""
    order = np.argsort(size, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(size[order])) + 1):
        if len(group):
            step = max(1, cells // max(int(size[group[0]]) ** 2, 1))
            yield from (group[first : first + step] for first in range(0, len(group), step))

"""Recall for each member of an account, where it is known who acted.

Shapes: A accounts, T true people.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Longs
from lightgc2n.metrics.ranking import Floats


def least_served(hits: npt.NDArray[Any], of: npt.NDArray[Any]) -> Floats:
    """The smallest ratio hits / of among the people of each account; people with `of` 0 are left out, [A, T] -> [A]."""
    return np.where(of > 0, hits / np.maximum(of, 1), np.inf).min(axis=1)


@dataclass(frozen=True)
class Served:
    """Recall for the least served member of each account, and for the members with fewer targets."""

    account: Longs
    least: Floats  # the lowest recall among the members that have targets
    smaller_hits: Floats  # of the members with fewer targets than another member of the account
    smaller_targets: Longs

    @property
    def smaller(self) -> float:
        """Recall over all targets of the smaller members."""
        return float(self.smaller_hits.sum() / max(self.smaller_targets.sum(), 1))


def measure_served(hits: npt.NDArray[np.bool_], account: Longs, member: Longs) -> Served:
    """Recall by true member.

    Args:
        hits: for each query whether its target is in the list.
        member: the person who acted; -1 where unknown, and such queries are ignored.
    """
    known = member >= 0
    accounts, row = np.unique(account[known], return_inverse=True)
    person = number_within_rows(row, member[known])
    people = int(person.max(initial=0)) + 1
    cell, size = row * people + person, len(accounts) * people
    targets = np.bincount(cell, minlength=size).reshape(-1, people)
    hit = np.bincount(cell, hits[known], size).reshape(-1, people)
    small = targets < targets.max(axis=1, keepdims=True)
    return Served(accounts, least_served(hit, targets), (hit * small).sum(axis=1), (targets * small).sum(axis=1))


def number_within_rows(row: Longs, label: Longs) -> Longs:
    """The labels renumbered from 0 within each row."""
    _, label = np.unique(label, return_inverse=True)
    size = int(label.max(initial=0)) + 1
    pairs, place = np.unique(row * size + label, return_inverse=True)
    first = np.searchsorted(pairs // size, np.arange(int(row.max(initial=-1)) + 1))
    return place - first[row]

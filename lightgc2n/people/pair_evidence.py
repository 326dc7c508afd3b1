"""Evidence by contrast: what tells sessions of one account from those of strangers is learned from training logs, then
asked of every pair of sessions within an account.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from lightgc2n.data.dataset import Longs
from lightgc2n.people.contrast import Contrast, learn_contrast, log_ratio
from lightgc2n.people.session_features import FOLDS, ItemTables, Sessions, describe, item_tables, pair_features
from lightgc2n.people.session_points import Floats, Logs
from lightgc2n.people.sessions import DAY, usual_gap

PAIRS = 400_000  # of each kind to learn from, at most
PAIRS_AT_ONCE = 8192


@dataclass(frozen=True)
class Learned:
    """All that training logs taught."""

    fold: Longs  # of each account of the training logs
    tables: ItemTables
    centre: Floats  # of each trait
    spread: Floats
    contrast: Contrast

    def described(self, logs: Logs, fold: Longs) -> Sessions:
        """The sessions of logs, each account by the tables of its fold, traits in training spreads."""
        sessions = describe(logs, self.tables, fold)
        return replace(sessions, traits=(sessions.traits - self.centre) / self.spread)


def learn(training: Logs, random: np.random.Generator, pairs: int = PAIRS) -> Learned:
    """Tables of items and the contrast of pairs, from training logs that say nothing of people."""
    fold = random.permutation(training.accounts) % FOLDS
    tables = item_tables(training, fold)
    sessions = describe(training, tables, fold)
    centre, spread = sessions.traits.mean(axis=0), sessions.traits.std(axis=0) + 1e-9
    sessions = replace(sessions, traits=(sessions.traits - centre) / spread)
    inside = pairs_inside(sessions, pairs, random)
    across = pairs_across(sessions, fold, gap_in_days(training), len(inside[0]), random)
    one, other = (np.concatenate(sides) for sides in zip(inside, across, strict=True))
    features = pair_features(sessions, one, other)
    target = np.repeat([1.0, 0.0], [len(inside[0]), len(across[0])])
    return Learned(fold, tables, centre, spread, learn_contrast(features, target, random))


def pairs_inside(sessions: Sessions, most: int, random: np.random.Generator) -> tuple[Longs, Longs]:
    """Pairs of different sessions of one account, each account as often as another."""
    start, stop = (np.searchsorted(sessions.owner, sessions.owner, side=side) for side in ("left", "right"))
    number = stop - start
    chance = np.where(number > 1, 1 / number, 0)  # of a session, so that accounts come equally often
    if not chance.any():
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    drawn = min(most, int((number - 1).sum()))
    one = random.choice(len(number), size=drawn, p=chance / chance.sum())
    step = 1 + (random.random(drawn) * (number[one] - 1)).astype(np.int64)
    return one, start[one] + (one - start[one] + step) % number[one]


def pairs_across(
    sessions: Sessions, fold: Longs, gap: float | None, most: int, random: np.random.Generator
) -> tuple[Longs, Longs]:
    """Pairs of sessions of two accounts that the same tables describe.

    Args:
        gap: days; sessions of one account are never nearer, so pairs that are would give themselves away.
    """
    session_fold = fold[sessions.owner]
    number = np.bincount(sessions.owner)[sessions.owner]
    one, other = [], []
    for part in range(FOLDS):
        places = np.flatnonzero(session_fold == part)
        if len(places):
            drawn = round(most * len(places) / len(number))
            chance = 1 / number[places]
            sides = random.choice(places, size=(2, drawn), p=chance / chance.sum())
            one.append(sides[0])
            other.append(sides[1])
    left, right = np.concatenate(one), np.concatenate(other)
    kept = sessions.owner[left] != sessions.owner[right]
    if sessions.begun is not None and gap is not None:
        kept &= np.abs(sessions.begun[left] - sessions.begun[right]) > gap
    return left[kept], right[kept]


def gap_in_days(logs: Logs) -> float | None:
    """The pause that ends a session."""
    if logs.times is None:
        return None
    return (usual_gap(logs.times) if logs.gap is None else logs.gap) / DAY


def account_sessions(sessions: Sessions) -> Iterator[tuple[int, Longs]]:
    """Each account, and the places of its sessions."""
    start = np.flatnonzero(np.diff(sessions.owner, prepend=-1))
    places = np.split(np.arange(len(sessions.owner)), start[1:])
    return zip(sessions.owner[start].tolist(), places, strict=True)


def evidence(sessions: Sessions, contrast: Contrast, places: Longs) -> Floats:
    """log(p_same / p_other) of every pair of the sessions at these places, 0 on the diagonal."""
    one, other = np.triu_indices(len(places), 1)
    found = np.zeros((len(places), len(places)))
    found[one, other] = found[other, one] = pair_evidence(sessions, contrast, places[one], places[other])
    return found


def pair_evidence(sessions: Sessions, contrast: Contrast, one: Longs, other: Longs) -> Floats:
    """log(p_same / p_other) of each pair, some at a time."""
    found = np.zeros(len(one))
    for first in range(0, len(one), PAIRS_AT_ONCE):
        part = slice(first, first + PAIRS_AT_ONCE)
        found[part] = log_ratio(contrast.log_odds(pair_features(sessions, one[part], other[part])))
    return found

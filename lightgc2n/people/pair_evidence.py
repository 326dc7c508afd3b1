"""Pairwise evidence: a contrast learned from training logs is applied to every pair of sessions of an account."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from lightgc2n.data.dataset import Longs
from lightgc2n.people.contrast import Contrast, learn_contrast, log_ratio
from lightgc2n.people.session_features import FOLDS, ItemTables, Sessions, describe, item_tables, pair_features
from lightgc2n.people.session_points import Floats, Logs
from lightgc2n.people.sessions import DAY, usual_gap

PAIRS = 400_000  # training pairs of each kind, at most
PAIRS_AT_ONCE = 8192


@dataclass(frozen=True)
class Learned:
    """Everything learned from the training logs."""

    fold: Longs  # of each training account
    tables: ItemTables
    centre: Floats  # mean of each trait
    spread: Floats
    contrast: Contrast

    def described(self, logs: Logs, fold: Longs) -> Sessions:
        """Describe the sessions of logs with the item tables of each account's fold and standardised traits."""
        sessions = describe(logs, self.tables, fold)
        return replace(sessions, traits=(sessions.traits - self.centre) / self.spread)


def learn(training: Logs, random: np.random.Generator, pairs: int = PAIRS) -> Learned:
    """Learn item tables and the contrast of pairs from training logs without member labels."""
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
    """Draw pairs of different sessions of one account; each account is equally frequent."""
    start, stop = (np.searchsorted(sessions.owner, sessions.owner, side=side) for side in ("left", "right"))
    number = stop - start
    chance = np.where(number > 1, 1 / number, 0)  # of a session, so that accounts are equally frequent
    if not chance.any():
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    drawn = min(most, int((number - 1).sum()))
    one = random.choice(len(number), size=drawn, p=chance / chance.sum())
    step = 1 + (random.random(drawn) * (number[one] - 1)).astype(np.int64)
    return one, start[one] + (one - start[one] + step) % number[one]


def pairs_across(
    sessions: Sessions, fold: Longs, gap: float | None, most: int, random: np.random.Generator
) -> tuple[Longs, Longs]:
    """Draw pairs of sessions of two accounts in the same fold.

    Args:
        gap: days; sessions of one account are never closer, so closer pairs would be trivial to recognise.
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
    valid = sessions.owner[left] != sessions.owner[right]
    if sessions.begun is not None and gap is not None:
        valid &= np.abs(sessions.begun[left] - sessions.begun[right]) > gap
    return left[valid], right[valid]


def gap_in_days(logs: Logs) -> float | None:
    """Return the pause that ends a session."""
    if logs.times is None:
        return None
    return (usual_gap(logs.times) if logs.gap is None else logs.gap) / DAY


def account_sessions(sessions: Sessions) -> Iterator[tuple[int, Longs]]:
    """Yield each account and the positions of its sessions."""
    start = np.flatnonzero(np.diff(sessions.owner, prepend=-1))
    places = np.split(np.arange(len(sessions.owner)), start[1:])
    return zip(sessions.owner[start].tolist(), places, strict=True)


def evidence(sessions: Sessions, contrast: Contrast, places: Longs) -> Floats:
    """Return log(p_same / p_other) of every pair of the sessions at these positions, 0 on the diagonal."""
    one, other = np.triu_indices(len(places), 1)
    matrix = np.zeros((len(places), len(places)))
    matrix[one, other] = matrix[other, one] = pair_evidence(sessions, contrast, places[one], places[other])
    return matrix


def pair_evidence(sessions: Sessions, contrast: Contrast, one: Longs, other: Longs) -> Floats:
    """Return log(p_same / p_other) of each pair, computed in blocks."""
    ratios = np.zeros(len(one))
    for first in range(0, len(one), PAIRS_AT_ONCE):
        part = slice(first, first + PAIRS_AT_ONCE)
        ratios[part] = log_ratio(contrast.log_odds(pair_features(sessions, one[part], other[part])))
    return ratios

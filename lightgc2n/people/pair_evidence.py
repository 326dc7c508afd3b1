"""Pairwise evidence, learned without labels: how much more likely two sessions are one person's than two people's.

Two sessions of two accounts are by two people. Two sessions of one account are by one person with probability `share`;
otherwise they are assumed to be as different as strangers: p_account = share p_same + (1 - share) p_other. A classifier
that separates pairs of one account from pairs of two gives odds = p_account / p_other, and hence

    p_same / p_other = 1 + (odds - 1) / share.

Shapes: P pairs, F features, H hidden units.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from lightgc2n.data.dataset import Longs
from lightgc2n.people.progress_hook import tracked
from lightgc2n.people.session_features import FOLDS, ItemTables, Sessions, describe, item_tables, pair_features
from lightgc2n.people.sessions import DAY, Floats, Logs, usual_gap
from lightgc2n.people.strangers import pairs_inside, pairs_of_strangers, share_of_any_time

SHARE = 0.5
LEAST_RATIO = 0.02  # lower bound: odds below 1 - share would have no logarithm
HIDDEN, EPOCHS, BATCH = 32, 8, 2048
RATE, DECAY = 4e-3, 1e-5
FARTHEST = 6  # standard deviations; features are clipped here
SMALLEST_SPREAD = 1e-6
Weights = tuple[Floats, ...]
PAIRS = 400_000  # training pairs of each kind, at most
PILOT_PAIRS = 100_000  # of each kind, from which it is learned what dates tell
MOST_EVENTS = 250_000  # of the accounts that sessions are learned from; items are learned from all
PAIRS_AT_ONCE = 8192


def log_ratio(log_odds: Floats, share: float = SHARE) -> Floats:
    """Return log(p_same / p_other) for the log odds that a pair is of one account."""
    return np.log(np.maximum(1 + np.expm1(log_odds) / share, LEAST_RATIO))


@dataclass(frozen=True)
class Contrast:
    """A small network: one hidden layer plus a linear skip connection."""

    centre: Floats  # [F]
    spread: Floats  # [F]
    weights: Weights  # [F, H], [H], [H], [F], [1]
    prior: float = 0.0  # log odds of pairs of one account in the training sample

    def log_odds(self, features: Floats) -> Floats:
        """Return the log odds that each pair [P, F] is of one account, for a balanced prior."""
        scaled = scale(features, self.centre, self.spread).astype(self.weights[0].dtype)
        return outputs(scaled, self.weights)[0] - self.prior

    def in_double(self) -> "Contrast":
        """Return the network in float64: slower, but reproducible across machines and languages."""
        return replace(self, weights=tuple(part.astype(np.float64) for part in self.weights))


def scale(features: Floats, centre: Floats, spread: Floats) -> Floats:
    """Standardise features and clip outliers."""
    return np.clip((features - centre) / spread, -FARTHEST, FARTHEST).astype(np.float32)


def outputs(rows: Floats, weights: Weights) -> tuple[Floats, Floats]:
    """Return the log odds of each row [P], and its hidden layer [P, H]."""
    inward, threshold, outward, straight, constant = weights
    hidden = np.tanh(rows @ inward + threshold)
    return hidden @ outward + rows @ straight + constant, hidden


def gradients(rows: Floats, target: Floats, weights: Weights) -> Weights:
    """Return the gradient of the mean cross-entropy for each weight."""
    log_odds, hidden = outputs(rows, weights)
    error = ((1 / (1 + np.exp(-log_odds)) - target) / len(rows)).astype(rows.dtype)
    inside = np.outer(error, weights[2]) * (1 - hidden**2)
    return rows.T @ inside, inside.sum(axis=0), hidden.T @ error, rows.T @ error, error.sum(keepdims=True)


def learn_contrast(features: Floats, target: Floats, random: np.random.Generator) -> Contrast:
    """Train the network to separate pairs of one account (1) from pairs of two (0); neutral if a class is missing."""
    width = features.shape[1]
    weights = tuple(
        part.astype(np.float32)
        for part in (
            random.normal(0, width**-0.5, (width, HIDDEN)),
            np.zeros(HIDDEN),
            np.zeros(HIDDEN),
            np.zeros(width),
            np.zeros(1),
        )
    )
    if not 0 < target.sum() < len(target):
        return Contrast(np.zeros(width), np.ones(width), weights)
    centre, spread = features.mean(axis=0), features.std(axis=0)
    spread = np.where(spread > SMALLEST_SPREAD, spread, np.inf)  # ignore constant features
    rows, share = scale(features, centre, spread), float(target.mean())
    return Contrast(centre, spread, _descend(rows, target, weights, random), float(np.log(share / (1 - share))))


def _descend(rows: Floats, target: Floats, weights: Weights, random: np.random.Generator) -> Weights:
    """Run Adam with a rate that decays to zero."""
    steps = -(-EPOCHS * len(rows) // BATCH)
    mean, square = ([np.zeros_like(part) for part in weights] for _ in range(2))
    for step in tracked("finding people: pairs of sessions", range(1, steps + 1)):
        drawn = random.integers(len(rows), size=BATCH)
        rate, moved = RATE * (1 - step / steps), []
        for place, slope in enumerate(gradients(rows[drawn], target[drawn], weights)):
            slope = slope + DECAY * weights[place]
            mean[place] = 0.9 * mean[place] + 0.1 * slope
            square[place] = 0.999 * square[place] + 0.001 * slope**2
            change = mean[place] / (1 - 0.9**step) / (np.sqrt(square[place] / (1 - 0.999**step)) + 1e-8)
            moved.append((weights[place] - rate * change).astype(np.float32))
        weights = tuple(moved)
    return weights


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
    accounts = learned_from(training, random)
    logs, fold_of = training.of_accounts(accounts), fold[accounts]
    sessions = describe(logs, tables, fold_of)
    centre, spread = sessions.traits.mean(axis=0), sessions.traits.std(axis=0) + 1e-9
    sessions = replace(sessions, traits=(sessions.traits - centre) / spread)
    contrast = _learned_contrast(sessions, fold_of, gap_in_days(training), pairs, random)
    return Learned(fold, tables, centre, spread, contrast)


def _learned_contrast(
    sessions: Sessions, fold: Longs, gap: float | None, pairs: int, random: np.random.Generator
) -> Contrast:
    """Learn the contrast of pairs; a first one from strangers of the same days says how much dates tell."""

    def learned(of_any_time: float, most: int, described: Sessions) -> Contrast:
        inside = pairs_inside(sessions, most, random)
        across = pairs_of_strangers(sessions, fold, gap, inside, of_any_time, random)
        one, other = (np.concatenate(sides) for sides in zip(inside, across, strict=True))
        target = np.repeat([1.0, 0.0], [len(inside[0]), len(across[0])])
        return learn_contrast(pair_features(described, one, other), target, random)

    if sessions.begun is None:
        return learned(1.0, pairs, sessions)
    plain = sessions.without_dates()
    pilot = learned(0.0, min(pairs, PILOT_PAIRS), plain)
    share = share_of_any_time(sessions, lambda places: evidence(plain, pilot, places), random)
    return learned(share, pairs, sessions)


def learned_from(training: Logs, random: np.random.Generator) -> Longs:
    """Return the accounts that sessions are learned from: all, or as many drawn ones as have MOST_EVENTS events."""
    if len(training.items) <= MOST_EVENTS:
        return np.arange(training.accounts)
    drawn = random.permutation(training.accounts)
    events = np.cumsum(np.diff(training.offsets)[drawn])
    return np.sort(drawn[: max(1, int(np.searchsorted(events, MOST_EVENTS)))])


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
    """Return log(p_same / p_other) of every pair of the sessions at these positions, 0 on the diagonal.

    Args:
        places: of the sessions of one account [N], or of several accounts with equally many [B, N].
    """
    number = places.shape[-1]
    one, other = np.triu_indices(number, 1)
    matrix = np.zeros((*places.shape, number))
    pairs = pair_evidence(sessions, contrast, places[..., one].ravel(), places[..., other].ravel())
    matrix[..., one, other] = matrix[..., other, one] = pairs.reshape(*places.shape[:-1], len(one))
    return matrix


def pair_evidence(sessions: Sessions, contrast: Contrast, one: Longs, other: Longs) -> Floats:
    """Return log(p_same / p_other) of each pair, computed in blocks."""
    ratios = np.zeros(len(one))
    for first in range(0, len(one), PAIRS_AT_ONCE):
        part = slice(first, first + PAIRS_AT_ONCE)
        ratios[part] = log_ratio(contrast.log_odds(pair_features(sessions, one[part], other[part])))
    return ratios

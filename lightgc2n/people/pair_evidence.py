"""Pairwise evidence, learned without labels: how much more likely two sessions are one person's than two people's.

Two sessions of two accounts are by two people. Two sessions of one account are by one person with probability `share`;
otherwise they are assumed to be as different as strangers: p_account = share p_same + (1 - share) p_other. A classifier
that separates pairs of one account from pairs of two gives odds = p_account / p_other, and hence

    p_same / p_other = 1 + (odds - 1) / share.

Strangers are drawn from any time, or from the same days. People of one account may come one after the other, so that
dates tell them apart, or be there all the time, as those who live together. Against strangers of any time dates are
evidence; against strangers of the same days they are not. The share of each follows from the logs: sessions that look
alike in all other ways are put together, and the two halves of an account are compared in time.

Shapes: S sessions, P pairs, N sessions of one account, B accounts, F features, H hidden units.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Longs
from lightgc2n.people.assigning import assign
from lightgc2n.people.session_features import FOLDS, ItemTables, Sessions, describe, item_tables, pair_features
from lightgc2n.people.sessions import DAY, Floats, Logs, equal_sizes, sampled, usual_gap
from lightgc2n.progress import tracked

SHARE = 0.5
LEAST_RATIO = 0.02  # lower bound: odds below 1 - share would have no logarithm
HIDDEN, EPOCHS, BATCH = 32, 8, 2048
RATE, DECAY = 4e-3, 1e-5
FARTHEST = 6  # standard deviations; features are clipped here
SMALLEST_SPREAD = 1e-6
Weights = tuple[Floats, ...]
PAIRS = 400_000  # training pairs of each kind, at most
PILOT_PAIRS = 100_000  # of each kind, for the pilot that measures how informative dates are
MOST_EVENTS = 250_000  # of the accounts that sessions are learned from; items are learned from all
PAIRS_AT_ONCE = 8192
OFFERED, NEAR = 8, 0.01  # candidates for a stranger's session; how near in time, as a share of all sessions
COMPARED_ACCOUNTS = 800  # whose halves are compared in time
FEWEST_SESSIONS, MOST_SESSIONS = 8, 100  # of such an account
STEADY, APART = 1.13, 1.2  # distance in time of halves, relative to chance: people who live together, who come and go
SHUFFLES = 3
Random = np.random.Generator


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


def learn_contrast(features: Floats, target: Floats, random: Random, part: str = "") -> Contrast:
    """Train the network to separate pairs of one account (1) from pairs of two (0); neutral if a class is missing.

    Args:
        part: which part of the work this is, for the progress.
    """
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
    return Contrast(centre, spread, _descend(rows, target, weights, random, part), float(np.log(share / (1 - share))))


def _descend(rows: Floats, target: Floats, weights: Weights, random: Random, part: str) -> Weights:
    """Run Adam with a rate that decays to zero."""
    steps = -(-EPOCHS * len(rows) // BATCH)
    mean, square = ([np.zeros_like(part) for part in weights] for _ in range(2))
    for step in tracked(f"finding people: pairs of sessions{part}", range(1, steps + 1)):
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


def learn(training: Logs, random: Random, pairs: int = PAIRS) -> Learned:
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


def _learned_contrast(sessions: Sessions, fold: Longs, gap: float | None, pairs: int, random: Random) -> Contrast:
    """Learn the contrast of pairs; a pilot, trained without dates, measures how informative dates are."""

    def learned(of_any_time: float, most: int, described: Sessions, part: str = "") -> Contrast:
        inside = pairs_inside(sessions, most, random)
        across = pairs_of_strangers(sessions, fold, gap, inside, of_any_time, random)
        one, other = (np.concatenate(sides) for sides in zip(inside, across, strict=True))
        target = np.repeat([1.0, 0.0], [len(inside[0]), len(across[0])])
        return learn_contrast(pair_features(described, one, other), target, random, part)

    if sessions.begun is None:
        return learned(1.0, pairs, sessions)
    plain = sessions.without_dates()
    pilot = learned(0.0, min(pairs, PILOT_PAIRS), plain, ", part 1 of 2")
    share = share_of_any_time(sessions, lambda places: evidence(plain, pilot, places), random)
    return learned(share, pairs, sessions, ", part 2 of 2")


def learned_from(training: Logs, random: Random) -> Longs:
    """Return the accounts that sessions are learned from: all, or a random sample with about MOST_EVENTS events."""
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


def pairs_inside(sessions: Sessions, most: int, random: Random) -> tuple[Longs, Longs]:
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


def pairs_across(sessions: Sessions, fold: Longs, gap: float | None, most: int, random: Random) -> tuple[Longs, Longs]:
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


def pairs_of_strangers(
    sessions: Sessions,
    fold: Longs,
    gap: float | None,
    inside: tuple[Longs, Longs],
    of_any_time: float,
    random: Random,
) -> tuple[Longs, Longs]:
    """Draw as many pairs of sessions of two accounts as there are inside: some of any time, others of the same time.

    Args:
        of_any_time: the share of pairs that are drawn without regard to time.
    """
    if sessions.begun is None:
        return pairs_across(sessions, fold, gap, len(inside[0]), random)
    anytime = round(of_any_time * len(inside[0]))
    anywhere = pairs_across(sessions, fold, gap, anytime, random)
    near = pairs_of_a_time(sessions, fold, gap, (inside[0][anytime:], inside[1][anytime:]), random)
    left, right = (np.concatenate(sides) for sides in zip(anywhere, near, strict=True))
    return left, right


def pairs_of_a_time(
    sessions: Sessions, fold: Longs, gap: float | None, inside: tuple[Longs, Longs], random: Random
) -> tuple[Longs, Longs]:
    """Return the pairs with their second session replaced by one of another account from about the same time.

    Dates tell nothing about such pairs, as they tell nothing about people who live together.
    """
    assert sessions.begun is not None
    session_fold, number = fold[sessions.owner], np.bincount(sessions.owner)
    one, other = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for part in range(FOLDS):
        places, chosen = np.flatnonzero(session_fold == part), session_fold[inside[0]] == part
        order = places[np.argsort(sessions.begun[places], kind="stable")]
        left, right = inside[0][chosen], inside[1][chosen]
        window = max(OFFERED, round(NEAR * len(order)))
        place = np.searchsorted(sessions.begun[order], sessions.begun[right])[:, None]
        offered = place + random.integers(-window, window + 1, size=(len(left), OFFERED))
        candidates = order[np.clip(offered, 0, len(order) - 1)] if len(order) else offered
        owner = sessions.owner[candidates]
        reach = np.cumsum((owner != sessions.owner[left][:, None]) / number[owner], axis=1)
        drawn = (reach < random.random((len(left), 1)) * reach[:, -1:]).sum(axis=1)
        one.append(left)
        other.append(candidates[np.arange(len(left)), np.minimum(drawn, OFFERED - 1)])
    left, right = np.concatenate(one), np.concatenate(other)
    valid = sessions.owner[left] != sessions.owner[right]
    if gap is not None:
        valid &= np.abs(sessions.begun[left] - sessions.begun[right]) > gap
    return left[valid], right[valid]


def share_of_any_time(sessions: Sessions, compare: Callable[[Longs], Floats], random: Random) -> float:
    """Return the share of strangers to draw from any time: 0 if dates do not tell people apart, 1 if they do.

    Args:
        compare: returns the evidence of all pairs of sessions at some positions [B, N], learned from strangers of the
            same days.
    """
    assert sessions.begun is not None
    bounds = np.searchsorted(sessions.owner, np.arange(int(sessions.owner.max(initial=-1)) + 2))
    number = np.diff(bounds)
    known = np.flatnonzero(number >= FEWEST_SESSIONS)
    chosen = np.sort(random.permutation(known)[:COMPARED_ACCOUNTS])
    distances: list[float] = []
    chance: list[float] = []
    for group in equal_sizes(np.minimum(number[chosen], MOST_SESSIONS)):
        places = np.stack([bounds[one] + sampled(int(number[one]), MOST_SESSIONS) for one in chosen[group].tolist()])
        halves = assign(compare(places), sessions.size[places], 2).argmax(axis=-1) == 0
        for half, day in zip(halves, sessions.begun[places], strict=True):
            if 2 < half.sum() < len(half) - 2:
                distances.append(distance_in_time(day, half))
                chance += [distance_in_time(day, random.permutation(half)) for _ in range(SHUFFLES)]
    if not distances:
        return 1.0
    ratio = float(np.mean(distances)) / max(float(np.mean(chance)), 1e-9)
    return float(np.clip((ratio - STEADY) / (APART - STEADY), 0, 1))


def distance_in_time(day: Floats, half: npt.NDArray[np.bool_]) -> float:
    """Return the largest difference, at any time, of the shares of sessions that a half [N] and the rest have begun."""
    begun = np.sort(day)
    shares = [np.searchsorted(np.sort(day[one]), begun, side="right") / one.sum() for one in (half, ~half)]
    return float(np.abs(shares[0] - shares[1]).max())

"""How well the people behind accounts are told apart, where it is known who acted.

Every measure compares two groupings of an account's events, the found and the true one, by the table of their overlaps:
table[a, f, t] is how many events of account a were given to found person f and are true person t's. What a person is
called means nothing; events whose true person is unknown count for nothing.

Shapes: E events, A accounts, F found people, T true people.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lightgc2n.errors import DataError
from lightgc2n.evaluation.metrics import Floats, Longs, interval, resampled_means

TENTHS = 10
MOST_MATCHED = 12  # people of the smaller side; the exact match looks at every subset of them


@dataclass(frozen=True)
class PeopleMeasures:
    """What was measured, account by account; a measure that means nothing for an account is NaN there."""

    account: Longs
    events: Longs
    columns: dict[str, Floats]


def measure_people(found: Longs, member: Longs, account: Longs, people: Longs | None = None) -> PeopleMeasures:
    """The measures of each account with known members.

    ARI, NMI        agreement of the groupings: 1 for the same; ARI is 0 on average for shuffled labels
    shared ARI      the same where several people are behind the account; NaN for others
    accuracy        share of events that are their person's, found people matched one to one to true people
    least served    the same among the events of each true person, for the one of whom it is smallest
    count error     by how many people the number of found people is wrong
    exact count     whether it is right
    singles split   whether an account of one person was split; NaN for others

    Args:
        found: for each event any number for its person, the same for the same person of one account.
        member: for each event its true person, -1 where that is unknown.
        people: for each account number its true count, where that is not simply how many act (guests).
    """
    known = member >= 0
    accounts, row = np.unique(account[known], return_inverse=True)
    table = overlaps(row, found[known], member[known])
    true = (table.sum(axis=1) > 0).sum(axis=1) if people is None else people[accounts]
    error = np.abs((table.sum(axis=2) > 0).sum(axis=1) - true).astype(np.float64)
    own = matched_events(table, matching(table))
    agreement = adjusted_rand(table)
    columns = {
        "ARI": agreement,
        "shared ARI": np.where(true > 1, agreement, np.nan),
        "NMI": mutual_information(table),
        "accuracy": own.sum(axis=1) / table.sum(axis=(1, 2)),
        "least served": least_served(own, table.sum(axis=1)),
        "count error": error,
        "exact count": (error == 0).astype(np.float64),
        "singles split": np.where(true == 1, (error > 0).astype(np.float64), np.nan),
    }
    return PeopleMeasures(accounts.astype(np.int64), table.sum(axis=(1, 2)), columns)


def overlaps(row: Longs, found: Longs, true: Longs) -> Longs:
    """The table [A, F, T] of events by account, found and true person."""
    found, true = _numbered(row, found), _numbered(row, true)
    size = int(row.max(initial=-1)) + 1, int(found.max(initial=-1)) + 1, int(true.max(initial=-1)) + 1
    cell = (row * size[1] + found) * size[2] + true
    return np.bincount(cell, minlength=size[0] * size[1] * size[2]).reshape(size)


def adjusted_rand(table: Longs) -> Floats:
    """The adjusted Rand index of each account, from pairs of events that both, one or neither grouping joins."""
    table = table.astype(np.float64)  # fourth powers of events: whole numbers run over from 66,000 on
    events = table.sum(axis=(1, 2))
    squares = (table**2).sum(axis=(1, 2))
    found_only = (table.sum(axis=2) ** 2).sum(axis=1) - squares
    true_only = (table.sum(axis=1) ** 2).sum(axis=1) - squares
    both = squares - events
    neither = events**2 - events - both - found_only - true_only
    gain = 2.0 * (both * neither - found_only * true_only)
    scale = (both + true_only) * (true_only + neither) + (both + found_only) * (found_only + neither)
    same = (found_only == 0) & (true_only == 0)  # also one person in both, where there is no chance to adjust for
    return np.where(same, 1.0, gain / np.where(same, 1, scale))


def mutual_information(table: Longs) -> Floats:
    """Mutual information over the mean of both entropies; 1 where both groupings have one person."""
    share = table / table.sum(axis=(1, 2), keepdims=True)
    found, true = _entropy(share.sum(axis=2)), _entropy(share.sum(axis=1))
    joint = _entropy(share.reshape(len(share), -1))
    mean = (found + true) / 2
    shared = np.maximum(found + true - joint, 0.0)
    shared[shared < 1e-12] = 0.0  # rounding alone
    return np.where(mean > 0, shared / np.where(mean > 0, mean, 1.0), 1.0)


def matching(table: Longs) -> Longs:
    """For each found person the true one, or -1, so that the most events agree: one to one and exact, [A, F].

    Found people are gone through one by one; for every set of true people already taken the best so far is kept.
    """
    accounts, found, true = table.shape
    if found < true:
        return _inverted(matching(table.transpose(0, 2, 1)), found)
    if true > MOST_MATCHED:
        raise DataError(f"an account with {true} known and {found} found people: at most {MOST_MATCHED} are matched.")
    sets = np.arange(2**true)
    best = np.where(sets == 0, 0, -1)[None].repeat(accounts, axis=0)  # -1: not reached
    choices = np.full((found, accounts, len(sets)), -1)
    for one in range(found):
        before = best.copy()
        for person in range(true):
            taken = sets[sets >> person & 1 == 1]
            without = before[:, taken ^ (1 << person)]
            gained = np.where(without >= 0, without + table[:, one, person, None], -1)
            better = gained > best[:, taken]
            best[:, taken] = np.where(better, gained, best[:, taken])
            choices[one][:, taken] = np.where(better, person, choices[one][:, taken])
    return _chosen(choices, best.argmax(axis=1))


def _chosen(choices: Longs, taken: Longs) -> Longs:
    """The choices [F, A, sets] that led to the best set of each account, read backwards."""
    match = np.empty((choices.shape[1], choices.shape[0]), dtype=np.int64)
    row = np.arange(len(match))
    for one in reversed(range(len(choices))):
        match[:, one] = choices[one][row, taken]
        taken = np.where(match[:, one] >= 0, taken ^ (1 << np.maximum(match[:, one], 0)), taken)
    return match


def _inverted(match: Longs, size: int) -> Longs:
    inverse = np.full((len(match), size), -1, dtype=np.int64)
    row, place = np.nonzero(match >= 0)
    inverse[row, match[row, place]] = place
    return inverse


def matched_events(table: Longs, match: Longs) -> Longs:
    """How many events of each true person were given to the found person matched to them, [A, T]."""
    own = np.zeros((table.shape[0], table.shape[2]), dtype=np.int64)
    row, one = np.nonzero(match >= 0)
    own[row, match[row, one]] = table[row, one, match[row, one]]
    return own


def least_served(hits: npt.NDArray[Any], of: npt.NDArray[Any]) -> Floats:
    """The smallest share hits / of among the people of each account; [A, T], people without anything left out."""
    return np.where(of > 0, hits / np.maximum(of, 1), np.inf).min(axis=1)


@dataclass(frozen=True)
class Served:
    """How many of their targets lists have hit: for each account, its least served member, and its smaller members."""

    account: Longs
    least: Floats  # recall of the member for whom it is lowest, among those with targets
    smaller_hits: Floats  # of members with fewer targets than another of the account
    smaller_targets: Longs

    @property
    def smaller(self) -> float:
        """Recall of all smaller members' targets together."""
        return float(self.smaller_hits.sum() / max(self.smaller_targets.sum(), 1))


def measure_served(hits: npt.NDArray[np.bool_], account: Longs, member: Longs) -> Served:
    """Recall by true members.

    Args:
        hits: for each question whether the list has its target.
        member: who acted; -1 where that is unknown, which counts for nothing.
    """
    known = member >= 0
    accounts, row = np.unique(account[known], return_inverse=True)
    person = _numbered(row, member[known])
    people = int(person.max(initial=0)) + 1
    cell, size = row * people + person, len(accounts) * people
    targets = np.bincount(cell, minlength=size).reshape(-1, people)
    hit = np.bincount(cell, hits[known], size).reshape(-1, people)
    small = targets < targets.max(axis=1, keepdims=True)
    return Served(accounts, least_served(hit, targets), (hit * small).sum(axis=1), (targets * small).sum(axis=1))


def people_summary(measured: PeopleMeasures, seed: int = 0) -> dict[str, dict[str, dict[str, float]]]:
    """measure -> `accounts` and `events` -> value, low, high: means over accounts, and weighted by their events.

    Intervals hold the middle 95 % of draws of accounts; a measure that no account has is left out.
    """
    weights = {"accounts": np.ones(len(measured.account)), "events": measured.events.astype(np.float64)}
    columns = {name: column for name, column in measured.columns.items() if not np.isnan(column).all()}
    result: dict[str, dict[str, dict[str, float]]] = {name: {} for name in columns}
    for by, weight in weights.items():
        defined = np.column_stack([weight * ~np.isnan(column) for column in columns.values()])
        table = np.hstack([np.nan_to_num(np.column_stack(list(columns.values()))) * defined, defined])
        draws = resampled_means(table, np.arange(len(table)), seed)
        for place, name in enumerate(columns):
            above, below = table[:, place].sum(), defined[:, place].sum()
            drawn = draws[:, place + len(columns)] > 0  # a rare kind of account may be missing from a draw
            low, high = interval(draws[drawn, place] / draws[drawn, place + len(columns)])
            result[name][by] = {"value": float(above / below), "low": low, "high": high}
    return result


def reliability(chances: npt.NDArray[Any], count: Longs, people: Longs) -> dict[str, Any]:
    """How often a count is right beside how sure it was, over all accounts and by tenths of confidence.

    `calibration error` is the mean over accounts of how far the two are apart in their tenth; `log loss` is that of the
    true count, where the largest count offered stands for all that are larger.

    Args:
        chances: of one person, of two ... behind each account [A, K].
        count: what was said of each account; its chance is the confidence.
        people: the true count.
    """
    row, most = np.arange(len(count)), chances.shape[1]
    sure, right = chances[row, count - 1], (count == people).astype(np.float64)
    tenth = np.minimum((sure * TENTHS).astype(np.int64), TENTHS - 1)
    number = np.bincount(tenth, minlength=TENTHS)
    means = [np.bincount(tenth, values, TENTHS) / np.maximum(number, 1) for values in (sure, right)]
    lines = [
        {"above": one / TENTHS, "accounts": int(number[one])}
        | {name: float(mean[one]) for name, mean in zip(("confidence", "right"), means, strict=True)}
        for one in np.flatnonzero(number).tolist()
    ]
    return {
        "accounts": len(count),
        "confidence": float(sure.mean()),
        "right": float(right.mean()),
        "calibration error": float((np.abs(means[0] - means[1]) * number).sum() / len(count)),
        "log loss": float(-np.log(chances[row, np.minimum(people, most) - 1] + 1e-12).mean()),
        "tenths": lines,
    }


def _numbered(row: Longs, label: Longs) -> Longs:
    """The labels numbered from 0 within each row."""
    _, label = np.unique(label, return_inverse=True)
    size = int(label.max(initial=0)) + 1
    pairs, place = np.unique(row * size + label, return_inverse=True)
    first = np.searchsorted(pairs // size, np.arange(int(row.max(initial=-1)) + 1))
    return place - first[row]


def _entropy(shares: Floats) -> Floats:
    """Of each row, in nats."""
    return -(shares * np.log(np.where(shares > 0, shares, 1.0))).sum(axis=1)

"""Clustering scores: how well the events of an account are grouped by person, where it is known who acted.

Each score compares the predicted with the true grouping of an account's events by their contingency table:
table[a, p, t] is the number of events of account a that were assigned to predicted person p and are of true person t.
Labels are arbitrary; events whose true person is unknown are ignored.

Shapes: E events, A accounts, P predicted people, T true people.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Longs
from lightgc2n.errors import DataError
from lightgc2n.metrics.intervals import interval, resampled_means
from lightgc2n.metrics.member_recall import least_served, number_within_rows
from lightgc2n.metrics.ranking import Floats

TENTHS = 10
MOST_MATCHED = 12  # people of the smaller side; the exact matching enumerates all subsets of them


@dataclass(frozen=True)
class PeopleMeasures:
    """Scores of each account; NaN where a score is undefined."""

    account: Longs
    events: Longs
    columns: dict[str, Floats]


def measure_people(predicted: Longs, member: Longs, account: Longs, people: Longs | None = None) -> PeopleMeasures:
    """The scores of each account with known members.

    ARI, NMI        adjusted Rand index and normalised mutual information: 1 for equal groupings; random ARI is 0
    shared ARI      ARI of accounts of several people; NaN for others
    accuracy        share of events with the right person, predicted people matched one to one to true people
    least served    the lowest such share among the true people of the account
    count error     absolute error of the number of people
    exact count     1 where the number of people is right
    singles split   1 where an account of one person was split; NaN for accounts of several people

    Args:
        predicted: the predicted person of each event; any integer label, unique within an account.
        member: the true person of each event, -1 where unknown.
        people: the true number of people by account number, where it differs from the number who act (guests).
    """
    known = member >= 0
    accounts, row = np.unique(account[known], return_inverse=True)
    table = overlaps(row, predicted[known], member[known])
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


def overlaps(row: Longs, predicted: Longs, true: Longs) -> Longs:
    """The contingency table [A, P, T]: events by account, predicted and true person."""
    predicted, true = number_within_rows(row, predicted), number_within_rows(row, true)
    size = int(row.max(initial=-1)) + 1, int(predicted.max(initial=-1)) + 1, int(true.max(initial=-1)) + 1
    cell = (row * size[1] + predicted) * size[2] + true
    return np.bincount(cell, minlength=size[0] * size[1] * size[2]).reshape(size)


def adjusted_rand(table: Longs) -> Floats:
    """The adjusted Rand index of each account, from the pairs of events that both, one or neither grouping joins."""
    table = table.astype(
        np.float64
    )  # int64 would overflow: products of pair counts are fourth powers of the number of events
    events = table.sum(axis=(1, 2))
    squares = (table**2).sum(axis=(1, 2))
    predicted_only = (table.sum(axis=2) ** 2).sum(axis=1) - squares
    true_only = (table.sum(axis=1) ** 2).sum(axis=1) - squares
    both = squares - events
    neither = events**2 - events - both - predicted_only - true_only
    gain = 2.0 * (both * neither - predicted_only * true_only)
    scale = (both + true_only) * (true_only + neither) + (both + predicted_only) * (predicted_only + neither)
    same = (predicted_only == 0) & (
        true_only == 0
    )  # equal groupings; also one person in both, where the index is undefined
    return np.where(same, 1.0, gain / np.where(same, 1, scale))


def mutual_information(table: Longs) -> Floats:
    """Mutual information divided by the mean entropy; 1 where both groupings have one person."""
    share = table / table.sum(axis=(1, 2), keepdims=True)
    predicted, true = _entropy(share.sum(axis=2)), _entropy(share.sum(axis=1))
    joint = _entropy(share.reshape(len(share), -1))
    mean = (predicted + true) / 2
    shared = np.maximum(predicted + true - joint, 0.0)
    shared[shared < 1e-12] = 0.0  # rounding error
    return np.where(mean > 0, shared / np.where(mean > 0, mean, 1.0), 1.0)


def matching(table: Longs) -> Longs:
    """The true person matched to each predicted person, or -1: the one-to-one matching with the most events, [A, P].

    Dynamic programming over predicted people; the state is the set of true people that are already matched.
    """
    accounts, predicted, true = table.shape
    if predicted < true:
        return _inverted(matching(table.transpose(0, 2, 1)), predicted)
    if true > MOST_MATCHED:
        raise DataError(
            f"an account with {true} true and {predicted} predicted people: at most {MOST_MATCHED} can be matched."
        )
    sets = np.arange(2**true)
    best = np.where(sets == 0, 0, -1)[None].repeat(accounts, axis=0)  # -1: unreachable
    choices = np.full((predicted, accounts, len(sets)), -1)
    for one in range(predicted):
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
    """The choices [P, A, sets] on the way to the best set of each account, traced back."""
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
    """The number of events of each true person that were assigned to the matched predicted person, [A, T]."""
    own = np.zeros((table.shape[0], table.shape[2]), dtype=np.int64)
    row, one = np.nonzero(match >= 0)
    own[row, match[row, one]] = table[row, one, match[row, one]]
    return own


def people_summary(measured: PeopleMeasures, seed: int = 0) -> dict[str, dict[str, dict[str, float]]]:
    """score -> `accounts` or `events` -> value, low, high: means over accounts, or weighted by their events.

    Intervals are 95 % bootstrap intervals over accounts. A score that is undefined for all accounts is left out.
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
            drawn = draws[:, place + len(columns)] > 0  # a bootstrap sample may lack a rare kind of account
            low, high = interval(draws[drawn, place] / draws[drawn, place + len(columns)])
            result[name][by] = {"value": float(above / below), "low": low, "high": high}
    return result


def reliability(chances: npt.NDArray[Any], count: Longs, people: Longs) -> dict[str, Any]:
    """Calibration of people counts: accuracy and confidence, over all accounts and by tenths of confidence.

    `calibration error` is the expected calibration error over ten bins; `log loss` is that of the true count, where the
    largest count on offer represents all larger ones.

    Args:
        chances: the probability of one person, of two, and so on behind each account [A, K].
        count: the predicted count of each account; its probability is the confidence.
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


def _entropy(shares: Floats) -> Floats:
    """The entropy of each row, in nats."""
    return -(shares * np.log(np.where(shares > 0, shares, 1.0))).sum(axis=1)

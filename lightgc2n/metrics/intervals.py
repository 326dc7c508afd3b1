"""Means over test targets with 95 % intervals, and the bootstrap and permutation tests behind them.

`estimates` is the one aggregator that every table of results uses. All resampling draws accounts, not queries, because
the queries of one account are not independent.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from lightgc2n.data.dataset import Longs
from lightgc2n.metrics.ranking import Floats

RESAMPLES = 1000
FLIPS = 10_000
CELLS_AT_ONCE = 4_000_000
Name = TypeVar("Name", bound=Hashable)


def resampled_means(table: Floats, owner: Longs, seed: int = 0) -> Floats:
    """The means of the columns of `table` [queries, columns] in bootstrap samples of accounts, [samples, columns].

    All columns use the same samples, so models can be compared sample by sample.

    Args:
        owner: the account of each query.
    """
    _, owner = np.unique(owner, return_inverse=True)
    accounts = int(owner.max(initial=-1)) + 1
    columns = [*table.T, np.ones(len(table))]
    sums = np.column_stack([np.bincount(owner, weights=column, minlength=accounts) for column in columns])
    generator = np.random.default_rng(seed)
    totals = []
    for count in _parts(RESAMPLES, CELLS_AT_ONCE // max(accounts, 1)):
        drawn = generator.integers(0, accounts, size=(count, accounts))
        drawn += np.arange(count)[:, None] * accounts
        weights = np.bincount(drawn.ravel(), minlength=count * accounts).reshape(count, accounts)
        totals.append(weights.astype(np.float64) @ sums)
    total = np.concatenate(totals)
    return total[:, :-1] / total[:, -1:]


def interval(draws: Floats) -> tuple[float, float]:
    """The 95 % percentile interval of bootstrap means."""
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(low), float(high)


def paired_p_values(differences: Floats, owner: Longs, seed: int = 0) -> Floats:
    """The two-sided p-value of each column of `differences` [queries, columns], by a sign-flip permutation test.

    Under the null hypothesis the sign of each account's summed difference is random.
    """
    _, owner = np.unique(owner, return_inverse=True)
    sums = np.column_stack([np.bincount(owner, weights=column) for column in differences.T])
    observed = np.abs(sums.sum(axis=0))
    generator = np.random.default_rng(seed)
    extreme = np.zeros(sums.shape[1], dtype=np.int64)
    for count in _parts(FLIPS, CELLS_AT_ONCE // max(len(sums), 1)):
        octets = generator.integers(0, 256, size=(count, -(-len(sums) // 8)), dtype=np.uint8)
        heads = np.unpackbits(octets, axis=1, count=len(sums)).astype(np.float32)
        flipped = 2 * (heads @ sums.astype(np.float32)) - sums.sum(axis=0)
        # The tolerance counts sums that differ from the observed one by rounding alone as equal to it.
        extreme += (np.abs(flipped) >= observed - 1e-5 * (1 + observed)).sum(axis=0)
    return (extreme + 1) / (FLIPS + 1)


def _parts(total: int, at_once: int) -> Iterator[int]:
    """Split `total` into parts of at most `at_once`, which is raised to 1."""
    size = max(1, at_once)
    for first in range(0, total, size):
        yield min(size, total - first)


@dataclass(frozen=True)
class Estimate:
    """A mean and its 95 % interval."""

    value: float
    low: float
    high: float


def estimates(columns: Mapping[Name, Floats], owner: Longs, seed: int = 0) -> dict[Name, Estimate]:
    """The mean of each column with an interval that resamples accounts; all columns share the same draws.

    Args:
        columns: what each test target adds to each metric.
        owner: the account of each test target.
    """
    draws = resampled_means(np.column_stack(list(columns.values())), owner, seed)
    return {
        name: Estimate(float(column.mean()), *interval(draws[:, place]))
        for place, (name, column) in enumerate(columns.items())
    }

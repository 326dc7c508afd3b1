"""Recall, MRR and NDCG at N from ranks, with intervals and paired tests.

One target a query: Recall@N is the share of targets within the first N, MRR@N the mean of 1/rank of those, NDCG@N the
mean of 1/log2(1 + rank). Intervals resample accounts, not queries, since queries of one account are not independent.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]
RESAMPLES = 1000
FLIPS = 10_000
CELLS_AT_ONCE = 4_000_000


def gains(ranks: Floats, cutoffs: Sequence[int]) -> dict[str, Floats]:
    """What each query adds to each metric."""
    columns = {}
    for cutoff in cutoffs:
        hit = ranks <= cutoff
        columns[f"RC@{cutoff}"] = hit.astype(np.float64)
        columns[f"MRR@{cutoff}"] = np.where(hit, 1 / ranks, 0.0)
        columns[f"NDCG@{cutoff}"] = np.where(hit, 1 / np.log2(1 + ranks), 0.0)
    return columns


def resampled_means(table: Floats, owner: Longs, seed: int = 0) -> Floats:
    """The mean of each column of `table` [queries, columns] in draws of accounts with replacement.

    Every column sees the same draws, so that models can be compared draw by draw.

    Args:
        owner: the account of each query.
    """
    _, owner = np.unique(owner, return_inverse=True)
    accounts = int(owner.max(initial=-1)) + 1
    columns = [*table.T, np.ones(len(table))]
    sums = np.column_stack([np.bincount(owner, weights=column, minlength=accounts) for column in columns])
    generator = np.random.default_rng(seed)
    totals = []
    for count in _shares(RESAMPLES, CELLS_AT_ONCE // max(accounts, 1)):
        drawn = generator.integers(0, accounts, size=(count, accounts))
        drawn += np.arange(count)[:, None] * accounts
        weights = np.bincount(drawn.ravel(), minlength=count * accounts).reshape(count, accounts)
        totals.append(weights.astype(np.float64) @ sums)
    total = np.concatenate(totals)
    return total[:, :-1] / total[:, -1:]


def interval(draws: Floats) -> tuple[float, float]:
    """The middle 95 % of the draws."""
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(low), float(high)


def paired_p_values(differences: Floats, owner: Longs, seed: int = 0) -> Floats:
    """For each column of `differences` [queries, columns]: how likely a mean at least this far from 0 is by chance.

    By chance means that a toss of a coin gives each account's difference its sign.
    """
    _, owner = np.unique(owner, return_inverse=True)
    sums = np.column_stack([np.bincount(owner, weights=column) for column in differences.T])
    observed = np.abs(sums.sum(axis=0))
    generator = np.random.default_rng(seed)
    extreme = np.zeros(sums.shape[1], dtype=np.int64)
    for count in _shares(FLIPS, CELLS_AT_ONCE // max(len(sums), 1)):
        octets = generator.integers(0, 256, size=(count, -(-len(sums) // 8)), dtype=np.uint8)
        heads = np.unpackbits(octets, axis=1, count=len(sums)).astype(np.float32)
        flipped = 2 * (heads @ sums.astype(np.float32)) - sums.sum(axis=0)
        # A little slack, so that rounding never makes an equal toss count as a smaller one.
        extreme += (np.abs(flipped) >= observed - 1e-5 * (1 + observed)).sum(axis=0)
    return (extreme + 1) / (FLIPS + 1)


def _shares(total: int, at_once: int) -> Iterator[int]:
    """`total` in shares of at most `at_once`, at least 1."""
    size = max(1, at_once)
    for first in range(0, total, size):
        yield min(size, total - first)

"""Runs on the same test targets compared in pairs: the difference, its interval, and a paired test.

The interval resamples accounts, and the seeds of each run where there are several. The paired test flips the sign of
each account's difference at random. Runs with other targets (one domain against two) are compared unpaired, each with
draws of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import erfc, sqrt

import numpy as np

from lightgc2n.data.dataset import Longs
from lightgc2n.metrics.intervals import interval, paired_p_values, resampled_means
from lightgc2n.metrics.ranking import Floats

DECISIVE = "MRR@20"  # the metric that verdicts are based on
SIGNIFICANCE = 0.05


def paired_against(
    best: str, columns: Mapping[str, Floats], owner: Longs, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """For each column its mean difference from the column `best`, and the p-value of the paired test."""
    differences = np.column_stack([column - columns[best] for column in columns.values()])
    p_values = paired_p_values(differences, owner, seed)
    pairs = zip(differences.mean(axis=0), p_values, strict=True)
    return {name: (float(mean), float(p)) for name, (mean, p) in zip(columns, pairs, strict=True)}


@dataclass(frozen=True)
class Difference:
    """By how many percentage points the decisive metric of one run is above that of another."""

    dataset: str
    protocol: str
    first: str
    second: str
    value: float
    low: float
    high: float
    p: float
    seeds: int  # of the run that has fewer
    paired: bool

    def __str__(self) -> str:
        where = "above" if self.value >= 0 else "below"
        words = f"{DECISIVE} of {self.first} is {abs(self.value):.2f} points {where} {self.second}"
        return f"{words} on {self.dataset} ({self.interval})"

    @property
    def interval(self) -> str:
        """The interval, the seeds and the kind of comparison as text."""
        seeds = "one seed" if self.seeds == 1 else f"{self.seeds} seeds"
        how = "" if self.paired else ", other targets"
        return f"95 %: {self.low:+.2f} to {self.high:+.2f}; {seeds}{how}".replace("-", "−")


@dataclass(frozen=True)
class SameTargets:
    """Runs with the same targets: what each target adds to the decisive metric, by run and seed."""

    owner: Longs
    columns: dict[str, Floats]  # run -> [targets, seeds]

    def mean(self, run: str) -> float:
        return float(self.columns[run].mean())

    def seeds(self, run: str) -> int:
        return int(self.columns[run].shape[1])

    @cached_property
    def draws(self) -> dict[str, Floats]:
        """The mean of each run in each draw of accounts and seeds."""
        names = list(self.columns)
        drawn = resampled_means(np.column_stack([self.columns[name] for name in names]), self.owner)
        stops = np.cumsum([self.columns[name].shape[1] for name in names])
        generator = np.random.default_rng(0)
        return {
            name: np.take_along_axis(part, generator.integers(0, part.shape[1], size=part.shape), axis=1).mean(axis=1)
            for name, part in zip(names, np.split(drawn, stops[:-1], axis=1), strict=True)
        }

    @cached_property
    def p_values(self) -> dict[frozenset[str], float]:
        """The p-value of the paired test for each pair of runs."""
        pairs = list(combinations(self.columns, 2))
        means = {name: column.mean(axis=1) for name, column in self.columns.items()}
        table = np.column_stack([means[first] - means[second] for first, second in pairs])
        return {frozenset(pair): float(p) for pair, p in zip(pairs, paired_p_values(table, self.owner), strict=True)}


def difference(
    dataset: str, protocol: str, first: str, one: SameTargets, second: str, other: SameTargets
) -> Difference:
    """How far the run `first` of `one` is above the run `second` of `other`; paired where both are the same."""
    if one is other:
        draws, p = one.draws[first] - one.draws[second], one.p_values[frozenset((first, second))]
    else:
        draws = one.draws[first] - np.random.default_rng(1).permutation(other.draws[second])
        p = erfc(abs(draws.mean()) / max(float(draws.std()), 1e-12) / sqrt(2))
    value = one.mean(first) - other.mean(second)
    low, high = interval(draws)
    seeds = min(one.seeds(first), other.seeds(second))
    return Difference(dataset, protocol, first, second, 100 * value, 100 * low, 100 * high, p, seeds, one is other)


def decided(differences: Sequence[Difference]) -> list[int]:
    """1 where the first run is clearly better, -1 where it is clearly worse, 0 where neither is clear.

    Clearly: the interval excludes 0, and the p-value is significant after Holm's correction.
    """
    corrected = holm([difference.p for difference in differences])
    signs = [1 if one.low > 0 else -1 if one.high < 0 else 0 for one in differences]
    return [sign if p < SIGNIFICANCE else 0 for sign, p in zip(signs, corrected, strict=True)]


def left_open_by_holm(differences: Sequence[Difference], signs: Sequence[int]) -> int:
    """How many are undecided although their own interval excludes 0: the correction for many leaves them so."""
    return sum(sign == 0 and (one.low > 0 or one.high < 0) for one, sign in zip(differences, signs, strict=True))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: the smallest p-value times their count, the next times one less, never falling."""
    corrected, largest = [0.0] * len(p_values), 0.0
    for place, index in enumerate(np.argsort(p_values)):
        largest = max(largest, min(1.0, p_values[index] * (len(p_values) - place)))
        corrected[index] = largest
    return corrected

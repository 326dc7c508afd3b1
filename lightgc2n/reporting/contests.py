"""Runs that were tested on the same data, compared two by two: the difference, its interval, and a paired test.

The interval resamples accounts, and the seeds of each run where there are several. The paired test tosses a coin for
the sign of each account's difference. Runs that were asked for other targets (one domain against two) are compared
unpaired, each with draws of its own.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import erfc, sqrt

import numpy as np

from lightgc2n.evaluation.metrics import Floats, Longs, gains, interval, paired_p_values, resampled_means
from lightgc2n.reporting.measured import Key, Measured, Results

DECISIVE = "MRR@20"
ENOUGH = 0.05  # a smaller chance decides


@dataclass(frozen=True)
class Difference:
    """By how many points of a percent the decisive metric of one run is above that of another."""

    dataset: str
    protocol: str
    first: str
    second: str
    value: float
    low: float
    high: float
    chance: float  # of a difference at least as large where there is none
    seeds: int  # of the run that has fewer
    paired: bool

    def __str__(self) -> str:
        where = "above" if self.value >= 0 else "below"
        words = f"{DECISIVE} of {self.first} is {abs(self.value):.2f} points {where} {self.second}"
        return f"{words} on {self.dataset} ({self.interval})"

    @property
    def interval(self) -> str:
        """How sure it is, in words."""
        seeds = "one seed" if self.seeds == 1 else f"{self.seeds} seeds"
        how = "" if self.paired else ", other targets"
        return f"95 %: {self.low:+.2f} to {self.high:+.2f}; {seeds}{how}".replace("-", "−")


@dataclass(frozen=True)
class _Field:
    """Runs with the same targets: what each target adds to the decisive metric, run by run and seed by seed."""

    owner: Longs
    columns: dict[str, Floats]  # run -> [targets, seeds]

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
    def chances(self) -> dict[frozenset[str], float]:
        pairs = list(combinations(self.columns, 2))
        means = {name: column.mean(axis=1) for name, column in self.columns.items()}
        table = np.column_stack([means[first] - means[second] for first, second in pairs])
        found = paired_p_values(table, self.owner)
        return {frozenset(pair): float(chance) for pair, chance in zip(pairs, found, strict=True)}


class Contest:
    """All runs on one dataset by one protocol."""

    def __init__(self, dataset: str, protocol: str, runs: Mapping[str, Sequence[Measured]]) -> None:
        self.dataset, self.protocol = dataset, protocol
        self.honest = Key(dataset, protocol, "").honest
        self.models = {name: seeds[0].model for name, seeds in runs.items()}
        self.runs = dict(runs)
        self._fields = list(_fields(runs))

    def of_models(self, models: Sequence[str]) -> list[str]:
        """The runs of these models of the zoo."""
        return [run for run, model in self.models.items() if model in models]

    def mean(self, run: str) -> float:
        """The decisive metric over all targets and seeds."""
        return float(self._field(run).columns[run].mean())

    def difference(self, first: str, second: str) -> Difference:
        """How far `first` is above `second`."""
        one, other = self._field(first), self._field(second)
        draws, chance = one.draws[first] - other.draws[second], 0.0
        if one is other:
            chance = one.chances[frozenset((first, second))]
        else:
            draws = one.draws[first] - np.random.default_rng(1).permutation(other.draws[second])
            chance = erfc(abs(draws.mean()) / max(float(draws.std()), 1e-12) / sqrt(2))
        value = self.mean(first) - self.mean(second)
        low, high = interval(draws)
        seeds = min(one.columns[first].shape[1], other.columns[second].shape[1])
        names = (self.dataset, self.protocol, first, second)
        return Difference(*names, 100 * value, 100 * low, 100 * high, chance, seeds, one is other)

    def _field(self, run: str) -> _Field:
        return next(field for field in self._fields if run in field.columns)


def contests(results: Results, models: Collection[str] | None = None) -> list[Contest]:
    """The runs of an experiment by dataset and protocol, honest protocols first.

    Args:
        models: of the zoo, where not all are asked for.
    """
    groups: dict[tuple[str, str], dict[str, Sequence[Measured]]] = {}
    for key, seeds in results.items():
        if seeds and (models is None or seeds[0].model in models):
            groups.setdefault((key[0], key[1]), {})[key[2]] = seeds
    found = [Contest(dataset, protocol, runs) for (dataset, protocol), runs in groups.items()]
    return sorted(found, key=lambda contest: not contest.honest)


def decisive(found: Sequence[Contest]) -> list[Contest]:
    """Those by honest protocols; all where there are none."""
    return [contest for contest in found if contest.honest] or list(found)


def decided(differences: Sequence[Difference]) -> list[int]:
    """1 where the first run is clearly better, -1 where it is clearly worse, 0 where it cannot be told.

    Clearly: the interval leaves out 0, and the chance, after Holm's correction for asking so often, is small.
    """
    corrected = holm([difference.chance for difference in differences])
    signs = [1 if found.low > 0 else -1 if found.high < 0 else 0 for found in differences]
    return [sign if chance < ENOUGH else 0 for sign, chance in zip(signs, corrected, strict=True)]


def holm(chances: Sequence[float]) -> list[float]:
    """Holm's step-down: the smallest chance times their count, the next times one less, never falling."""
    corrected, largest = [0.0] * len(chances), 0.0
    for place, index in enumerate(np.argsort(chances)):
        largest = max(largest, min(1.0, chances[index] * (len(chances) - place)))
        corrected[index] = largest
    return corrected


def _fields(runs: Mapping[str, Sequence[Measured]]) -> Iterator[_Field]:
    fields: list[_Field] = []
    for name, seeds in runs.items():
        owner = seeds[0].owner
        same = [seed for seed in seeds if np.array_equal(seed.owner, owner)]
        column = np.column_stack([gains(seed.rank, (20,))[DECISIVE] for seed in same])
        for field in fields:
            if np.array_equal(field.owner, owner):
                field.columns[name] = column
                break
        else:
            fields.append(_Field(owner, {name: column}))
    yield from fields

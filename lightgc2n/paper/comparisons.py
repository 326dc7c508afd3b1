"""The results of one experiment by dataset and protocol, ready to be compared in pairs."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from lightgc2n.experiments.results import ResultGroup, RunResult
from lightgc2n.metrics.paired_tests import DECISIVE, Difference, SameTargets, difference
from lightgc2n.metrics.ranking import gains

HONEST = frozenset({"last", "time", "cold-accounts"})  # protocols in which no test target is seen in training


class Comparison:
    """All runs on one dataset by one protocol."""

    def __init__(self, dataset: str, protocol: str, runs: Mapping[str, Sequence[RunResult]]) -> None:
        self.dataset, self.protocol = dataset, protocol
        self.honest = protocol in HONEST
        self.models = {name: seeds[0].model for name, seeds in runs.items()}
        self.runs = dict(runs)
        self._targets = _by_targets(runs)

    def of_models(self, models: Sequence[str]) -> list[str]:
        """The runs of these models."""
        return [run for run, model in self.models.items() if model in models]

    def mean(self, run: str) -> float:
        """The decisive metric over all targets and seeds."""
        return self._of(run).mean(run)

    def difference(self, first: str, second: str) -> Difference:
        """How far `first` is above `second`."""
        return difference(self.dataset, self.protocol, first, self._of(first), second, self._of(second))

    def _of(self, run: str) -> SameTargets:
        return next(same for same in self._targets if run in same.columns)


def comparisons(groups: Iterable[ResultGroup], models: Collection[str] | None = None) -> list[Comparison]:
    """The groups by dataset and protocol, honest protocols first.

    Args:
        models: use the runs of these models alone.
    """
    tables: dict[tuple[str, str], dict[str, Sequence[RunResult]]] = {}
    for group in groups:
        if models is None or group.model in models:
            tables.setdefault((group.dataset, group.protocol), {})[group.title] = group.runs
    every = [Comparison(dataset, protocol, runs) for (dataset, protocol), runs in tables.items()]
    return sorted(every, key=lambda one: not one.honest)


def decisive(every: Sequence[Comparison]) -> list[Comparison]:
    """Those with honest protocols; all where there are none."""
    return [one for one in every if one.honest] or list(every)


def _by_targets(runs: Mapping[str, Sequence[RunResult]]) -> list[SameTargets]:
    tables: list[SameTargets] = []
    for name, seeds in runs.items():
        owner = seeds[0].owner
        same = [seed for seed in seeds if np.array_equal(seed.owner, owner)]
        column = np.column_stack([gains(seed.rank, (20,))[DECISIVE] for seed in same])
        for table in tables:
            if np.array_equal(table.owner, owner):
                table.columns[name] = column
                break
        else:
            tables.append(SameTargets(owner, {name: column}))
    return tables

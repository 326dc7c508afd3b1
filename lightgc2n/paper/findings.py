"""Verdicts on claims: from the paper's printed numbers, and from our runs compared in pairs by dataset and protocol."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil
from typing import Any

import numpy as np

from lightgc2n.experiments.results import METRICS, ResultGroup, RunResult
from lightgc2n.metrics.paired_tests import (
    DECISIVE,
    Difference,
    SameTargets,
    decided,
    difference,
    left_open_by_holm,
)
from lightgc2n.metrics.ranking import gains
from lightgc2n.paper.document import Holding
from lightgc2n.paper.published import Scores, impossible

WITHOUT_USERS = "lightgc2n-wo-a"  # has no latent users, whatever its settings say
HONEST = frozenset({"last", "time", "cold-accounts"})  # protocols in which no test target is seen in training
Cells = Mapping[tuple[str, str], Scores]  # (dataset, model) -> metrics


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

    def with_users(self, users: int) -> "Comparison":
        """The runs with so many latent users, and those whose model has none."""
        runs = {
            name: seeds
            for name, seeds in self.runs.items()
            if seeds[0].settings.get("latent_users", users) == users or seeds[0].model == WITHOUT_USERS
        }
        return Comparison(self.dataset, self.protocol, runs)

    def ended_by_budget(self, run: str) -> bool:
        """Whether a run used all its epochs, so that more might have changed it."""
        return any(seed.is_cut for seed in self.runs[run])

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


@dataclass(frozen=True)
class Finding:
    """A verdict and its reason."""

    holding: Holding
    why: str


def settle(wins: int, losses: int, total: int, share: float = 1.0) -> Holding:
    """Return the verdict of `wins` and `losses` in `total` comparisons; the others are undecided.

    Args:
        share: of the comparisons that must be won for the claim to hold.
    """
    if total == 0:
        return "cannot be told"
    if wins >= share * total:
        return "holds"
    return "does not hold" if total - losses < share * total else "cannot be told"


ONLY_PUBLISHED = "No honest run: judged by the published protocol alone."
NO_RUNS = Finding("cannot be told", "No such runs.")


def tallied(signs: Sequence[int], why: str, missing: int = 0) -> Finding:
    """Return the finding of comparisons that support the claim (1), contradict it (-1), or are undecided (0)."""
    wins, losses, total = signs.count(1), signs.count(-1), len(signs) + missing
    return Finding(settle(wins, losses, total), f"{counted(wins, losses, total)}. {why}.")


def _enough(total: int, share: float) -> str:
    """Return how many comparisons are enough, for a claim that does not need all."""
    return "" if share == 1 else f"; {ceil(share * total)} are enough"


def counted(wins: int, losses: int, total: int) -> str:
    """Return how many comparisons support a claim, contradict it, and are undecided."""
    left = total - wins - losses
    against = f", {losses} clearly against it" if losses else ""
    plural = "comparison" if total == 1 else "comparisons"
    return f"{wins} of {total} {plural} clearly for it{against}{f', {left} undecided' if left else ''}"


def only_drawn(figure: str) -> Finding:
    """Return the finding for a claim that the paper shows only as a figure."""
    return Finding("cannot be told", f"{figure} shows it without printing a number.")


def printed(cells: Cells, winners: Sequence[str], losers: Sequence[str], share: float = 1.0) -> Finding:
    """Judge whether each of `winners` is printed above each of `losers`, on every dataset by every metric."""
    datasets = list(dict.fromkeys(dataset for dataset, _ in cells))
    pairs = list(product(datasets, winners, losers, METRICS))
    won = [cells[data, winner][metric] > cells[data, loser][metric] for data, winner, loser, metric in pairs]
    holding = settle(sum(won), len(won) - sum(won), len(won), share)
    why = f"{sum(won)} of {len(won)} printed comparisons agree{_enough(len(won), share)}."
    if not all(won):
        why += f" Against it, for example: {_counterexample(cells, pairs, won)}."
    return Finding(holding, why + _doubt(cells, datasets, [*winners, *losers]))


def _counterexample(cells: Cells, pairs: Sequence[tuple[str, str, str, str]], won: Sequence[bool]) -> str:
    """The comparison with the largest loss."""
    lost = [pair for pair, is_won in zip(pairs, won, strict=True) if not is_won]
    gaps = [cells[data, loser][metric] - cells[data, winner][metric] for data, winner, loser, metric in lost]
    data, winner, loser, metric = lost[gaps.index(max(gaps))]
    return f"{metric} on {data}, {winner} {cells[data, winner][metric]:.2f}, {loser} {cells[data, loser][metric]:.2f}"


def _doubt(cells: Cells, datasets: Sequence[str], models: Sequence[str]) -> str:
    concerned = {(data, model): cells[data, model] for data, model in product(datasets, models)}
    count = len(impossible(concerned))
    return f" {count} of the {len(concerned)} entries used break arithmetic (marked below)." if count else ""


@dataclass(frozen=True)
class Evidence:
    """Comparisons under one kind of protocol, the outcome of each, and those that are missing."""

    differences: tuple[Difference, ...]
    signs: tuple[int, ...]
    missing: tuple[str, ...] = ()
    unmade: int = 0  # comparisons that involve missing runs, or runs that their budget ended
    cut: tuple[str, ...] = ()  # runs that their budget ended, not patience: more epochs might change them
    seeds: tuple[int, ...] = ()  # of each run compared
    widths: tuple[int, ...] = ()  # every width of the runs compared
    datasets: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        return len(self.signs) + self.unmade

    def holding(self, share: float = 1.0) -> Holding:
        return settle(self.signs.count(1), self.signs.count(-1), self.total, share)

    def counts(self) -> str:
        return counted(self.signs.count(1), self.signs.count(-1), self.total)

    def correction(self) -> str:
        """What Holm's correction did to comparisons whose own interval excludes 0; empty if nothing."""
        return corrected_text(left_open_by_holm(self.differences, self.signs), len(self.signs))

    def basis(self) -> str:
        """What was compared: datasets, widths and seeds."""
        widths = f"every width {self.widths[0]}" if len(self.widths) == 1 else ""
        if len(self.widths) > 1:
            widths = f"widths {self.widths[0]} to {self.widths[-1]}, each model its own"
        least, most = min(self.seeds), max(self.seeds)
        several = f"{least} to {most}" if least < most else str(most)
        parts = [", ".join(self.datasets), widths, f"{several} {'seed' if several == '1' else 'seeds'}"]
        return f"Compared on {'; '.join(filter(None, parts))}."

    def deciding(self) -> Difference | None:
        """The comparison that supports the claim least."""
        return min(self.differences, key=lambda one: one.high, default=None)


def corrected_text(left: int, total: int) -> str:
    """What Holm's correction over `total` comparisons left undecided."""
    if not left:
        return ""
    them = "one of them" if left == 1 else f"{left} of them"
    which = "whose own 95 % interval excludes 0" if left == 1 else "whose own 95 % intervals exclude 0"
    return f"Holm's correction over {total} comparisons leaves {them}, {which}, undecided."


def gather(pairings: Sequence[tuple[Comparison, Sequence[str], Sequence[str]]]) -> Evidence:
    """Compare every run of a winner with every run of a loser; models are named as in the zoo."""
    differences: list[Difference] = []
    missing: list[str] = []
    cut: dict[str, None] = {}
    unmade = 0
    used: dict[tuple[str, str], Sequence[RunResult]] = {}
    for compared, winners, losers in pairings:
        missing += [f"{name} on {compared.dataset}" for name in (*winners, *losers) if not compared.of_models([name])]
        for winner, loser in product(winners, losers):
            pairs = list(product(compared.of_models([winner]), compared.of_models([loser])))
            unmade += not pairs
            for pair in pairs:
                ended = [f"{run} on {compared.dataset}" for run in pair if compared.ended_by_budget(run)]
                cut |= dict.fromkeys(ended)
                unmade += bool(ended)
                if not ended:
                    differences.append(compared.difference(*pair))
                    used |= {(compared.dataset, run): compared.runs[run] for run in pair}
    return Evidence(
        tuple(differences),
        tuple(decided(differences)),
        tuple(missing),
        unmade,
        tuple(cut),
        tuple(len(seeds) for seeds in used.values()),
        tuple(sorted({width for seeds in used.values() for width in widths_in(seeds[0].settings)})),
        tuple(dict.fromkeys(dataset for dataset, _ in used)),
    )


def widths_in(settings: Mapping[str, Any]) -> list[int]:
    """All widths among the settings of a run; a setting of 0 means the width of another setting."""
    return [int(value) for name, value in settings.items() if name.endswith("width") and value]


def measured(
    every: Sequence[Comparison], winners: Sequence[Sequence[str]], losers: Sequence[Sequence[str]], share: float = 1.0
) -> Finding:
    """Judge whether the runs of `winners` are above those of `losers`.

    Args:
        winners: models of the paper, each by its names in the zoo; one of them is enough.
        losers: models of the paper, in the same form.
    """
    pairings = [
        (compared, _present(compared, winners), _present(compared, losers))
        for compared in every
        if any(map(compared.of_models, winners)) and any(map(compared.of_models, losers))
    ]
    honest = gather([pairing for pairing in pairings if pairing[0].honest])
    leaking = gather([pairing for pairing in pairings if not pairing[0].honest])
    decisive = honest if honest.differences else leaking
    if not decisive.differences:
        cut = dict.fromkeys((*honest.cut, *leaking.cut))
        return Finding("cannot be told", f"Every run ended by its budget: {', '.join(cut)}.") if cut else NO_RUNS
    return Finding(decisive.holding(share), " ".join(_reasons(honest, leaking, share)))


def _present(compared: Comparison, models: Sequence[Sequence[str]]) -> list[str]:
    """The names in the zoo that have runs; the first name of a model where none has."""
    chosen = [[name for name in names if compared.of_models([name])] or [names[0]] for names in models]
    return [name for names in chosen for name in names]


def _reasons(honest: Evidence, leaking: Evidence, share: float) -> Iterator[str]:
    decisive = honest if honest.differences else leaking
    yield f"{decisive.counts()}{_enough(decisive.total, share)}. Least in favour: {decisive.deciding()}."
    yield from filter(None, [decisive.correction()])
    if decisive.missing:
        yield f"Missing: {', '.join(decisive.missing)}."
    if decisive.cut:
        yield f"Ended by their budget, so they judge nothing: {', '.join(decisive.cut)}."
    yield decisive.basis()
    if not honest.differences:
        yield ONLY_PUBLISHED
    elif leaking.total:
        yield f"By the published protocol: {leaking.counts()}."
        yield from filter(None, [leaking.correction()])

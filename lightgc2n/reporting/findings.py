"""How comparisons become a verdict: by the paper's printed numbers, and by the test accounts of our runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil

from lightgc2n.reporting.arithmetic import METRICS, Scores, impossible
from lightgc2n.reporting.contests import Contest, Difference, decided
from lightgc2n.reporting.document import Holding

Cells = Mapping[tuple[str, str], Scores]  # (dataset, model) -> metrics


@dataclass(frozen=True)
class Finding:
    """A verdict and what says so."""

    holding: Holding
    why: str


def settle(wins: int, losses: int, asked: int, share: float = 1.0) -> Holding:
    """What `wins` and `losses` of `asked` comparisons say; the others cannot be told.

    Args:
        share: of the comparisons that must be won for the claim to hold.
    """
    if asked == 0:
        return "cannot be told"
    if wins >= share * asked:
        return "holds"
    return "does not hold" if asked - losses < share * asked else "cannot be told"


ONLY_PUBLISHED = "No honest run: judged by the published protocol alone."
NO_RUNS = Finding("cannot be told", "No such runs.")


def tallied(signs: Sequence[int], why: str, missing: int = 0) -> Finding:
    """What comparisons say that are for the claim (1), against it (-1) or open (0), or could not be made."""
    wins, losses, asked = signs.count(1), signs.count(-1), len(signs) + missing
    return Finding(settle(wins, losses, asked), f"{counted(wins, losses, asked)}. {why}.")


def _enough(asked: int, share: float) -> str:
    """How many comparisons a claim needs that does not need all."""
    return "" if share == 1 else f"; {ceil(share * asked)} are enough"


def counted(wins: int, losses: int, asked: int) -> str:
    """How many of the comparisons speak for a claim, against it, or leave it undecided."""
    left = asked - wins - losses
    against = f", {losses} clearly against it" if losses else ""
    plural = "comparison" if asked == 1 else "comparisons"
    return f"{wins} of {asked} {plural} clearly for it{against}{f', {left} undecided' if left else ''}"


def only_drawn(figure: str) -> Finding:
    """For what the paper shows as a picture."""
    return Finding("cannot be told", f"{figure} shows it without printing a number.")


def printed(cells: Cells, winners: Sequence[str], losers: Sequence[str], share: float = 1.0) -> Finding:
    """Whether each of `winners` is printed above each of `losers`, on every dataset by every metric."""
    datasets = list(dict.fromkeys(dataset for dataset, _ in cells))
    asked = list(product(datasets, winners, losers, METRICS))
    won = [cells[data, winner][metric] > cells[data, loser][metric] for data, winner, loser, metric in asked]
    holding = settle(sum(won), len(won) - sum(won), len(won), share)
    why = f"{sum(won)} of {len(won)} printed comparisons say so{_enough(len(won), share)}."
    if not all(won):
        why += f" Not so, for example: {_counterexample(cells, asked, won)}."
    return Finding(holding, why + _doubt(cells, datasets, [*winners, *losers]))


def _counterexample(cells: Cells, asked: Sequence[tuple[str, str, str, str]], won: Sequence[bool]) -> str:
    """The comparison that is lost by most."""
    lost = [question for question, is_won in zip(asked, won, strict=True) if not is_won]
    gaps = [cells[data, loser][metric] - cells[data, winner][metric] for data, winner, loser, metric in lost]
    data, winner, loser, metric = lost[gaps.index(max(gaps))]
    return f"{metric} on {data}, {winner} {cells[data, winner][metric]:.2f}, {loser} {cells[data, loser][metric]:.2f}"


def _doubt(cells: Cells, datasets: Sequence[str], models: Sequence[str]) -> str:
    concerned = {(data, model): cells[data, model] for data, model in product(datasets, models)}
    count = len(impossible(concerned))
    return f" {count} of the {len(concerned)} entries used break arithmetic (marked below)." if count else ""


@dataclass(frozen=True)
class Evidence:
    """Comparisons under one kind of protocol, what each says, and which could not be made."""

    differences: tuple[Difference, ...]
    signs: tuple[int, ...]
    missing: tuple[str, ...] = ()
    unmade: int = 0  # comparisons with what is missing

    @property
    def asked(self) -> int:
        return len(self.signs) + self.unmade

    def holding(self, share: float = 1.0) -> Holding:
        return settle(self.signs.count(1), self.signs.count(-1), self.asked, share)

    def counts(self) -> str:
        return counted(self.signs.count(1), self.signs.count(-1), self.asked)

    def deciding(self) -> Difference | None:
        """The comparison that speaks most against the claim."""
        return min(self.differences, key=lambda found: found.high, default=None)


def gather(asked: Sequence[tuple[Contest, Sequence[str], Sequence[str]]]) -> Evidence:
    """Every run of a winner against every run of a loser, each given as models of the zoo."""
    differences, missing, unmade = [], [], 0
    for contest, winners, losers in asked:
        missing += [f"{name} on {contest.dataset}" for name in (*winners, *losers) if not contest.of_models([name])]
        for winner, loser in product(winners, losers):
            pairs = list(product(contest.of_models([winner]), contest.of_models([loser])))
            differences += [contest.difference(first, second) for first, second in pairs]
            unmade += not pairs
    return Evidence(tuple(differences), tuple(decided(differences)), tuple(missing), unmade)


def measured(
    found: Sequence[Contest], winners: Sequence[Sequence[str]], losers: Sequence[Sequence[str]], share: float = 1.0
) -> Finding:
    """Whether the runs of `winners` are above those of `losers`.

    Args:
        winners: models of the paper, each as the names it has in the zoo, of which one is enough.
        losers: likewise.
    """
    asked = [
        (contest, _present(contest, winners), _present(contest, losers))
        for contest in found
        if any(map(contest.of_models, winners)) and any(map(contest.of_models, losers))
    ]
    honest = gather([question for question in asked if question[0].honest])
    leaking = gather([question for question in asked if not question[0].honest])
    decisive = honest if honest.asked else leaking
    if not decisive.differences:
        return NO_RUNS
    return Finding(decisive.holding(share), " ".join(_reasons(honest, leaking, share)))


def _present(contest: Contest, models: Sequence[Sequence[str]]) -> list[str]:
    """The names in the zoo that have runs; where none of a model has, its first."""
    chosen = [[name for name in names if contest.of_models([name])] or [names[0]] for names in models]
    return [name for names in chosen for name in names]


def _reasons(honest: Evidence, leaking: Evidence, share: float) -> Iterator[str]:
    decisive = honest if honest.differences else leaking
    yield f"{decisive.counts()}{_enough(decisive.asked, share)}. Least in favour: {decisive.deciding()}."
    if decisive.missing:
        yield f"Missing: {', '.join(decisive.missing)}."
    if not honest.differences:
        yield ONLY_PUBLISHED
    elif leaking.differences:
        yield f"By the published protocol: {leaking.counts()}."

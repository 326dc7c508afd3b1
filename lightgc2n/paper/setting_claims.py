"""Claims about the best value of a setting: the values that may be the best, given the test accounts."""

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

from lightgc2n.metrics.paired_tests import Difference, decided, left_open_by_holm
from lightgc2n.paper.document import MODEL as MODEL
from lightgc2n.paper.document import Holding
from lightgc2n.paper.findings import NO_RUNS, ONLY_PUBLISHED, Comparison, Evidence, Finding, decisive

SWEPT = ("latent_users", "temperature", "contrast_weight")
SYMBOLS = {"latent_users": "α", "temperature": "β", "contrast_weight": "γ", "layers": "L"}


@dataclass(frozen=True)
class Best:
    """The best value of a setting on one dataset, and all values that may be the best."""

    compared: Comparison
    setting: str
    value: float
    candidates: frozenset[float]
    tried: frozenset[float]
    rival: Difference  # the best run against the closest one
    left_open: int = 0  # values that Holm's correction alone leaves possible
    users: int | None = None  # latent users of the other runs

    def __str__(self) -> str:
        close, others = len(self.candidates) - 1, len(self.tried) - 1
        also = f"; {close} of the {others} other values cannot be told from it" if close else ""
        also += f" ({_by_holm(self.left_open, others)})" if self.left_open else ""
        lead = f"{self.rival.value:.2f} points of MRR@20 before the next ({self.rival.interval})"
        fixed = "" if self.users is None or self.setting == "latent_users" else f", α = {self.users},"
        return f"On {self.compared.dataset}{fixed} {SYMBOLS[self.setting]} = {self.value:g} is best, {lead}{also}."


def _by_holm(left: int, others: int) -> str:
    """Why values cannot be told from the best although their own interval excludes 0."""
    whose = "one, whose own interval excludes" if left == 1 else f"{left}, whose own intervals exclude"
    return f"{whose} 0, by Holm's correction over {others} comparisons"


def sweep(compared: Comparison, setting: str) -> dict[float, str]:
    """Map values to runs, for the runs that differ only in `setting` from the majority."""
    runs = compared.of_models([MODEL])
    settings = {run: compared.runs[run][0].settings for run in runs}
    base = {name: _most_common([settings[run].get(name) for run in runs]) for name in SWEPT if name != setting}
    fitting = [run for run in runs if all(settings[run].get(name) == value for name, value in base.items())]
    return {round(float(settings[run][setting]), 6): run for run in fitting if setting in settings[run]}


def best_of(compared: Comparison, setting: str) -> Best | None:
    """Return the best value of a sweep; None if fewer than two values were tried."""
    runs = sweep(compared, setting)
    if len(runs) < 2:
        return None
    metric = {value: compared.mean(run) for value, run in runs.items()}
    best = max(metric, key=lambda value: metric[value])
    others = [value for value in runs if value != best]
    differences = [compared.difference(runs[best], runs[value]) for value in others]
    signs = decided(differences)
    close = {value for value, sign in zip(others, signs, strict=True) if sign != 1}
    rival = min(differences, key=lambda one: one.value)
    users = compared.runs[runs[best]][0].settings.get("latent_users")
    left = left_open_by_holm(differences, signs)
    return Best(compared, setting, best, frozenset({best, *close}), frozenset(runs), rival, left, users)


def _best_values(every: Sequence[Comparison], settings: Sequence[str]) -> list[Best]:
    """Return the best values under honest protocols, or under the published one if there is no other."""
    chosen = decisive([compared for compared in every if any(len(sweep(compared, name)) > 1 for name in settings)])
    return [best for compared in chosen for name in settings if (best := best_of(compared, name)) is not None]


def differs_by_dataset(every: Sequence[Comparison], setting: str) -> Finding:
    """Whether two datasets have best values that differ."""
    best = _best_values(every, [setting])
    if len({one.compared.dataset for one in best}) < 2:
        alone = " A sweep by an honest protocol judges; the others stand beside it." if len(every) > 1 and best else ""
        return Finding("cannot be told", f"Fewer than two datasets with this sweep.{alone} {_sentences(best)}".strip())
    apart = any(one.candidates.isdisjoint(other.candidates) for one in best for other in best)
    same = len({one.candidates for one in best}) == 1 and len(best[0].candidates) == 1
    holding: Holding = "holds" if apart else "does not hold" if same else "cannot be told"
    return Finding(holding, _sentences(best))


def best_lies_in(every: Sequence[Comparison], settings: Sequence[str], expected: Set[float]) -> Finding:
    """Whether the best value of each setting is among `expected`."""
    values = [best for best in _best_values(every, settings) if best.tried & expected and best.tried - expected]
    if {best.setting for best in values} != set(settings):
        return Finding("cannot be told", "Not all of these values were tried.")
    if all(best.candidates <= expected for best in values):
        return Finding("holds", _sentences(values))
    elsewhere = any(best.candidates.isdisjoint(expected) for best in values)
    return Finding("does not hold" if elsewhere else "cannot be told", _sentences(values))


def declines_after(every: Sequence[Comparison], setting: str, peak: float) -> Finding:
    """Whether every larger value than `peak` is worse."""
    chosen = decisive([compared for compared in every if peak in sweep(compared, setting)])
    differences = [
        compared.difference(runs[peak], runs[value])
        for compared in chosen
        for runs in (sweep(compared, setting),)
        for value in sorted(runs)
        if value > peak
    ]
    if not differences:
        return NO_RUNS
    evidence = Evidence(tuple(differences), tuple(decided(differences)))
    users = ", ".join(dict.fromkeys(_users(one) for one in chosen if _users(one)))
    why = f"{evidence.counts()}{f', with {users}' if users else ''}. Least in favour: {evidence.deciding()}."
    return Finding(evidence.holding(), " ".join(filter(None, [why, evidence.correction()])))


def _users(compared: Comparison) -> str:
    """The latent users of most runs of the model, as text."""
    values = [compared.runs[run][0].settings.get("latent_users") for run in compared.of_models([MODEL])]
    most = _most_common([value for value in values if value is not None])
    return "" if most is None else f"α = {most}"


def helps_only_at_some(
    sweeps: Sequence[Comparison], ablations: Sequence[Comparison], settings: Sequence[str], without: str
) -> Finding:
    """Whether the model beats the one `without` a part at some values of that part's settings, and loses at others."""
    chosen = decisive(
        [
            _joined(one, other, without)
            for one in sweeps
            for other in ablations
            if (one.dataset, one.protocol) == (other.dataset, other.protocol)
        ]
    )
    differences = [
        compared.difference(run, other)
        for compared in chosen
        for run in dict.fromkeys(run for name in settings for run in sweep(compared, name).values())
        for other in compared.of_models([without])
    ]
    if len(differences) < 2:
        return Finding("cannot be told", "No sweep on the data of a run without the contrast.")
    evidence = Evidence(tuple(differences), tuple(decided(differences)))
    signs = set(evidence.signs)
    holding: Holding = "holds" if {1, -1} <= signs else "does not hold" if signs in ({1}, {-1}) else "cannot be told"
    least, most = (pick(differences, key=lambda one: one.value) for pick in (min, max))
    helps, harms = evidence.signs.count(1), evidence.signs.count(-1)
    users = ", ".join(dict.fromkeys(_users(one) for one in chosen if _users(one)))
    counts = f"Of {evidence.total} settings{f', with {users},' if users else ''} it clearly helps at {helps}"
    why = f"{counts}, clearly harms at {harms}; the rest is undecided. Lowest: {least}. Highest: {most}."
    return Finding(holding, " ".join(filter(None, [why, evidence.correction()])))


def _joined(sweeps: Comparison, ablations: Comparison, without: str) -> Comparison:
    """The sweeps, and the ablation with as many latent users as most of their runs have."""
    users = _most_common([sweeps.runs[run][0].settings.get("latent_users") for run in sweeps.of_models([MODEL])])
    alike = ablations if users is None else ablations.with_users(users)
    more = {run: alike.runs[run] for run in alike.of_models([without])}
    return Comparison(sweeps.dataset, sweeps.protocol, {**sweeps.runs, **more})


def _sentences(values: Sequence[Best]) -> str:
    alone = [] if any(best.compared.honest for best in values) else [ONLY_PUBLISHED]
    return " ".join([*map(str, values), *alone])


def _most_common(values: Sequence[Any]) -> Any:
    return Counter(values).most_common(1)[0][0] if values else None

"""`leak`, our own experiment: each model's score from the target in the input to honest logs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from lightgc2n import zoo
from lightgc2n.errors import DataError
from lightgc2n.experiments.results import ResultGroup
from lightgc2n.experiments.table import Cell, Table
from lightgc2n.metrics.paired_tests import DECISIVE
from lightgc2n.paper.document import Figure, Section
from lightgc2n.paper.experiment_plan import Entry, Setup, Source
from lightgc2n.paper.experiment_results import ExperimentResults
from lightgc2n.paper.section_tables import INTERVALS, Part, one_figure, percent, series
from lightgc2n.paper.table1 import fits

SIMPLE = tuple(name for name, entry in zoo.ZOO.items() if entry.is_simple)
MODELS = (*SIMPLE, "lightgcn", "sasrec", "da-gcn", "lightgc2n", "lightgc2n-plus")
FEW = ("recency", "markov", "account-markov", "sasrec", "lightgc2n", "lightgc2n-plus")
STEPS: dict[str, dict[str, Any]] = {
    "target-in-input": {"protocol": "windows", "target_in_input": True},
    "windows": {"protocol": "windows"},
    "windows-without-copies": {"protocol": "windows", "copies": False},
}
HONEST = "last"
SHORT = {
    "target-in-input": "answer in the question",
    "windows": "random windows",
    "windows-without-copies": "windows without copies",
    HONEST: "honest logs",
}
SHOWN = ("RC@5", DECISIVE)


@dataclass(frozen=True)
class Ladder:
    """Windows, and logs of the same service if there are any."""

    windows: Source
    logs: Source | None


def ladders(sources: Sequence[Source]) -> list[Ladder]:
    """Pair the first windows with the first logs, the second with the second, and so on."""
    windows = [source for source in sources if source.kind == "windows"]
    logs = [source for source in sources if source.kind == "logs"]
    if not windows:
        raise DataError("leak: needs random windows: --data WINDOWS LOGS, where LOGS are logs of the same service.")
    return [Ladder(one, other) for one, other in zip_longest(windows, logs) if one is not None]


def runs_of_leak(setup: Setup) -> Iterator[Entry]:
    """Each model on three kinds of windows, and on the logs of the same service."""
    models = setup.chosen(FEW if setup.quick else MODELS)
    for ladder in ladders(setup.sources):
        for model in (model for model in models if fits(model, ladder.windows, setup)):
            for step, split in STEPS.items():
                yield Entry(ladder.windows, model, _domain(ladder.windows), f"{model}-{step}", split)
            if ladder.logs is not None:
                yield Entry(ladder.logs, model, _domain(ladder.logs), split={"protocol": HONEST})


def _domain(source: Source) -> str:
    return source.domains[0] if source.two_domains else ""


def section_of_leak(results: ExperimentResults) -> Section:
    text = (
        "The published benchmark cuts overlapping windows from one log and splits them at random, so a test target "
        "often occurs in training already; the released code even leaves the target in the input. Here the same "
        "models go through four protocols: the target in the input, random windows, windows that no training window "
        "contains, and honest logs. What is lost on the way was memory, not prediction.",
        "The last step is on logs of the same service, which need not be the logs that the windows were cut from: "
        "the targets differ, and perhaps the accounts and items, so read it as a level, not as a difference.",
    )
    parts = _parts(results)
    figures = one_figure("leak", f"{DECISIVE} of each model as the protocol becomes honest", list(map(_picture, parts)))
    return Section("leak", "From the published protocol to honest logs", text, tuple(map(_table, parts)), figures)


def beside(setup: Setup) -> dict[str, str]:
    """Return for each dataset of windows the name of its logs."""
    return {ladder.windows.name: ladder.logs.name for ladder in ladders(setup.sources) if ladder.logs is not None}


def _parts(results: ExperimentResults) -> list[Part]:
    """The groups of each ladder, under the name of its windows."""
    windows: dict[str, list[ResultGroup]] = {}
    for group in results.groups:
        if group.protocol != HONEST:
            windows.setdefault(group.dataset, []).append(group)
    for groups in windows.values():
        logs = results.requests.get(groups[0].first.dataset_folder, {}).get("beside", "")
        groups += [group for group in results.groups if group.protocol == HONEST and group.first.dataset_folder == logs]
    return [Part(results, name, "", groups) for name, groups in windows.items()]


def _rows(groups: Sequence[ResultGroup]) -> dict[str, Mapping[str, ResultGroup]]:
    """model -> step -> its group."""
    rows: dict[str, dict[str, ResultGroup]] = {}
    for group in groups:
        rows.setdefault(group.model, {})[group.protocol] = group
    return dict(rows)


def _table(part: Part) -> Table:
    rows, groups = [], part.groups
    best = {
        (step, metric): max((group.metric(metric) for group in groups if group.protocol == step), default=0.0)
        for step in SHORT
        for metric in SHOWN
    }
    for model, steps in _rows(groups).items():
        row = [Cell(model)]
        for step in SHORT:
            row += [_cell(steps.get(step), metric, best[step, metric]) for metric in SHOWN]
        rows.append(row)
    columns = ["model", *(f"{title}: {metric}" for title in SHORT.values() for metric in SHOWN)]
    logs = next((group.dataset for group in groups if group.protocol == HONEST), "")
    caption = part.dataset + (f", and the logs {logs}" if logs else ", without logs") + ", in %"
    return part.table(columns, rows, [INTERVALS], caption)


def _cell(group: ResultGroup | None, metric: str, best: float) -> Cell:
    if group is None:
        return Cell("-", mark="missing", note="no logs were given with these windows, or the run is missing")
    return percent(group.estimates[metric], mark="best" if group.metric(metric) == best else "")


def _picture(part: Part) -> Figure:
    lines = []
    for model, steps in _rows(part.groups).items():
        there = [step for step in SHORT if step in steps]
        scores = [steps[step].estimates[DECISIVE] for step in there]
        lines.append(series(model, [SHORT[step] for step in there], scores))
    title = f"{part.dataset}: the score as the protocol becomes honest"
    return Figure(part.file(), title, "lines", "protocol", f"{DECISIVE} in %", tuple(lines), part.command)

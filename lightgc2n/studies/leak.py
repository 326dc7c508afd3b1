"""`leak`, ours: what is left of each score as the protocol goes from the answer in the question to honest logs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from lightgc2n import zoo
from lightgc2n.errors import DataError
from lightgc2n.reporting.document import Cell, Figure, Section, Series, Table
from lightgc2n.studies.found import DECISIVE, Found, Group
from lightgc2n.studies.setup import Entry, Setup, Source
from lightgc2n.studies.table1 import fits
from lightgc2n.studies.tables import INTERVALS, file_name, one_figure, percent, row_of, table

FLOORS = tuple(name for name, entry in zoo.ZOO.items() if entry.is_floor)
MODELS = (*FLOORS, "lightgcn", "sasrec", "da-gcn", "lightgc2n", "lightgc2n-plus")
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
    """Windows, and logs of the same service where those are there."""

    windows: Source
    logs: Source | None


def ladders(sources: Sequence[Source]) -> list[Ladder]:
    """The first windows with the first logs, the second with the second, and so on."""
    windows = [source for source in sources if source.kind == "windows"]
    logs = [source for source in sources if source.kind == "logs"]
    if not windows:
        raise DataError("leak: needs random windows, as --data WINDOWS LOGS, where LOGS are logs of the same service.")
    return [Ladder(one, other) for one, other in zip_longest(windows, logs) if one is not None]


def runs_of_leak(setup: Setup) -> Iterator[Entry]:
    """Each model on three kinds of windows, and on the logs beside."""
    models = setup.chosen(FEW if setup.quick else MODELS)
    for ladder in ladders(setup.sources):
        for model in (model for model in models if fits(model, ladder.windows, setup)):
            for step, split in STEPS.items():
                yield Entry(ladder.windows, model, _domain(ladder.windows), f"{model}-{step}", split)
            if ladder.logs is not None:
                yield Entry(ladder.logs, model, _domain(ladder.logs), split={"protocol": HONEST})


def _domain(source: Source) -> str:
    return source.domains[0] if source.two_domains else ""


def section_of_leak(found: Found) -> Section:
    text = (
        "The published benchmark cuts overlapping windows from one log and divides them at random, so what is asked "
        "often stands in training already; the released code even leaves the answer in the question. Here the same "
        "models climb down that ladder: from the answer in the question, to random windows, to windows that no "
        "training window holds, to honest logs. What falls away on the way was memory, not foresight.",
        "The last step is on logs of the same service, which need not be the very logs that the windows were cut from: "
        "other questions, and perhaps other accounts and items, so read it as a level, not as a difference.",
    )
    pairs = _pairs(found)
    tables = tuple(_table(found, name, groups) for name, groups in pairs.items())
    panels = [_picture(found, name, groups) for name, groups in pairs.items()]
    figures = one_figure("leak", f"{DECISIVE} of each model as the protocol becomes honest", panels)
    return Section("leak", "From the published protocol to honest logs", text, tables, figures)


def beside(setup: Setup) -> dict[str, str]:
    """For each windows the logs beside them, by name."""
    return {ladder.windows.name: ladder.logs.name for ladder in ladders(setup.sources) if ladder.logs is not None}


def _pairs(found: Found) -> dict[str, list[Group]]:
    """The groups of each ladder, called after its windows."""
    windows: dict[str, list[Group]] = {}
    for group in found.groups:
        if group.protocol != HONEST:
            windows.setdefault(group.dataset, []).append(group)
    for groups in windows.values():
        logs = found.asked.get(groups[0].first.source, {}).get("beside", "")
        groups += [group for group in found.groups if group.protocol == HONEST and group.first.source == logs]
    return windows


def _rows(groups: Sequence[Group]) -> dict[str, Mapping[str, Group]]:
    """model -> step -> its group."""
    rows: dict[str, dict[str, Group]] = {}
    for group in groups:
        rows.setdefault(group.model, {})[group.protocol] = group
    return dict(rows)


def _table(found: Found, name: str, groups: Sequence[Group]) -> Table:
    rows = []
    best = {
        (step, metric): max((group.metric(metric) for group in groups if group.protocol == step), default=0.0)
        for step in SHORT
        for metric in SHOWN
    }
    for model, steps in _rows(groups).items():
        row = [row_of(model)]
        for step in SHORT:
            row += [_cell(steps.get(step), metric, best[step, metric]) for metric in SHOWN]
        rows.append(row)
    columns = ["model", *(f"{title}: {metric}" for title in SHORT.values() for metric in SHOWN)]
    logs = next((group.dataset for group in groups if group.protocol == HONEST), "")
    caption = f"{name}" + (f", and the logs {logs}" if logs else ", without logs") + ", in %"
    return table(found, file_name("leak", name), caption, columns, rows, groups, [INTERVALS])


def _cell(group: Group | None, metric: str, best: float) -> Cell:
    if group is None:
        return Cell("-", mark="missing", note="no logs were given beside these windows, or the run is missing")
    value = group.metric(metric)
    return percent(value, *group.intervals[metric], mark="best" if value == best else "")


def _picture(found: Found, name: str, groups: Sequence[Group]) -> Figure:
    lines = []
    for model, steps in _rows(groups).items():
        there = [step for step in SHORT if step in steps]
        bounds = [steps[step].intervals[DECISIVE] for step in there]
        lines.append(
            Series(
                model,
                tuple(SHORT[step] for step in there),
                tuple(100 * steps[step].metric(DECISIVE) for step in there),
                tuple(100 * low for low, _ in bounds),
                tuple(100 * high for _, high in bounds),
            )
        )
    title = f"{name}: what is left as the protocol becomes honest"
    command = found.command(groups)
    return Figure(file_name("leak", name), title, "lines", "protocol", f"{DECISIVE} in %", tuple(lines), command)

"""Cells, notes and tables that the sections of several experiments share."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lightgc2n import zoo
from lightgc2n.evaluation.metrics import paired_p_values
from lightgc2n.reporting.arithmetic import impossible
from lightgc2n.reporting.checking import checked
from lightgc2n.reporting.document import Cell, Figure, Table
from lightgc2n.studies.found import DECISIVE, METRICS, TWO_DOMAINS, Found, Group

PROTOCOLS = {
    "target-in-input": "target in the input",
    "windows": "random windows, as published",
    "windows-without-copies": "random windows without copies",
    "last": "honest logs: the last event of each account",
    "time": "honest logs: one cut in time",
    "cold-accounts": "honest logs: accounts that training never saw",
}
INTERVALS = "Intervals are 95 % over 1,000 draws of accounts, the seeds together."
BUDGET = "‡"
ENDED = f"{BUDGET} ended by its most epochs, not by patience: it may do better with more."
PAIRED = f"p: paired test on {DECISIVE} against the best, account by account."


def percent(value: float, low: float | None = None, high: float | None = None, mark: str = "", note: str = "") -> Cell:
    """A share of 1 as a cell in %."""
    scaled = [None if bound is None else 100 * bound for bound in (low, high)]
    return Cell(f"{100 * value:.2f}", 100 * value, scaled[0], scaled[1], mark, note)


def count(value: float) -> Cell:
    return Cell(f"{value:,.0f}", value)


def seconds(value: float | None) -> Cell:
    return Cell("-") if value is None else Cell(f"{value:.3g}" if value < 10 else f"{value:,.0f}", value)


def metric_cells(groups: Sequence[Group]) -> dict[str, list[Cell]]:
    """For each group its four metrics, the best of each column marked, then p; a row that cannot be is marked so."""
    best = {name: max(group.metric(name) for group in groups) for name in METRICS}
    broken, chances = impossible(_scores(groups)), chances_against_best(groups)
    cells: dict[str, list[Cell]] = {}
    for group in groups:
        marks = {name: "best" if group.metric(name) == best[name] else "" for name in METRICS}
        marks |= dict.fromkeys(METRICS, "impossible") if group.label in broken else {}
        metrics = [percent(group.metric(name), *group.intervals[name], mark=marks[name]) for name in METRICS]
        cells[group.label] = [*metrics, chances[group.label]]
    return cells


def _scores(groups: Sequence[Group]) -> dict[str, dict[str, float]]:
    """The four metrics of each group, in %."""
    return {group.label: {name: 100 * group.metric(name) for name in METRICS} for group in groups}


def metric_notes(groups: Sequence[Group]) -> list[str]:
    """How metrics, intervals and p are to be read, and what arithmetic says of them."""
    return [INTERVALS, PAIRED, checked(_scores(groups))]


def chances_against_best(groups: Sequence[Group]) -> dict[str, Cell]:
    """How likely a difference to the best at least this large is by chance, where the same was asked."""
    best = max(groups, key=lambda group: group.metric(DECISIVE))
    alike = [group for group in groups if group.questions == best.questions]
    differences = np.column_stack([group.gained[DECISIVE] - best.gained[DECISIVE] for group in alike])
    found = dict(zip((group.label for group in alike), paired_p_values(differences, best.first.ranks[1]), strict=True))
    cells = {}
    for group in groups:
        if group is best:
            cells[group.label] = Cell("best")
        elif group.label in found:
            chance = float(found[group.label])
            cells[group.label] = Cell("< 0.001" if chance < 0.001 else f"{chance:.3f}", chance)
        else:
            cells[group.label] = Cell("-", note="asked at another place of the log, so not paired")
    return cells


def cost_cells(group: Group) -> list[Cell]:
    """Parameters, epochs, seconds of training and the most memory; of a floor what it stores."""
    if zoo.ZOO[group.model].is_floor:
        stored = group.mean("stored_numbers")
        return [Cell(f"{stored:,.0f} stored", stored), *[Cell("-")] * 3]
    budget = sum(run.results["ended_by"] == "budget" for run in group.runs)
    note = f"{budget} of {len(group.runs)} ended by their most epochs, not by patience" if budget else ""
    epochs = Cell(f"{group.mean('epochs'):.0f}" + (BUDGET if budget else ""), group.mean("epochs"), note=note)
    return [
        count(group.parameters),
        epochs,
        seconds(group.mean("training_seconds")),
        count(group.mean("peak_memory_mb")),
    ]


COSTS = ("parameters", "epochs", "training s", "peak MB")


def table(
    found: Found, name: str, caption: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]],
    groups: Sequence[Group], notes: Sequence[str] = (),
) -> Table:  # fmt: skip
    """The table with all that a reader must know below it."""
    ended = [ENDED] if any(BUDGET in cell.text for row in rows for cell in row) else []
    told = (*notes, *ended, *common_notes(found, groups))
    return Table(name, caption, tuple(columns), tuple(tuple(row) for row in rows), found.command(groups), told)


def common_notes(found: Found, groups: Sequence[Group]) -> Iterator[str]:
    """Protocol, questions, seeds, settings, seconds, what is missing."""
    protocols = dict.fromkeys(group.protocol for group in groups)
    yield f"Protocol: {'; '.join(PROTOCOLS[protocol] for protocol in protocols)}."
    yield from dict.fromkeys(stamp for group in groups for stamp in group.first.results["stamps"])
    yield from dict.fromkeys(note for group in groups for note in group.first.results["notes"])
    yield _seeds(groups)
    yield from settings_notes(found, groups)
    yield cost_note(groups)
    sources = tuple(f"{group.first.source}-" for group in groups)
    yield from (f"Missing: {run}: {why}" for run, why in found.missing.items() if run.startswith(sources))


def _seeds(groups: Sequence[Group]) -> str:
    most = max(len(group.runs) for group in groups)
    trained = [group for group in groups if not zoo.ZOO[group.model].is_floor]
    fewer = ", ".join(f"{group.label} ({len(group.runs)})" for group in trained if len(group.runs) < most)
    told = f"{most} seeds, means of them" if most > 1 else "One seed"
    floors = " Floors draw nothing and have one." if len(trained) < len(groups) else ""
    return f"{told}{f'; fewer: {fewer}' if fewer else ''}.{floors}"


def settings_notes(found: Found, groups: Sequence[Group]) -> Iterator[str]:
    """Whose settings come from files, and whose are their defaults."""
    folders: dict[str, list[str]] = {}
    for group in groups:
        if not zoo.ZOO[group.model].is_floor:
            file = found.file(group)
            folders.setdefault(file.rpartition("/")[0] if file else "", []).append(group.model)
    for folder, models in folders.items():
        what = f"Settings from {folder}, whose files say how they were found" if folder else "Default settings"
        yield f"{what}: {', '.join(dict.fromkeys(models))}."


def cost_note(groups: Sequence[Group]) -> str:
    """What the runs of a table took, device by device."""
    spent: dict[str, list[float]] = {}
    at_once: dict[str, int] = {}
    for run in {run.folder: run for group in groups for run in group.runs}.values():
        device = str(run.results["device"])
        total = spent.setdefault(device, [0.0, 0.0])
        total[0] += run.results["training_seconds"]
        total[1] += run.results["test_seconds"]
        at_once[device] = max(at_once.get(device, 1), int(run.results["side_by_side"]))
    words = [
        f"{trained:,.0f} s of training and {tested:,.0f} s of counting and tests on {device}"
        + (f", up to {at_once[device]} runs side by side" if at_once[device] > 1 else "")
        for device, (trained, tested) in spent.items()
    ]
    return f"Cost: {'; '.join(words)}."


def one_figure(name: str, title: str, panels: Sequence[Figure]) -> tuple[Figure, ...]:
    """Several plots as small multiples; a single one stays as it is."""
    if len(panels) < 2:
        return tuple(panels)
    first, given = panels[0], [command for panel in panels for command in panel.command.split(" && ")]
    commands = " && ".join(dict.fromkeys(given))
    return (Figure(name, title, first.kind, first.x_label, first.y_label, (), commands, panels=tuple(panels)),)


def row_of(label: str, note: str = "") -> Cell:
    """The cell that names a row."""
    return Cell(label.removesuffix(TWO_DOMAINS) + (" (two domains)" if label.endswith(TWO_DOMAINS) else ""), note=note)


def file_name(*parts: Any) -> str:
    """A name for a file that these words give."""
    return "-".join(str(part).replace(" ", "-").replace("/", "-") for part in parts if part)


def paper_cells(scores: Mapping[str, float] | None, broken: Sequence[str] = ()) -> list[Cell]:
    """The paper's four metrics for one model, marked where they cannot be."""
    if scores is None:
        return [Cell("-")] * len(METRICS)
    notes = [f"The paper's row: {'; '.join(broken)}." if broken else "", *[""] * (len(METRICS) - 1)]
    mark = "impossible" if broken else ""
    return [
        Cell(f"{scores[name]:.2f}", scores[name], mark=mark, note=note)
        for name, note in zip(METRICS, notes, strict=True)
    ]

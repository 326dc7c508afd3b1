"""Cells, notes and tables that the sections of several experiments share."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lightgc2n import zoo
from lightgc2n.experiments.results import METRICS, ResultGroup
from lightgc2n.experiments.table import BUDGET, BUDGET_NOTE, Cell, Table, p_text
from lightgc2n.metrics.intervals import Estimate
from lightgc2n.metrics.paired_tests import DECISIVE, paired_against
from lightgc2n.paper.document import Figure, Series
from lightgc2n.paper.experiment_results import ExperimentResults
from lightgc2n.paper.published import checked, impossible

PROTOCOLS = {
    "target-in-input": "target in the input",
    "windows": "random windows, as published",
    "windows-without-copies": "random windows without copies",
    "last": "honest logs: the last event of each account",
    "time": "honest logs: one cut in time",
    "cold-accounts": "honest logs: accounts that training never saw",
}
INTERVALS = "Intervals are 95 % over 1,000 draws of accounts, the seeds together."
PAIRED = f"p: paired test on {DECISIVE} against the best, by account."


def percent(share: Estimate, mark: str = "") -> Cell:
    """A share with its interval as a cell in %."""
    return Cell(f"{100 * share.value:.2f}", 100 * share.value, 100 * share.low, 100 * share.high, mark)


def count(value: float) -> Cell:
    return Cell(f"{value:,.0f}", value)


def seconds(value: float | None) -> Cell:
    return Cell("-") if value is None else Cell(f"{value:.3g}" if value < 10 else f"{value:,.0f}", value)


def metric_cells(groups: Sequence[ResultGroup]) -> dict[str, list[Cell]]:
    """For each group its four metrics, the best of each column marked, then p; impossible rows are marked."""
    best = {name: max(group.metric(name) for group in groups) for name in METRICS}
    broken, p_values = impossible(_scores(groups)), p_against_best(groups)
    cells: dict[str, list[Cell]] = {}
    for group in groups:
        marks = {name: "best" if group.metric(name) == best[name] else "" for name in METRICS}
        marks |= dict.fromkeys(METRICS, "impossible") if group.title in broken else {}
        metrics = [percent(group.estimates[name], mark=marks[name]) for name in METRICS]
        cells[group.title] = [*metrics, p_values[group.title]]
    return cells


def _scores(groups: Sequence[ResultGroup]) -> dict[str, dict[str, float]]:
    """The four metrics of each group, in %."""
    return {group.title: {name: 100 * group.metric(name) for name in METRICS} for group in groups}


def metric_notes(groups: Sequence[ResultGroup]) -> list[str]:
    """How to read metrics, intervals and p, and whether the numbers obey arithmetic."""
    return [INTERVALS, PAIRED, checked(_scores(groups))]


def p_against_best(groups: Sequence[ResultGroup]) -> dict[str, Cell]:
    """The p-value of the paired test against the best group, for groups with the same targets."""
    best = max(groups, key=lambda group: group.metric(DECISIVE))
    same = {
        group.title: group.gained[DECISIVE]
        for group in groups
        if group.first.targets_checksum == best.first.targets_checksum
    }
    p_values = {title: p for title, (_, p) in paired_against(best.title, same, best.first.owner).items()}
    cells = {}
    for group in groups:
        if group is best:
            cells[group.title] = Cell("best")
        elif group.title in p_values:
            cells[group.title] = Cell(p_text(p_values[group.title]), p_values[group.title])
        else:
            cells[group.title] = Cell("-", note="tested at another place of the log, so not paired")
    return cells


def cost_cells(group: ResultGroup) -> list[Cell]:
    """Parameters, epochs, seconds of training and peak memory; for a simple baseline the numbers it stores."""
    if zoo.ZOO[group.model].is_simple:
        stored = group.mean("stored_numbers")
        return [Cell(f"{stored:,.0f} stored", stored), *[Cell("-")] * 3]
    budget = sum(run.is_cut for run in group.runs)
    note = f"{budget} of {len(group.runs)} ended by their most epochs, not by patience" if budget else ""
    epochs = Cell(f"{group.mean('epochs'):.0f}" + (BUDGET if budget else ""), group.mean("epochs"), note=note)
    return [
        _numbers(group),
        epochs,
        seconds(group.mean("training_seconds")),
        count(group.mean("peak_memory_mb")),
    ]


def _numbers(group: ResultGroup) -> Cell:
    """The parameters of a trained model and, where it counts too, the numbers that it stores besides."""
    stored = round(group.mean("stored_numbers"))
    if not stored:
        return count(group.parameters)
    return Cell(f"{group.parameters:,} + {stored:,} stored", group.parameters + stored)


COSTS = ("parameters", "epochs", "training s", "peak MB")


@dataclass(frozen=True)
class Part:
    """The runs of an experiment that share a table: those on one dataset by one protocol."""

    results: ExperimentResults
    dataset: str
    protocol: str
    groups: Sequence[ResultGroup]

    @property
    def title(self) -> str:
        return f"{self.dataset}, {PROTOCOLS[self.protocol]}"

    @property
    def command(self) -> str:
        return self.results.command(self.groups)

    def file(self, *more: str) -> str:
        """A file name for a table or plot of this part."""
        parts = (self.results.name, self.dataset, self.protocol, *more)
        return "-".join(part.replace(" ", "-").replace("/", "-") for part in parts if part)

    def table(
        self, columns: Sequence[str], rows: Sequence[Sequence[Cell]], notes: Sequence[str], caption: str = ""
    ) -> Table:
        """A table with the notes that every table has."""
        ended = [BUDGET_NOTE] if any(BUDGET in cell.text for row in rows for cell in row) else []
        every = (*notes, *ended, *common_notes(self.results, self.groups))
        cells = tuple(tuple(row) for row in rows)
        return Table(self.file(), caption or f"{self.title}, in %", tuple(columns), cells, self.command, every)


def parts_of(results: ExperimentResults) -> list[Part]:
    """One part for each dataset and protocol."""
    tables: dict[tuple[str, str], list[ResultGroup]] = {}
    for group in results.groups:
        tables.setdefault((group.dataset, group.protocol), []).append(group)
    return [Part(results, dataset, protocol, groups) for (dataset, protocol), groups in tables.items()]


def common_notes(results: ExperimentResults, groups: Sequence[ResultGroup]) -> Iterator[str]:
    """Protocol, stamps, seeds, settings, costs and missing runs."""
    protocols = dict.fromkeys(group.protocol for group in groups)
    yield f"Protocol: {'; '.join(PROTOCOLS[protocol] for protocol in protocols)}."
    yield from dict.fromkeys(stamp for group in groups for stamp in group.first.stamps)
    yield from dict.fromkeys(note for group in groups for note in group.first.notes)
    yield _seeds(groups)
    yield from settings_notes(results, groups)
    yield cost_note(groups)
    datasets = {group.first.dataset_folder for group in groups}
    yield from (f"Missing: {one.run}: {one.reason}" for one in results.missing if one.dataset_folder in datasets)


def _seeds(groups: Sequence[ResultGroup]) -> str:
    most = max(len(group.runs) for group in groups)
    trained = [group for group in groups if not zoo.ZOO[group.model].is_simple]
    fewer = ", ".join(f"{group.title} ({len(group.runs)})" for group in trained if len(group.runs) < most)
    seeds = f"{most} seeds, means of them" if most > 1 else "One seed"
    simple = " Simple baselines use no random numbers and have one." if len(trained) < len(groups) else ""
    return f"{seeds}{f'; fewer: {fewer}' if fewer else ''}.{simple}"


def settings_notes(results: ExperimentResults, groups: Sequence[ResultGroup]) -> Iterator[str]:
    """Which models have settings from files, and which have their defaults."""
    folders: dict[str, list[str]] = {}
    for group in groups:
        if not zoo.ZOO[group.model].is_simple:
            file = results.settings_file(group)
            folders.setdefault(file.rpartition("/")[0] if file else "", []).append(group.model)
    for folder, models in folders.items():
        what = f"Settings from {folder}, whose files say how they were tuned" if folder else "Default settings"
        yield f"{what}: {', '.join(dict.fromkeys(models))}."


def cost_note(groups: Sequence[ResultGroup]) -> str:
    """The seconds that the runs of a table took, by device."""
    spent: dict[str, list[float]] = {}
    at_once: dict[str, int] = {}
    for run in {run.folder: run for group in groups for run in group.runs}.values():
        total = spent.setdefault(run.device, [0.0, 0.0])
        total[0] += run.training_seconds
        total[1] += run.test_seconds
        at_once[run.device] = max(at_once.get(run.device, 1), run.at_once)
    words = [
        f"{trained:,.0f} s of training and {tested:,.0f} s of counting and tests on {device}"
        + (f", up to {at_once[device]} runs side by side" if at_once[device] > 1 else "")
        for device, (trained, tested) in spent.items()
    ]
    return f"Cost: {'; '.join(words)}."


def one_figure(name: str, title: str, panels: Sequence[Figure]) -> tuple[Figure, ...]:
    """Join several plots into small multiples; a single one is returned as it is."""
    if len(panels) < 2:
        return tuple(panels)
    first, every = panels[0], [command for panel in panels for command in panel.command.split(" && ")]
    commands = " && ".join(dict.fromkeys(every))
    return (Figure(name, title, first.kind, first.x_label, first.y_label, (), commands, panels=tuple(panels)),)


def series(name: str, x: Sequence[float | str], shares: Sequence[Estimate], style: int | None = None) -> Series:
    """Shares with their intervals as a line or a set of bars, in %."""
    y, low, high = (tuple(100 * getattr(one, part) for one in shares) for part in ("value", "low", "high"))
    return Series(name, tuple(x), y, low, high, style)


def row_title(group: ResultGroup, label: str = "") -> str:
    """The title of a group's row: its label, or another one, and whether it ran on two domains at once."""
    return (label or group.label) + (" (two domains)" if group.domains > 1 else "")


def paper_cells(scores: Mapping[str, float] | None, broken: Sequence[str] = ()) -> list[Cell]:
    """Return the paper's four metrics for one model, marked if they are impossible."""
    if scores is None:
        return [Cell("-")] * len(METRICS)
    notes = [f"The paper's row: {'; '.join(broken)}." if broken else "", *[""] * (len(METRICS) - 1)]
    mark = "impossible" if broken else ""
    return [
        Cell(f"{scores[name]:.2f}", scores[name], mark=mark, note=note)
        for name, note in zip(METRICS, notes, strict=True)
    ]

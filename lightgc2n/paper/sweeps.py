"""`hyperparameters` (RQ4) and `layers` (A7): LightGC²N with one setting varied at a time."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lightgc2n.experiments.results import METRICS, ResultGroup
from lightgc2n.experiments.table import Cell, Table
from lightgc2n.metrics.paired_tests import DECISIVE
from lightgc2n.paper.document import Figure, Section, Series
from lightgc2n.paper.experiment_plan import Entry, Setup
from lightgc2n.paper.experiment_results import ExperimentResults
from lightgc2n.paper.section_tables import (
    COSTS,
    Part,
    cost_cells,
    metric_cells,
    metric_notes,
    one_figure,
    parts_of,
    row_title,
    seconds,
    series,
)

TENTHS = tuple(step / 10 for step in range(1, 11))


@dataclass(frozen=True)
class Sweep:
    """One setting and the values to try, in a full and in a quick run."""

    symbol: str  # in the names of runs
    setting: str
    values: tuple[float, ...]
    quick: tuple[float, ...]

    def label(self, value: float) -> str:
        """The name of the run with this value."""
        return f"{self.symbol}-{value}"

    def value(self, group: ResultGroup) -> float | None:
        """Return the value of a run of this sweep; None for another run."""
        value = group.settings.get(self.setting)
        return None if value is None or group.label != self.label(value) else float(value)


SWEEPS = (
    Sweep("alpha", "latent_users", (1, 2, 3, 4, 5), (1, 3, 5)),
    Sweep("beta", "temperature", TENTHS, (0.2, 0.8)),
    Sweep("gamma", "contrast_weight", TENTHS, (0.2, 0.8)),
)
LAYERS = (Sweep("L", "layers", (1, 2, 3, 4, 5), (1, 2, 3)),)
MEANING = {
    "alpha": "α, latent users behind an account",
    "beta": "β, temperature of the contrast",
    "gamma": "γ, weight of the contrast",
    "L": "L, graph convolutions",
}
REFERENCE = "lightgc2n-plus"


def runs_of_hyperparameters(setup: Setup) -> Iterator[Entry]:
    yield from _runs(setup, SWEEPS)


def runs_of_layers(setup: Setup) -> Iterator[Entry]:
    yield from _runs(setup, LAYERS)


def section_of_hyperparameters(results: ExperimentResults) -> Section:
    text = (
        "One setting of LightGC²N is varied, the others stay fixed. The paper finds that the best number of latent "
        "users differs from data to data, and that temperature and weight of the contrast are best at 0.8 or 0.9.",
    )
    return _section(results, "Hyper-parameters (RQ4, Figure 4)", text, SWEEPS)


def section_of_layers(results: ExperimentResults) -> Section:
    text = (
        "More graph convolutions reach further in the graph, and may make all vectors alike. The paper's model is best "
        "with two, and its time and parameters grow faster and faster with each.",
    )
    return _section(results, "Number of layers (appendix A7, Figure 6)", text, LAYERS)


def _runs(setup: Setup, sweeps: Iterable[Sweep]) -> Iterator[Entry]:
    for source, domain in setup.views():
        for sweep in sweeps:
            for value in sweep.quick if setup.quick else sweep.values:
                yield Entry(source, "lightgc2n", domain, sweep.label(value), settings={sweep.setting: value})
        yield Entry(source, REFERENCE, domain)


def _section(results: ExperimentResults, title: str, text: tuple[str, ...], sweeps: Sequence[Sweep]) -> Section:
    parts = parts_of(results)
    figures: list[Figure] = []
    for part in parts:
        panels = [panel for sweep in sweeps for panel in _pictures(part, sweep)]
        figures += one_figure(part.file(), f"{part.title}: LightGC²N with one setting varied", panels)
    stories = (story for part in parts for story in _stories(part, sweeps))
    tables = tuple(_table(part, sweeps) for part in parts)
    return Section(results.name, title, (*text, *stories), tables, tuple(figures))


def _values(groups: Sequence[ResultGroup], sweep: Sweep) -> dict[float, ResultGroup]:
    """Map values to groups for the runs of one sweep, the smallest value first."""
    values = {value: group for group in groups if (value := sweep.value(group)) is not None}
    return dict(sorted(values.items()))


def _stories(part: Part, sweeps: Iterable[Sweep]) -> Iterator[str]:
    for sweep in sweeps:
        if scores := {value: group.metric(DECISIVE) for value, group in _values(part.groups, sweep).items()}:
            best, worst = (pick(scores, key=lambda value: scores[value]) for pick in (max, min))
            most, least = (f"{value:g} with {100 * scores[value]:.2f} %" for value in (best, worst))
            if len(scores) == 1:
                yield f"{part.title}: {MEANING[sweep.symbol]}: only one value was run, {DECISIVE} at {most}."
                continue
            yield f"{part.title}: {MEANING[sweep.symbol]}: {DECISIVE} is best at {most}, least at {least}."


def _table(part: Part, sweeps: Sequence[Sweep]) -> Table:
    cells = metric_cells(part.groups)
    rows = [
        [
            Cell(row_title(group, _title(group, sweeps))),
            *cells[group.title],
            _validation(group),
            *cost_cells(group),
            seconds(group.seconds_per_epoch),
        ]
        for group in part.groups
    ]
    columns = ["setting", *METRICS, "p", f"validation {DECISIVE}", *COSTS, "s an epoch"]
    return part.table(columns, rows, metric_notes(part.groups))


def _title(group: ResultGroup, sweeps: Sequence[Sweep]) -> str:
    """Return the meaning and value of the varied setting; empty for a run without one."""
    own = next((sweep for sweep in sweeps if sweep.value(group) is not None), None)
    return f"{MEANING[own.symbol]} = {group.settings[own.setting]}" if own else ""


def _validation(group: ResultGroup) -> Cell:
    values = [run.validation for run in group.runs if run.validation is not None]
    return Cell(f"{100 * sum(values) / len(values):.2f}", 100 * sum(values) / len(values)) if values else Cell("-")


def _pictures(part: Part, sweep: Sweep) -> Iterator[Figure]:
    groups = _values(part.groups, sweep)
    if not groups:
        return
    meaning, values, runs = MEANING[sweep.symbol], tuple(groups), list(groups.values())
    lines = tuple(series(metric, values, [group.estimates[metric] for group in runs]) for metric in ("RC@5", DECISIVE))
    shown = {"": ("accuracy", "in %", lines)}
    if sweep.setting == "layers":
        time = Series("lightgc2n", values, tuple(group.seconds_per_epoch or 0.0 for group in runs))
        size = Series("lightgc2n", values, tuple(float(group.parameters) for group in runs))
        shown |= {"time": ("seconds an epoch",) * 2 + ((time,),), "parameters": ("parameters",) * 2 + ((size,),)}
    for name, (what, unit, curves) in shown.items():
        title = f"{part.dataset}: {what} by {meaning}"
        yield Figure(part.file(sweep.symbol, name), title, "lines", meaning, unit, curves, part.results.command(runs))

"""`hyperparameters` (RQ4) and `layers` (A7): LightGC²N as one setting after the other is turned."""

from collections.abc import Iterable, Iterator, Sequence

from lightgc2n.reporting.document import Cell, Figure, Section, Series, Table
from lightgc2n.studies.found import DECISIVE, METRICS, Found, Group
from lightgc2n.studies.setup import Entry, Setup
from lightgc2n.studies.tables import (
    COSTS,
    PROTOCOLS,
    cost_cells,
    file_name,
    metric_cells,
    metric_notes,
    one_figure,
    row_of,
    seconds,
    table,
)

TENTHS = tuple(step / 10 for step in range(1, 11))
# The paper's symbol, the setting, all values and those of a quick look.
SWEEPS: dict[str, tuple[str, tuple[float, ...], tuple[float, ...]]] = {
    "alpha": ("latent_users", (1, 2, 3, 4, 5), (1, 3, 5)),
    "beta": ("temperature", TENTHS, (0.2, 0.8)),
    "gamma": ("contrast_weight", TENTHS, (0.2, 0.8)),
}
LAYERS: dict[str, tuple[str, tuple[float, ...], tuple[float, ...]]] = {"L": ("layers", (1, 2, 3, 4, 5), (1, 2, 3))}
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


def section_of_hyperparameters(found: Found) -> Section:
    text = (
        "One setting of LightGC²N is turned while all others stay. The paper finds that the best number of latent "
        "users differs from data to data, and that temperature and weight of the contrast are best at 0.8 or 0.9.",
        *_stories(found, SWEEPS),
    )
    return _section(found, "hyperparameters", "Hyper-parameters (RQ4, Figure 4)", text, SWEEPS)


def section_of_layers(found: Found) -> Section:
    text = (
        "More graph convolutions reach further in the graph, and may make all vectors alike. The paper is best with "
        "two, and its time and parameters grow faster and faster with each.",
        *_stories(found, LAYERS),
    )
    return _section(found, "layers", "Number of layers (appendix A7, Figure 6)", text, LAYERS)


def _runs(setup: Setup, sweeps: dict[str, tuple[str, tuple[float, ...], tuple[float, ...]]]) -> Iterator[Entry]:
    for source, domain in setup.views():
        for symbol, (name, every, few) in sweeps.items():
            for value in few if setup.quick else every:
                label = f"{symbol}-{value}"
                yield Entry(source, "lightgc2n", domain, label, settings={name: value})
        yield Entry(source, REFERENCE, domain)


def _section(found: Found, name: str, title: str, text: tuple[str, ...], sweeps: Iterable[str]) -> Section:
    tables: list[Table] = []
    figures: list[Figure] = []
    for (dataset, protocol), groups in found.tables().items():
        tables.append(_table(found, name, dataset, protocol, groups))
        panels = [
            panel
            for symbol in sweeps
            for panel in _pictures(found, name, dataset, protocol, symbol, _of(groups, symbol))
        ]
        turned = f"{dataset}, {PROTOCOLS[protocol]}: LightGC²N as one setting is turned"
        figures += one_figure(file_name(name, dataset, protocol), turned, panels)
    return Section(name, title, text, tuple(tables), tuple(figures))


def _of(groups: Sequence[Group], symbol: str) -> list[Group]:
    """The groups of one sweep, the smallest value first."""
    return sorted((group for group in groups if group.label.startswith(f"{symbol}-")), key=_value)


def _value(group: Group) -> float:
    return float(group.label.rpartition("-")[2])


def _stories(found: Found, sweeps: Iterable[str]) -> Iterator[str]:
    for (dataset, protocol), groups in found.tables().items():
        for symbol in sweeps:
            if swept := _of(groups, symbol):
                best, last = (pick(swept, key=lambda group: group.metric(DECISIVE)) for pick in (max, min))
                most, least = (f"{_value(group):g} with {100 * group.metric(DECISIVE):.2f} %" for group in (best, last))
                where = f"{dataset}, {PROTOCOLS[protocol]}: {MEANING[symbol]}"
                yield f"{where}: {DECISIVE} is best at {most}, least at {least}."


def _table(found: Found, name: str, dataset: str, protocol: str, groups: Sequence[Group]) -> Table:
    cells = metric_cells(groups)
    rows = [
        [
            row_of(_title(group)),
            *cells[group.label],
            _validation(group),
            *cost_cells(group),
            seconds(group.seconds_an_epoch),
        ]
        for group in groups
    ]
    columns = ["setting", *METRICS, "p", f"validation {DECISIVE}", *COSTS, "s an epoch"]
    caption = f"{dataset}, {PROTOCOLS[protocol]}, in %"
    return table(found, file_name(name, dataset, protocol), caption, columns, rows, groups, metric_notes(groups))


def _title(group: Group) -> str:
    symbol, _, value = group.label.rpartition("-")
    return f"{MEANING[symbol]} = {value}" if symbol in MEANING else group.label


def _validation(group: Group) -> Cell:
    found = [run.results["validation"] for run in group.runs if run.results["validation"] is not None]
    return Cell(f"{100 * sum(found) / len(found):.2f}", 100 * sum(found) / len(found)) if found else Cell("-")


def _pictures(
    found: Found, name: str, dataset: str, protocol: str, symbol: str, groups: Sequence[Group]
) -> Iterator[Figure]:
    if not groups:
        return
    values = tuple(_value(group) for group in groups)
    lines = tuple(
        Series(
            metric,
            values,
            tuple(100 * group.metric(metric) for group in groups),
            tuple(100 * group.intervals[metric][0] for group in groups),
            tuple(100 * group.intervals[metric][1] for group in groups),
        )
        for metric in ("RC@5", DECISIVE)
    )
    place, command = file_name(name, dataset, protocol, symbol), found.command(groups)
    yield Figure(place, f"{dataset}: accuracy by {MEANING[symbol]}", "lines", MEANING[symbol], "in %", lines, command)
    if symbol == "L":
        costs = {
            "time": ("seconds an epoch", tuple(group.seconds_an_epoch or 0.0 for group in groups)),
            "parameters": ("parameters", tuple(float(group.parameters) for group in groups)),
        }
        for what, (label, y) in costs.items():
            title = f"{dataset}: {label} by {MEANING[symbol]}"
            series = (Series("lightgc2n", values, y),)
            yield Figure(f"{place}-{what}", title, "lines", MEANING[symbol], label, series, command)

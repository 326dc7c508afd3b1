"""`statistics` (A2): the size and shape of each dataset, and how often windows repeat one event."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lightgc2n.data.dataset import load_dataset, verify_dataset
from lightgc2n.data.leak_audit import audit_split
from lightgc2n.data.splits import SplitConfig, split_dataset
from lightgc2n.data.statistics import statistics
from lightgc2n.errors import DataError, OutputError
from lightgc2n.experiments.table import Cell, Table
from lightgc2n.files.atomic_writes import new_file
from lightgc2n.files.folder_kinds import is_made_by_us
from lightgc2n.paper.document import Figure, Section, Series
from lightgc2n.paper.experiment_plan import Setup
from lightgc2n.paper.experiment_results import ExperimentResults
from lightgc2n.paper.published import DATASETS, STATISTICS
from lightgc2n.paper.section_tables import count
from lightgc2n.paper.table1 import PAPER_SETS

Column = Mapping[str, Any]


def measure(setup: Setup, folder: Path) -> None:
    """Writes the numbers of each dataset to folder/DATASET.json, unless it has those of the same data."""
    for source in setup.sources:
        path = folder / f"{source.name}.json"
        dataset = load_dataset(source.folder)
        if os.path.lexists(path) and (path.is_symlink() or not is_made_by_us(path)):
            raise OutputError(f"{path} holds no statistics of ours, so it is left alone. Move it elsewhere.")
        if path.is_file() and json.loads(path.read_text(encoding="utf-8"))["checksum"] == dataset.checksum:
            continue
        verify_dataset(source.folder)
        numbers = statistics(dataset) | {"audit": None}
        try:
            split = split_dataset(dataset, SplitConfig(protocol=setup.protocol_of(source)))
            audit = audit_split(dataset, split)
            shares = {name: audit[name].share for name in ("copies", "inside", "tail")}
            numbers["audit"] = shares | {"protocol": audit.protocol, "verdict": audit.verdict}
        except DataError as problem:
            numbers["notes"] = [*numbers["notes"], problem.command_line]
        with new_file(path, force=True) as temporary:
            temporary.write_text(json.dumps(numbers, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def section(results: ExperimentResults, folder: Path) -> Section:
    """One column per dataset or domain, and the paper's own where it describes the same data."""
    paths = [path for name in results.requests if (path := folder / f"{name}.json").is_file()]
    datasets = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths}
    columns = dict(_columns(datasets))
    command = " && ".join(results.commands(results.requests))
    text = (
        "Windows count an event once in each window that contains it: so the published tables report two million "
        "interactions where the logs have a few hundred thousand events.",
        *(f"{name}: {numbers['audit']['verdict']}" for name, numbers in datasets.items() if numbers["audit"]),
    )
    made = (_table(columns, datasets, command),) if columns else ()
    return Section("statistics", "The data (appendix A2)", text, made, _pictures(columns, command) if columns else ())


def _columns(datasets: Mapping[str, Any]) -> Iterator[tuple[str, Column]]:
    for name, numbers in datasets.items():
        several = len(numbers["domains"]) > 1
        for domain, column in numbers["domains"].items():
            more = {"kind": numbers["kind"], "audit": None if several else numbers["audit"]}
            yield f"{name} {domain}" if several else name, column | more
        if several:
            yield f"{name}, both", numbers["all"] | {"kind": numbers["kind"], "audit": numbers["audit"]}


def _decimal(value: float) -> Cell:
    return Cell(f"{value:.2f}", value)


def _share(value: float) -> Cell:
    return Cell(f"{100 * value:.1f} %", 100 * value)


def _times_counted(column: Column) -> float | None:
    pairs = (column["density"] or 0.0) * column["accounts_with_events"] * column["items_that_occur"]
    return column["events"] / pairs if pairs else None


ROWS: tuple[tuple[str, Callable[[Column], Any], Callable[[Any], Cell]], ...] = (
    ("kind", lambda column: column["kind"], Cell),
    ("accounts with events", lambda column: column["accounts_with_events"], count),
    ("items that occur", lambda column: column["items_that_occur"], count),
    ("events (interactions)", lambda column: column["events"], count),
    ("sequences", lambda column: column["sequences"], count),
    ("times that an account-item pair is counted", _times_counted, _decimal),
    ("length of a sequence, mean", lambda column: column["length"]["mean"], _decimal),
    ("length of a sequence, median", lambda column: column["length"]["median"], count),
    ("length of a sequence, longest", lambda column: column["length"]["max"], count),
    ("repeats of an earlier item", lambda column: column["repeat_rate"], _share),
    ("repeats of the item before", lambda column: column["immediate_repeat_rate"], _share),
    ("repeats at the last event", lambda column: column["repeat_rate_at_last"], _share),
    ("events on the top 1 % of items", lambda column: column["top_1_percent_share"], _share),
    ("test windows or logs that are copies of training", lambda column: (column["audit"] or {}).get("copies"), _share),
    ("... that stand inside one", lambda column: (column["audit"] or {}).get("inside"), _share),
)
PAPER_ROWS = {"items that occur": "items", "events (interactions)": "interactions", "accounts with events": "accounts"}


def _table(columns: Mapping[str, Column], datasets: Mapping[str, Any], command: str) -> Table:
    theirs = {name: PAPER_SETS[name.lower()] for name in columns if name.lower() in PAPER_SETS}
    rows = []
    for label, value, cell in ROWS:
        values = [value(column) for column in columns.values()]
        ours = [Cell("-") if one is None else cell(one) for one in values]
        rows.append((Cell(label), *ours, *(_published(label, name) for name in dict.fromkeys(theirs.values()))))
    heads = ("", *columns, *(f"{name} in the paper" for name in dict.fromkeys(theirs.values())))
    notes = dict.fromkeys(
        sentence for numbers in datasets.values() for sentence in (*numbers["counting"], *numbers["notes"])
    )
    sums = (f"Checksum of {name}: {numbers['checksum'][:12]}." for name, numbers in datasets.items())
    cost = "Cost: nothing is trained."
    return Table("statistics", "The datasets", heads, tuple(rows), command, (*notes, *sums, cost))


def _published(label: str, name: str) -> Cell:
    if label not in PAPER_ROWS:
        return Cell("-")
    values = STATISTICS[PAPER_ROWS[label]]
    place = DATASETS.index(name)
    return count(values[place if len(values) == len(DATASETS) else place // 2])


def _pictures(columns: Mapping[str, Column], command: str) -> tuple[Figure, ...]:
    names = tuple(columns)
    counted = Series("times", names, tuple(_times_counted(column) or 0.0 for column in columns.values()))
    repeats = tuple(
        Series(title, names, tuple(100 * (column[key] or 0.0) for column in columns.values()))
        for title, key in (
            ("of an earlier item", "repeat_rate"),
            ("of the item before", "immediate_repeat_rate"),
            ("at the last event", "repeat_rate_at_last"),
        )
    )
    return (
        Figure(
            "statistics-counted", "How often one account-item pair is counted", "bars", "", "times", (counted,), command
        ),
        Figure("statistics-repeats", "How much of the data repeats", "bars", "", "repeats in %", repeats, command),
    )

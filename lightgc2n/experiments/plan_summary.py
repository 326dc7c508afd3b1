"""Summarise the runs of a folder in one table, grouped over seeds: mean and spread (maximum minus minimum).

A run that is tested in several domains has a row for each. Intervals resample accounts, with the seeds of a group
together, so they measure the effect of other accounts on the mean, not of other seeds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from lightgc2n.experiments.results import METRICS, ResultGroup
from lightgc2n.experiments.run_index import read_runs
from lightgc2n.experiments.summary_files import PAGE, TABLE, refuse_other_summary
from lightgc2n.experiments.table import Cell, Table, csv_text, markdown, plain_table
from lightgc2n.files.atomic_writes import new_file
from lightgc2n.metrics.paired_tests import DECISIVE

VALIDATION = "validation MRR@20"
HEADINGS = (
    "run",
    "seeds",
    *METRICS,
    "MRR@20: 95 %",
    VALIDATION,
    "parameters",
    "epochs",
    "s an epoch",
    "training s",
    "peak MB",
)


@dataclass(frozen=True)
class Summary:
    """The rows of the table, the unfinished runs with their epochs so far, and the stamps of the protocol."""

    rows: list[dict[str, Any]]
    left: dict[str, int] = field(default_factory=dict)
    stamps: list[str] = field(default_factory=list)


def summarise(folder: Path) -> Summary:
    """The summary of all run folders in `folder`."""
    runs = read_runs(folder)
    stamps = dict.fromkeys(stamp for group in runs.groups for run in group.runs for stamp in run.stamps)
    return Summary([_row(group) for group in runs.groups], {one.run: one.epochs for one in runs.unfinished}, [*stamps])


def write_summary(folder: Path) -> Summary:
    """Write summary.md and summary.csv; refuse to replace files of these names that this command did not write."""
    refuse_other_summary(folder)
    summary = summarise(folder)
    columns = list(summary.rows[0]) if summary.rows else ["run"]
    values = plain_table("summary", columns, (row.values() for row in summary.rows))
    for name, text in ((PAGE, "\n".join(markdown(summary_table(summary)))), (TABLE, csv_text(values))):
        with new_file(folder / name, force=True) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return summary


def summary_table(summary: Summary) -> Table:
    """The table for readers: means with their spread in brackets, metrics in %."""
    rows = tuple(tuple(map(Cell, _cells(row))) for row in summary.rows)
    return Table("summary", "", HEADINGS, rows, notes=tuple(_notes(summary)))


def _cells(row: dict[str, Any]) -> list[str]:
    shares = {
        name: "-" if row[name] is None else f"{100 * row[name]:.2f} ({100 * row[f'{name} spread']:.2f})"
        for name in (*METRICS, VALIDATION)
    }
    interval = f"{100 * row['low']:.2f} to {100 * row['high']:.2f}"
    tested = [*(shares[name] for name in METRICS), interval, shares[VALIDATION]]
    epochs = f"{row['epochs']:.0f}" + (f" ({row['ended by budget']} by budget)" if row["ended by budget"] else "")
    costs = [f"{row['parameters']:,.0f}", epochs, f"{row['s an epoch']:.2f}", f"{row['training s']:.0f}"]
    return [row["run"], str(row["seeds"]), *tested, *costs, f"{row['peak MB']:.0f}"]


def _notes(summary: Summary) -> Iterator[str]:
    yield (
        "Means over seeds, metrics in %; in brackets the spread, the largest less the smallest; "
        "95 %: resampled accounts, the seeds together."
    )
    if any(row["ended by budget"] for row in summary.rows):
        yield "By budget: runs that trained their most epochs without stopping early; longer training may change them."
    if summary.left:
        yield f"Not finished: {', '.join(f'{name} ({epochs} epochs)' for name, epochs in summary.left.items())}."
    yield from summary.stamps


def _row(group: ResultGroup) -> dict[str, Any]:
    runs, first = group.runs, group.first
    row: dict[str, Any] = {
        "run": f"{first.name}, {first.tested_domain}" if first.tested_domain else first.name,
        "seeds": len(runs),
    }
    for name in METRICS:
        row |= {name: group.metric(name), f"{name} spread": group.spread(name)}
    row |= {"low": group.estimates[DECISIVE].low, "high": group.estimates[DECISIVE].high}
    columns: dict[str, Sequence[float]] = {
        VALIDATION: [run.validation for run in runs if run.validation is not None],
        "parameters": [run.parameters for run in runs],
        "epochs": [run.epochs for run in runs],
        "s an epoch": [run.training_seconds / max(1, run.epochs) for run in runs],
        "training s": [run.training_seconds for run in runs],
        "peak MB": [run.peak_memory_mb for run in runs],
    }
    for heading, values in columns.items():
        spread = max(values, default=0) - min(values, default=0)
        row |= {heading: mean(values) if values else None, f"{heading} spread": spread}
    return row | {"ended by budget": sum(run.ended_by == "budget" for run in runs)}

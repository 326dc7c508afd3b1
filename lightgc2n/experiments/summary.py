"""The runs of a folder in one table, grouped over seeds: mean and spread (largest less smallest)."""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from lightgc2n.data.files import new_file
from lightgc2n.experiments.results import read_results
from lightgc2n.training.record import epochs_of
from lightgc2n.training.runs import RUN

SHARES = ("RC@5", "RC@20", "MRR@5", "MRR@20", "validation MRR@20")
COSTS = ("parameters", "epochs", "training seconds")
HEADINGS = ("run", "seeds", *SHARES, *COSTS)
SEED = re.compile(r"-seed\d+$")


@dataclass(frozen=True)
class Summary:
    """The rows of the table, the runs that are not finished with the epochs they have, and what readers must know."""

    rows: list[dict[str, Any]]
    left: dict[str, int] = field(default_factory=dict)
    stamps: list[str] = field(default_factory=list)


def summarise(folder: Path) -> Summary:
    """What the run folders in `folder` say; nothing else is asked."""
    groups: dict[str, list[dict[str, Any]]] = {}
    left: dict[str, int] = {}
    for run in sorted(path.parent for path in folder.glob(f"*/{RUN}")):
        results = read_results(run)
        if results is None:
            left[run.name] = epochs_of(run)
        else:
            groups.setdefault(SEED.sub("", run.name), []).append(results)
    stamps = dict.fromkeys(stamp for found in groups.values() for results in found for stamp in results["stamps"])
    return Summary([_row(name, found) for name, found in groups.items()], left, list(stamps))


def write_summary(folder: Path) -> Summary:
    """Makes summary.md and summary.csv anew."""
    summary = summarise(folder)
    with new_file(folder / "summary.md", force=True) as temporary:
        temporary.write_text("\n".join(summary_lines(summary)) + "\n", encoding="utf-8")
    with new_file(folder / "summary.csv", force=True) as temporary, temporary.open("w", newline="") as file:
        table = csv.DictWriter(file, list(_row("", [])), lineterminator="\n")
        table.writeheader()
        table.writerows(summary.rows)
    return summary


def summary_cells(row: dict[str, Any]) -> list[str]:
    """One row for people: means with their spread in brackets, metrics in %."""
    shares = [
        "-" if row[name] is None else f"{100 * row[name]:.2f} ({100 * row[f'{name} spread']:.2f})" for name in SHARES
    ]
    epochs = f"{row['epochs']:.0f}" + (f" ({row['ended by budget']} by budget)" if row["ended by budget"] else "")
    costs = [f"{row['parameters']:,.0f}", epochs, f"{row['training seconds']:.0f}"]
    return [row["run"], str(row["seeds"]), *shares, *costs]


def summary_notes(summary: Summary) -> Iterator[str]:
    """What a reader of the table must know."""
    yield "Means over seeds, metrics in %; in brackets the spread, the largest less the smallest."
    if any(row["ended by budget"] for row in summary.rows):
        yield "By budget: so many runs ended at their most epochs, not by patience; longer training may change them."
    if summary.left:
        yield f"Not finished: {', '.join(f'{name} ({epochs} epochs)' for name, epochs in summary.left.items())}."
    yield from summary.stamps


def summary_lines(summary: Summary) -> Iterator[str]:
    """The table in Markdown."""
    yield "| " + " | ".join(HEADINGS) + " |"
    yield "|---" * len(HEADINGS) + "|"
    for row in summary.rows:
        yield "| " + " | ".join(summary_cells(row)) + " |"
    for note in summary_notes(summary):
        yield f"\n{note}"


def _row(name: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    columns = {share: [results["metrics"][share] for results in found] for share in SHARES[:-1]}
    columns[SHARES[-1]] = [results["validation"] for results in found if results["validation"] is not None]
    columns |= {cost: [results[cost.replace(" ", "_")] for results in found] for cost in COSTS}
    row: dict[str, Any] = {"run": name, "seeds": len(found)}
    for heading, values in columns.items():
        row[heading] = mean(values) if values else None
        row[f"{heading} spread"] = max(values, default=0) - min(values, default=0)
    row["ended by budget"] = sum(results["ended_by"] == "budget" for results in found)
    return row

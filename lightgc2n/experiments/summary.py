"""The runs of a folder in one table, grouped over seeds: mean and spread (largest less smallest).

Where a run is asked for an item of each domain, every domain has a row. Intervals resample accounts; the seeds of a
group are resampled together, so that they tell how far other accounts, not other seeds, would move the mean.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from lightgc2n.data.files import new_file
from lightgc2n.evaluation.metrics import gains, interval, resampled_means
from lightgc2n.experiments.results import Ranks, read_ranks, read_results
from lightgc2n.training.record import epochs_of
from lightgc2n.training.runs import RUN

TESTED = ("RC@5", "RC@20", "MRR@5", "MRR@20")
DECISIVE, INTERVAL, VALIDATION = "MRR@20", "MRR@20: 95 %", "validation MRR@20"
COSTS = ("parameters", "epochs", "s an epoch", "training s", "peak MB")
HEADINGS = ("run", "seeds", *TESTED, INTERVAL, VALIDATION, *COSTS)
SEED = re.compile(r"-seed\d+$")


@dataclass(frozen=True)
class Summary:
    """The rows of the table, the runs that are not finished with the epochs they have, and what readers must know."""

    rows: list[dict[str, Any]]
    left: dict[str, int] = field(default_factory=dict)
    stamps: list[str] = field(default_factory=list)


def summarise(folder: Path) -> Summary:
    """What the run folders in `folder` say; nothing else is asked."""
    groups: dict[str, list[Path]] = {}
    left: dict[str, int] = {}
    stamps: dict[str, None] = {}
    for run in sorted(path.parent for path in folder.glob(f"*/{RUN}")):
        results = read_results(run)
        if results is None:
            left[run.name] = epochs_of(run)
        else:
            groups.setdefault(SEED.sub("", run.name), []).append(run)
            stamps |= dict.fromkeys(results["stamps"])
    return Summary([row for name, runs in groups.items() for row in _rows(name, runs)], left, list(stamps))


def write_summary(folder: Path) -> Summary:
    """Makes summary.md and summary.csv anew."""
    summary = summarise(folder)
    with new_file(folder / "summary.md", force=True) as temporary:
        temporary.write_text("\n".join(summary_lines(summary)) + "\n", encoding="utf-8")
    with new_file(folder / "summary.csv", force=True) as temporary, temporary.open("w", newline="") as file:
        table = csv.DictWriter(file, list(summary.rows[0]) if summary.rows else ["run"], lineterminator="\n")
        table.writeheader()
        table.writerows(summary.rows)
    return summary


def summary_cells(row: dict[str, Any]) -> list[str]:
    """One row for people: means with their spread in brackets, metrics in %."""
    shares = {
        name: "-" if row[name] is None else f"{100 * row[name]:.2f} ({100 * row[f'{name} spread']:.2f})"
        for name in (*TESTED, VALIDATION)
    }
    between = f"{100 * row['low']:.2f} to {100 * row['high']:.2f}"
    tested = [*(shares[name] for name in TESTED), between, shares[VALIDATION]]
    epochs = f"{row['epochs']:.0f}" + (f" ({row['ended by budget']} by budget)" if row["ended by budget"] else "")
    costs = [f"{row['parameters']:,.0f}", epochs, f"{row['s an epoch']:.2f}", f"{row['training s']:.0f}"]
    return [row["run"], str(row["seeds"]), *tested, *costs, f"{row['peak MB']:.0f}"]


def summary_notes(summary: Summary) -> Iterator[str]:
    """What a reader of the table must know."""
    yield (
        "Means over seeds, metrics in %; in brackets the spread, the largest less the smallest; "
        "95 %: resampled accounts, the seeds together."
    )
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


def _rows(name: str, runs: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """The row of a group, or one for each domain that it was asked in."""
    results = [found for run in runs if (found := read_results(run)) is not None]
    ranks = [read_ranks(run) for run in runs]
    costs = _costs(results)
    domains = results[0]["domains"]
    for number, domain in enumerate(domains):
        title = f"{name}, {domain}" if len(domains) > 1 else name
        yield {"run": title, "seeds": len(runs), **_tested(ranks, number), **costs}


def _tested(ranks: Sequence[Ranks], domain: int) -> dict[str, Any]:
    chosen = [found.domain == domain for found in ranks]
    columns = [gains(found.rank[rows], (5, 20)) for found, rows in zip(ranks, chosen, strict=True)]
    row: dict[str, Any] = {}
    for heading in TESTED:
        row |= _mean_and_spread(heading, [float(column[heading].mean()) for column in columns])
    table = np.concatenate([column[DECISIVE] for column in columns])[:, None]
    owner = np.concatenate([found.owner[rows] for found, rows in zip(ranks, chosen, strict=True)])
    low, high = interval(resampled_means(table, owner)[:, 0])
    return row | {"low": low, "high": high}


def _costs(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    columns = {
        VALIDATION: [found["validation"] for found in results if found["validation"] is not None],
        "parameters": [found["parameters"] for found in results],
        "epochs": [found["epochs"] for found in results],
        "s an epoch": [found["training_seconds"] / max(1, found["epochs"]) for found in results],
        "training s": [found["training_seconds"] for found in results],
        "peak MB": [found["peak_memory_mb"] for found in results],
    }
    row: dict[str, Any] = {}
    for heading, values in columns.items():
        row |= _mean_and_spread(heading, values)
    return row | {"ended by budget": sum(found["ended_by"] == "budget" for found in results)}


def _mean_and_spread(heading: str, values: Sequence[float]) -> dict[str, Any]:
    spread = max(values, default=0) - min(values, default=0)
    return {heading: mean(values) if values else None, f"{heading} spread": spread}

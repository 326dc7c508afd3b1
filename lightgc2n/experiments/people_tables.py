"""What a study of people found, as Markdown, CSV and JSON."""

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lightgc2n.data.files import new_folder
from lightgc2n.experiments.people import TABLES, Identified
from lightgc2n.experiments.people_plots import write_reliability

RESULTS = "results.json"
HEADINGS = (
    "ARI",
    "95 %",
    "by chance",
    "shared ARI",
    "ARI by events",
    "NMI",
    "accuracy",
    "by chance",
    "least served",
    "count error",
    "exact count",
    "singles split",
    "s",
)
TITLES = {"given": "the true count given", "inferred": "the count inferred"}


def write_identified(found: Identified, out: Path, force: bool = False) -> str:
    """Writes results.json, results.md, results.csv, accounts.csv (every account by itself) and reliability.png to a new
    folder; gives a line to tell, if there is no picture.
    """
    with new_folder(out, force, marker=RESULTS) as folder:
        text = json.dumps(found.result, indent=1, ensure_ascii=False)
        (folder / RESULTS).write_text(text + "\n", encoding="utf-8")
        (folder / "results.md").write_text("\n".join(markdown(found.result)) + "\n", encoding="utf-8")
        _write_csv(folder / "results.csv", ["count", "method", "measure", "mean over", "value", "low", "high"],
                   _summary_rows(found.result))  # fmt: skip
        measures = next(iter(found.measured["inferred"].values())).columns
        _write_csv(folder / "accounts.csv", ["count", "method", "account", "events", *measures],
                   _account_rows(found))  # fmt: skip
        return write_reliability(found.result, folder)


def markdown(result: dict[str, Any]) -> Iterator[str]:
    """Both tables, and what a reader must know."""
    for table in TABLES:
        rows = cells(result, table)
        if not rows:
            continue
        yield f"**{result['dataset']['name']}**, {TITLES[table]}\n"
        yield f"| method | {' | '.join(HEADINGS)} |"
        yield "|---" + "|---:" * len(HEADINGS) + "|"
        yield from (f"| {name} | {' | '.join(row)} |" for name, row in rows.items())
        yield ""
    yield from notes(result)


def cells(result: dict[str, Any], table: str) -> dict[str, list[str]]:
    """For each method the cells below HEADINGS; what does not apply is a dash."""
    return {name: _row(facts, table) for name, facts in result["tables"][table].items()}


def _row(facts: dict[str, Any], table: str) -> list[str]:
    measures, chance = facts["measures"], facts["chance"]

    def mean(name: str, over: str = "accounts") -> str:
        return f"{measures[name][over]['value']:.3f}" if name in measures else "-"

    ari = measures["ARI"]["accounts"]
    return [
        mean("ARI"),
        f"{ari['low']:.3f} to {ari['high']:.3f}",
        f"{chance['ARI']:.3f}",
        mean("shared ARI"),
        mean("ARI", "events"),
        mean("NMI"),
        mean("accuracy"),
        f"{chance['accuracy']:.3f}",
        mean("least served"),
        *(mean(name) if table == "inferred" else "-" for name in ("count error", "exact count", "singles split")),
        f"{facts['seconds']:.1f}",
    ]


def notes(result: dict[str, Any]) -> Iterator[str]:
    """What a reader of the tables must know."""
    counts, sessions = result["counts"], result["sessions"]
    by_people = ", ".join(f"{number:,} of {people}" for people, number in counts["accounts_by_people"].items())
    yield (
        f"{counts['events']:,} events of {counts['accounts']:,} accounts ({result['options']['accounts']}), by people: "
        f"{by_people}. Means over accounts, where not said otherwise; 95 %: of draws of accounts."
    )
    yield (
        f"{sessions['sessions']:,} sessions, {sessions['events_per_session']:.2f} events each, "
        f"{100 * sessions['of_one_person']:.1f} % of them one person's. By chance: the same labels, shuffled within "
        f"accounts, session by session."
    )
    for name, row in result["tables"]["inferred"].items():
        if "reliability" in row:
            told = row["reliability"]
            yield (
                f"{name}: sure of its counts by {100 * told['confidence']:.1f} %, right in "
                f"{100 * told['right']:.1f} %; {100 * told['calibration error']:.1f} points apart on average of tenths."
            )
    yield from (f"Left out: {reason}" for reason in result["left_out"].values())


def _summary_rows(result: dict[str, Any]) -> Iterator[list[Any]]:
    for table, methods in result["tables"].items():
        for method, facts in methods.items():
            for measure, by in facts["measures"].items():
                for over, cell in by.items():
                    yield [table, method, measure, over, cell["value"], cell["low"], cell["high"]]
            for measure, value in facts["chance"].items():
                yield [table, method, f"{measure} by chance", "accounts", value, "", ""]


def _account_rows(found: Identified) -> Iterator[list[Any]]:
    for table, methods in found.measured.items():
        for method, measured in methods.items():
            for place, (account, events) in enumerate(zip(measured.account, measured.events, strict=True)):
                values = [_shown(column[place]) for column in measured.columns.values()]
                yield [table, method, found.accounts[account], int(events), *values]


def _shown(value: float) -> str:
    return f"{value:.6g}" if value == value else ""


def _write_csv(path: Path, headings: Sequence[str], rows: Iterator[list[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(headings)
        writer.writerows(rows)

"""The results of identify as tables, CSV and JSON, and a plot of how reliable the counts are."""

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightgc2n.data.dataset_plots import line_styles, plain_figure
from lightgc2n.experiments.identify import Identified
from lightgc2n.experiments.table import Cell, Table, csv_text, markdown, plain_table
from lightgc2n.files.atomic_writes import new_folder
from lightgc2n.files.folder_kinds import FolderKind

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS, RELIABILITY = "results.json", "reliability.png"
IDENTIFIED = FolderKind("table of people", RESULTS, ("results.md", "results.csv", "accounts.csv", RELIABILITY))
FEWEST = 5  # accounts in a tenth of the plot; the share of fewer is noise
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


def write_identified(identified: Identified, out: Path, force: bool = False) -> str:
    """Write results.json, results.md, results.csv, accounts.csv (one row per account) and reliability.png.

    Return a warning if the plot cannot be drawn.
    """
    result = identified.result
    columns = ("count", "method", "measure", "mean over", "value", "low", "high")
    measures = next(iter(identified.measured["inferred"].values())).columns
    accounts = ("count", "method", "account", "events", *measures)
    texts = {
        RESULTS: json.dumps(result, indent=1, ensure_ascii=False) + "\n",
        "results.md": "\n".join([*(line for table in tables(result) for line in markdown(table)), *notes(result)])
        + "\n",
        "results.csv": csv_text(plain_table("results", columns, _summary_rows(result))),
        "accounts.csv": csv_text(plain_table("accounts", accounts, _account_rows(identified))),
    }
    with new_folder(out, force, kind=IDENTIFIED) as folder:
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        return write_reliability(result, folder)


def tables(result: dict[str, Any]) -> Iterator[Table]:
    """One table with the true count of people given, one with the count inferred."""
    for name, title in TITLES.items():
        rows = tuple((Cell(method), *map(Cell, _row(facts, name))) for method, facts in result["tables"][name].items())
        if rows:
            yield Table(name, f"{result['dataset']['name']}, {title}", ("method", *HEADINGS), rows)


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
    """The notes below the tables."""
    counts, sessions = result["counts"], result["sessions"]
    by_people = ", ".join(f"{number:,} of {people}" for people, number in counts["accounts_by_people"].items())
    yield (
        f"{counts['events']:,} events of {counts['accounts']:,} accounts ({result['options']['accounts']}), by people: "
        f"{by_people}. Means over accounts unless noted; 95 %: over draws of accounts."
    )
    yield (
        f"{sessions['sessions']:,} sessions, {sessions['events_per_session']:.2f} events each, "
        f"{100 * sessions['of_one_person']:.1f} % of them one person's. By chance: the same labels, shuffled within "
        f"accounts, session by session."
    )
    for name, row in result["tables"]["inferred"].items():
        if "reliability" in row:
            counts = row["reliability"]
            yield (
                f"{name}: mean confidence in its counts {100 * counts['confidence']:.1f} %, right in "
                f"{100 * counts['right']:.1f} %; calibration error {100 * counts['calibration error']:.1f} points."
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


def _account_rows(identified: Identified) -> Iterator[list[Any]]:
    for table, methods in identified.measured.items():
        for method, measured in methods.items():
            for place, (account, events) in enumerate(zip(measured.account, measured.events, strict=True)):
                values = [_shown(column[place]) for column in measured.columns.values()]
                yield [table, method, identified.accounts[account], int(events), *values]


def _shown(value: float) -> str:
    return f"{value:.6g}" if value == value else ""


def write_reliability(result: dict[str, Any], folder: Path) -> str:
    """Draw the plot if a method reports its confidence; return a warning if it cannot be drawn."""
    methods = {name: row["reliability"] for name, row in result["tables"]["inferred"].items() if "reliability" in row}
    if not methods:
        return ""
    if find_spec("matplotlib") is None:
        return f"No {RELIABILITY}: matplotlib is not installed (pip install 'lightgc2n[report]')."
    reliability_plot(methods, result["dataset"]["name"]).savefig(folder / RELIABILITY)
    return ""


def reliability_plot(methods: dict[str, dict[str, Any]], name: str) -> "Figure":
    """Plot the share of right counts by confidence, in tenths; larger dots represent more accounts."""
    figure, (axes,) = plain_figure(f"{name}: calibration of the count of people")
    axes.plot([0, 1], [0, 1], color="#999999", linewidth=1, label="perfect calibration")
    for (method, facts), style in zip(methods.items(), line_styles(len(methods)), strict=True):
        lines = [line for line in facts["tenths"] if line["accounts"] >= FEWEST]
        sure, right = ([line[key] for line in lines] for key in ("confidence", "right"))
        error = facts["calibration error"]
        axes.plot(sure, right, label=f"{method} (calibration error {error:.3f})", **style)
        sizes = [400 * line["accounts"] / facts["accounts"] for line in lines]
        axes.scatter(sure, right, s=sizes, color=style["color"], alpha=0.5, linewidths=0)
    axes.set_xlabel("confidence: the probability of the estimated count")
    axes.set_ylabel("share of accounts where it is right")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_aspect("equal")
    axes.legend(loc="lower right", fontsize="small")
    return figure

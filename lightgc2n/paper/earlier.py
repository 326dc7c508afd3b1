"""Tables and verdicts of an earlier report, kept as they were: OUT/earlier/earlier.json and its CSV files.

Their runs were deleted, or are not fair to all models, so they judge no claim. The report shows the earlier verdicts
beside the present ones, with the reason for each change.
"""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightgc2n.errors import DataError
from lightgc2n.experiments.table import Cell, Table, plain_table
from lightgc2n.paper.document import Section, Verdict

FOLDER, INDEX = "earlier", "earlier.json"
SIDES = ("low", "high", "mark", "note")
WHY = "Kept from an earlier report: judges no claim."


@dataclass(frozen=True)
class Earlier:
    """The tables and verdicts of an earlier report."""

    tables: tuple[Table, ...]
    verdicts: Mapping[str, Mapping[str, str]]  # by the text of the claim: its verdict then, and what has changed
    answers: tuple[tuple[str, str, str], ...] = ()  # what was unfair in it, the answer, and the command


def read_earlier(out: Path) -> Earlier | None:
    """Read OUT/earlier; return None if it does not exist."""
    path = out / FOLDER / INDEX
    if not path.is_file():
        return None
    try:
        index: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        tables = tuple(_table(path.parent / f"{name}.csv", name, about) for name, about in index["tables"].items())
        answers = tuple((one["unfair"], one["answer"], one["command"]) for one in index.get("answers", []))
        return Earlier(tables, {one["claim"]: one for one in index["verdicts"]}, answers)
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise DataError(f"{path}: not an earlier report: {problem!r}. Remove the folder, or restore it.") from None


def _table(path: Path, name: str, about: Mapping[str, Any]) -> Table:
    with path.open(encoding="utf-8", newline="") as file:
        heads, *rows = list(csv.reader(file))
    shown = [place for place, head in enumerate(heads) if not _is_side(head, heads)]
    cells = tuple(tuple(_cell(row, heads, place) for place in shown) for row in rows)
    notes = (WHY, *about["notes"])
    return Table(
        f"earlier-{name}", about["caption"], tuple(heads[place] for place in shown), cells, about["command"], notes
    )


def _is_side(head: str, heads: Sequence[str]) -> bool:
    """Whether a column belongs to the one before: the end of an interval, a mark or a note."""
    column, _, side = head.rpartition(" ")
    return side in SIDES and column in heads


def _cell(row: Sequence[str], heads: Sequence[str], place: int) -> Cell:
    more = {side: row[heads.index(f"{heads[place]} {side}")] for side in SIDES if f"{heads[place]} {side}" in heads}
    try:
        value = float(row[place])
    except ValueError:
        return Cell(row[place])
    low, high = (float(more[side]) if more.get(side) else None for side in ("low", "high"))
    text = f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.2f}"
    return Cell(text, value, low, high, note=more.get("note", ""))


def section(earlier: Earlier) -> Section:
    """The section with the tables of an earlier report."""
    text = (
        "These tables were made before every model had the same width, the same search and as many epochs as it needs. "
        "They are kept for what they show beside that, and judge none of the claims above. Their commands and notes "
        "call simple baselines floors, as the software did then; it is --models simple now.",
    )
    return Section(FOLDER, "Tables of an earlier report", text, earlier.tables)


def section_of_changes(earlier: Earlier, verdicts: Sequence[Verdict]) -> Section:
    """Each verdict before and now, and why it changed."""
    rows = list(_changes(earlier, verdicts))
    table = plain_table(
        "verdicts-before-and-after", ("claim", "before", "now", "what has changed"), rows, text_columns=4
    )
    text = (
        "The verdict of the earlier report on our runs beside the present one. What it compared was unfair in places.",
    )
    if not earlier.answers:
        return Section("changes", "Verdicts before and after", text, (table,))
    columns = ("what was unfair or unclear", "answer", "command")
    answers = plain_table("answers", columns, earlier.answers, text_columns=3)
    more = "The second table answers each objection to that report. A run that has not been made is said to be missing."
    return Section("changes", "Verdicts before and after", (*text, more), (table, answers))


def _changes(earlier: Earlier, verdicts: Sequence[Verdict]) -> Iterator[tuple[str, str, str, str]]:
    for one in verdicts:
        before = earlier.verdicts.get(one.claim)
        if before is None:
            yield one.claim, "not judged", one.ours, "New among the judged claims."
        else:
            yield one.claim, before["ours"], one.ours, before["changed"]

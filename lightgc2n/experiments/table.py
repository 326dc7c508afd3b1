"""The table type of all results, rendered to the terminal, to Markdown, to CSV and to HTML for notebooks."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table as TerminalTable

SIGNS = {"best": "▲", "impossible": "†"}
KEY = {
    "best": "▲ best",
    "impossible": "† breaks arithmetic: no ranking of one set of targets gives these numbers",
    "missing": "– missing",
}
BUDGET = "‡"
BUDGET_NOTE = f"{BUDGET} ended by its most epochs, not by patience: more epochs may improve it."


@dataclass(frozen=True)
class Cell:
    """One entry of a table."""

    text: str  # as printed: "16.28"
    value: float | None = None  # for CSV
    low: float | None = None  # 95 % interval, in the unit of value
    high: float | None = None
    mark: str = ""  # "best", "impossible", "missing" or empty
    note: str = ""  # shown on hover and as a footnote


@dataclass(frozen=True)
class Table:
    """A table, its notes and the command that makes it."""

    name: str  # file name of its CSV: "table1-E"
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    command: str = ""
    notes: tuple[str, ...] = ()  # below the table
    rules: tuple[int, ...] = ()  # in the terminal: draw a line below these rows
    text_columns: int = 1  # left-aligned; the others hold numbers
    bounds: str = "95 % interval"  # the meaning of `low` and `high` of its cells


def plain_table(name: str, columns: Sequence[str], rows: Iterable[Iterable[object]], text_columns: int = 1) -> Table:
    """A table without a caption whose values are printed as they are; none becomes an empty cell."""
    cells = tuple(tuple(Cell("" if value is None else str(value)) for value in row) for row in rows)
    return Table(name, "", tuple(columns), cells, text_columns=text_columns)


def text_of(cell: Cell) -> str:
    """The printed text of a cell."""
    return cell.text or ("–" if cell.mark == "missing" else "")


def score_text(value: float | None) -> str:
    """A score in %."""
    return "–" if value is None else f"{value:.2f}"


def p_text(p: float) -> str:
    """A p-value, no finer than its 10,000 draws allow."""
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"


def interval_of(cell: Cell) -> str:
    """The 95 % interval with as many digits as the cell prints; empty where there is none."""
    if cell.low is None or cell.high is None:
        return ""
    digits = len(cell.text.partition(".")[2].rstrip(" %"))
    return f"{cell.low:.{digits}f} to {cell.high:.{digits}f}".replace("-", "−")


def footnotes(table: Table) -> dict[str, int]:
    """Each note of the cells with its number, in reading order."""
    notes = dict.fromkeys(cell.note for row in table.rows for cell in row if cell.note)
    return {note: number for number, note in enumerate(notes, start=1)}


def signed(table: Table) -> bool:
    """Whether numbers in the table have a sign beside them."""
    return any(cell.note or cell.mark in SIGNS for row in table.rows for cell in row[1:])


def key_of(table: Table) -> str:
    """The meaning of the signs and the small numbers of a table."""
    cells = [cell for row in table.rows for cell in row]
    marks = [text for mark, text in KEY.items() if any(cell.mark == mark for cell in cells)]
    small = [f"small: {table.bounds}"] if any(cell.low is not None for cell in cells) else []
    return " · ".join([*marks, *small])


def terminal(table: Table) -> "TerminalTable":
    """The table for the terminal: the best cells bold, numbers to the right."""
    from rich.markup import escape as plain
    from rich.table import Table as TerminalTable

    shown = TerminalTable(title=plain(table.caption) or None)
    for place, column in enumerate(table.columns):
        shown.add_column(plain(column), justify="left" if place < table.text_columns else "right")
    for number, row in enumerate(table.rows):
        cells = [(plain(text_of(cell)), cell.mark) for cell in row]
        bold = [f"[bold]{text}[/]" if mark == "best" else text for text, mark in cells]
        shown.add_row(*bold, end_section=number in table.rules)
    return shown


def markdown(table: Table) -> Iterator[str]:
    """The lines of the table in Markdown, with its caption, notes and command."""
    numbers = footnotes(table)
    if table.caption:
        yield f"**{markdown_text(table.caption)}**\n"
    yield "| " + " | ".join(map(markdown_text, table.columns)) + " |"
    yield "|---" * table.text_columns + "|---:" * (len(table.columns) - table.text_columns) + "|"
    for row in table.rows:
        yield "| " + " | ".join(_markdown_cell(cell, numbers) for cell in row) + " |"
    notes = [*filter(None, [key_of(table).replace("small:", "in brackets:")]), *table.notes]
    for note in [*notes, *(f"{number}: {note}" for note, number in numbers.items())]:
        yield f"\n{markdown_text(note)}"
    yield f"\n{markdown_command(table.command)}\n" if table.command else ""


def _markdown_cell(cell: Cell, numbers: dict[str, int]) -> str:
    text = markdown_text(text_of(cell))
    text = f"**{text}**" if cell.mark == "best" else text
    sign = SIGNS.get(cell.mark, "")
    note = f"<sup>{numbers[cell.note]}</sup>" if cell.note else ""
    interval = interval_of(cell)
    return f"{text}{f' {sign}' if sign else ''}{note}{f' ({interval})' if interval else ''}"


def markdown_command(command: str) -> str:
    return f"Made by `{command.replace('`', '')}`" if command else ""


def markdown_text(text: str) -> str:
    """Escape text, so that it contains no tag and does not end a cell."""
    return escape(text, quote=False).replace("|", "\\|").replace("\n", " ")


def html(table: Table) -> str:
    """The table for a notebook: a caption, the best cells bold, numbers to the right, notes below it."""
    lines = ["<table>", *([f"<caption>{escape(table.caption)}</caption>"] if table.caption else [])]
    lines += ["<thead><tr>", *(f"<th>{escape(column)}</th>" for column in table.columns), "</tr></thead><tbody>"]
    for row in table.rows:
        lines += ["<tr>", *(_html_cell(cell, place < table.text_columns) for place, cell in enumerate(row)), "</tr>"]
    return "".join([*lines, "</tbody></table>", *(f"<p>{escape(note)}</p>" for note in table.notes)])


def _html_cell(cell: Cell, is_text: bool) -> str:
    text = escape(text_of(cell))
    text = f"<b>{text}</b>" if cell.mark == "best" else text
    return f'<td style="text-align: {"left" if is_text else "right"}">{text}</td>'


def csv_text(table: Table) -> str:
    """One line per row; columns with intervals, marks or notes have further columns beside them."""
    file = io.StringIO()
    rows = csv.writer(file, lineterminator="\n")
    extra = [_extra(cells) for cells in zip(*table.rows, strict=True)] or [()] * len(table.columns)
    rows.writerow(
        name
        for column, more in zip(table.columns, extra, strict=True)
        for name in (column, *(f"{column} {name}" for name in more))
    )
    for row in table.rows:
        rows.writerow(_settled(value) for cell, more in zip(row, extra, strict=True) for value in _values(cell, more))
    return file.getvalue()


def _settled(value: object) -> object:
    """Round a number to ten digits: further digits of a sum depend on the number of threads."""
    return f"{value:.10g}" if isinstance(value, float) else value


def _extra(cells: tuple[Cell, ...]) -> tuple[str, ...]:
    """The further columns that a column of cells needs."""
    names = ("low", "high", "mark", "note")
    return tuple(name for name in names if any(getattr(cell, name) not in (None, "") for cell in cells))


def _values(cell: Cell, extra: tuple[str, ...]) -> Iterator[object]:
    yield cell.text if cell.value is None else cell.value
    yield from (getattr(cell, name) for name in extra)

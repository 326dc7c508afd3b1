"""Tables as text: what each cell prints, its interval and footnote, and CSV for spreadsheets."""

import csv
import io
from collections.abc import Iterator

from lightgc2n.reporting.document import Cell, Figure, Table

SIGNS = {"best": "▲", "impossible": "†"}
KEY = {
    "best": "▲ best",
    "impossible": "† breaks arithmetic: no ranking of one set of targets gives these numbers",
    "missing": "– not there",
}


def text_of(cell: Cell) -> str:
    """What a cell prints."""
    return cell.text or ("–" if cell.mark == "missing" else "")


def score_text(value: float | None) -> str:
    """A score of the first screen, in %."""
    return "–" if value is None else f"{value:.2f}"


def interval_of(cell: Cell) -> str:
    """The 95 % interval with as many digits as the cell prints; nothing where there is none."""
    if cell.low is None or cell.high is None:
        return ""
    digits = len(cell.text.partition(".")[2].rstrip(" %"))
    return f"{cell.low:.{digits}f} to {cell.high:.{digits}f}".replace("-", "−")


def footnotes(table: Table) -> dict[str, int]:
    """Each note of the cells once, numbered in the order of reading."""
    notes = dict.fromkeys(cell.note for row in table.rows for cell in row if cell.note)
    return {note: number for number, note in enumerate(notes, start=1)}


def signed(table: Table) -> bool:
    """Whether numbers need room for signs beside them."""
    return any(cell.note or cell.mark in SIGNS for row in table.rows for cell in row[1:])


def key_of(table: Table) -> str:
    """What the signs and the small numbers of a table mean."""
    cells = [cell for row in table.rows for cell in row]
    marks = [text for mark, text in KEY.items() if any(cell.mark == mark for cell in cells)]
    small = ["small: 95 % interval"] if any(cell.low is not None for cell in cells) else []
    return " · ".join([*marks, *small])


def numbers_of(panel: Figure) -> Table:
    """What a plot shows, as a table."""
    places = list(dict.fromkeys(x for line in panel.series for x in line.x))
    found = {(x, line.name): y for line in panel.series for x, y in zip(line.x, line.y, strict=True)}
    rows = tuple((Cell(_plain(x)), *(_number(found.get((x, line.name))) for line in panel.series)) for x in places)
    columns = (panel.x_label, *(line.name for line in panel.series))
    return Table(panel.name, f"{panel.title}: the numbers, {panel.y_label}", columns, rows, panel.command)


def _number(value: float | None) -> Cell:
    return Cell("", mark="missing") if value is None else Cell(_plain(value), value)


def _plain(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def csv_text(table: Table) -> str:
    """A line a row; columns with intervals or marks have further columns beside them."""
    file = io.StringIO()
    rows = csv.writer(file, lineterminator="\n")
    extra = [_extra(cells) for cells in zip(*table.rows, strict=True)] or [()] * len(table.columns)
    rows.writerow(
        name for column, more in zip(table.columns, extra, strict=True) for name in (column, *_names(column, more))
    )
    for row in table.rows:
        rows.writerow(_settled(value) for cell, more in zip(row, extra, strict=True) for value in _values(cell, more))
    return file.getvalue()


def _settled(value: object) -> object:
    """A number to ten digits: the last ones of a sum depend on the number of threads."""
    return f"{value:.10g}" if isinstance(value, float) else value


def _extra(cells: tuple[Cell, ...]) -> tuple[str, ...]:
    """What a column says beside its values."""
    asked = {"low": "low", "high": "high", "mark": "mark", "note": "note"}
    return tuple(name for name in asked if any(getattr(cell, name) not in (None, "") for cell in cells))


def _names(column: str, extra: tuple[str, ...]) -> Iterator[str]:
    return (f"{column} {name}" for name in extra)


def _values(cell: Cell, extra: tuple[str, ...]) -> Iterator[object]:
    yield cell.text if cell.value is None else cell.value
    yield from (getattr(cell, name) for name in extra)

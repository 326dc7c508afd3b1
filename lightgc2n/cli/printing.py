"""Printing tables, notes and JSON to the terminal."""

import io
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

if TYPE_CHECKING:
    from lightgc2n.experiments.table import Table as ResultTable


def print_in_any_encoding() -> None:
    """Make stdout and stderr escape characters that their encoding lacks, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="backslashreplace")


def can_print(text: str) -> bool:
    """Return whether the encoding of stdout has all characters of the text."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def print_json(value: Any) -> None:
    """Print a value as JSON, with escapes where stdout cannot encode a character."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    typer.echo(text if can_print(text) else json.dumps(value, indent=1))


def print_table(table: Table) -> None:
    """Print a table to stdout: whole where it fits, else in parts that fit the terminal; text wraps, numbers do not."""
    console = Console(highlight=False)
    for place, column in enumerate(table.columns):
        is_name = place == 0 and _width(column) <= console.width // 2
        if column.no_wrap or is_name:
            column.no_wrap, column.min_width = True, _width(column)
        elif column.justify == "right":  # only the header of numbers may wrap
            column.min_width = _width_of([*column.cells, *_as_text(column.header).plain.split()])
    if not (console.is_terminal or "COLUMNS" in os.environ):
        console.width = max(console.width, _widths(console, table).maximum)  # a file or a pipe has no width
    for part in list(_parts(console, table)):
        console.width = max(console.width, _widths(console, part).minimum)  # a number is never cut
        console.print(part)


def _width(column: Column) -> int:
    """The width of the longest text of a column."""
    return _width_of([column.header, *column.cells])


def _width_of(texts: Iterable[Any]) -> int:
    return max(_as_text(text).cell_len for text in texts)


def _as_text(cell: Any) -> Text:
    return cell if isinstance(cell, Text) else Text.from_markup(str(cell))


def _widths(console: Console, table: Table) -> Measurement:
    return Measurement.get(console, console.options.update(max_width=10_000), table)


def _parts(console: Console, table: Table) -> Iterator[Table]:
    """Yield the table in parts of whole columns that fit the width; the first column is in each."""
    first, *others = table.columns
    while others:
        count = len(others)
        while count > 1 and _widths(console, _with_columns(table, [first, *others[:count]])).minimum > console.width:
            count -= 1
        yield _with_columns(table, [first, *others[:count]])
        others = others[count:]
    if len(table.columns) == 1:
        yield table


def _with_columns(table: Table, columns: list[Column]) -> Table:
    part = copy(table)
    part.columns = columns
    return part


def with_title(item: str, titles: Mapping[str, str]) -> str:
    """The title of an item with its id, or the id alone."""
    return f"{titles[item]} ({item})" if item in titles else item


def title_of(item: str, titles: Mapping[str, str]) -> dict[str, str]:
    """The title of an item as a field of JSON, where it is known."""
    return {"title": titles[item]} if item in titles else {}


def print_results(tables: "Iterable[ResultTable]", notes: Iterable[str] = ()) -> None:
    """Print tables of results and the notes below them."""
    from lightgc2n.experiments.table import terminal

    for table in tables:
        print_table(terminal(table))
        for note in table.notes:
            typer.echo(note)
    for note in notes:
        typer.echo(note)


def print_manifest(manifest: dict[str, Any], out: Path, as_json: bool) -> None:
    """Print the counts of a new dataset and its folder."""
    if as_json:
        print_json({"out": str(out), **{key: manifest[key] for key in ("name", "kind", "counts", "domains", "notes")}})
        return
    accounts = manifest["counts"]["accounts"]
    same = [name for name in ("accounts_with_events", "sequences") if manifest["counts"].get(name) == accounts]
    shown = {name.replace("_", " "): count for name, count in manifest["counts"].items() if count and name not in same}
    counts = ", ".join(f"{count:,} {name if count > 1 else name.replace('s', '', 1)}" for name, count in shown.items())
    typer.echo(f"{manifest['name']}: {counts}")
    typer.echo(f"written to {out}; look at it with: lightgc2n describe {out}")

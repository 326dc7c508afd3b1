"""Printing tables, notes and JSON to the terminal."""

import io
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

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
    """Print a table to stdout at its full width, so that a narrow terminal does not cut numbers."""
    console = Console(highlight=False)
    needed = Measurement.get(console, console.options.update(max_width=10_000), table).maximum
    console.width = max(console.width, needed)
    console.print(table)


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
    counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in manifest["counts"].items() if count)
    typer.echo(f"{manifest['name']}: {counts}")
    typer.echo(f"written to {out}")

"""How results look on the screen."""

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
    """Lets stdout and stderr write letters that their encoding does not have as backslash escapes, not fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="backslashreplace")


def can_print(text: str) -> bool:
    """Whether the encoding of stdout has all these letters."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def print_json(value: Any) -> None:
    """Prints a value as JSON, with escapes where stdout does not have a letter: it is the same value."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    typer.echo(text if can_print(text) else json.dumps(value, indent=1))


def print_table(table: Table) -> None:
    """The table on stdout, as wide as it needs to be: a narrow terminal, or none at all, must not cut numbers."""
    console = Console(highlight=False)
    needed = Measurement.get(console, console.options.update(max_width=10_000), table).maximum
    console.width = max(console.width, needed)
    console.print(table)


def print_results(tables: "Iterable[ResultTable]", notes: Iterable[str] = ()) -> None:
    """Prints tables of results and the notes below them."""
    from lightgc2n.experiments.table import terminal

    for table in tables:
        print_table(terminal(table))
        for note in table.notes:
            typer.echo(note)
    for note in notes:
        typer.echo(note)


def print_manifest(manifest: dict[str, Any], out: Path, as_json: bool) -> None:
    """What a new dataset holds and where it is."""
    if as_json:
        print_json({"out": str(out), **{key: manifest[key] for key in ("name", "kind", "counts", "domains", "notes")}})
        return
    counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in manifest["counts"].items() if count)
    typer.echo(f"{manifest['name']}: {counts}")
    typer.echo(f"written to {out}")

"""How results look on the screen."""

import json
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=1, ensure_ascii=False))


def print_table(table: Table) -> None:
    """The table on stdout, as wide as it needs to be: a narrow terminal, or none at all, must not cut numbers."""
    console = Console(highlight=False)
    needed = Measurement.get(console, console.options.update(max_width=10_000), table).maximum
    console.width = max(console.width, needed)
    console.print(table)


def print_manifest(manifest: dict[str, Any], out: Path, as_json: bool) -> None:
    """What a new dataset holds and where it is."""
    if as_json:
        print_json({"out": str(out), **{key: manifest[key] for key in ("name", "kind", "counts", "domains", "notes")}})
        return
    counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in manifest["counts"].items() if count)
    typer.echo(f"{manifest['name']}: {counts}")
    typer.echo(f"written to {out}")

"""Options that mean the same in every command."""

import csv
from collections.abc import Container
from pathlib import Path
from typing import Annotated

import typer

from lightgc2n.config import LARGEST_SEED
from lightgc2n.errors import DataError, SettingError


def checked_seed(value: int) -> int:
    """Return the seed; an error if no generator takes it."""
    if not 0 <= value <= LARGEST_SEED:
        raise typer.BadParameter(f"expected a number from 0 to {LARGEST_SEED:,}, found {value:,}.")
    return value


DatasetFolder = Annotated[Path, typer.Argument(metavar="DIR", help="A prepared dataset (made by import or generate).")]
Seed = Annotated[int, typer.Option("--seed", callback=checked_seed, help="Seed of all random numbers.")]
Force = Annotated[bool, typer.Option("--force", help="Replace existing output at --out.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="A TOML file with settings.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="TABLE.NAME=VALUE", help="Change one setting; may be repeated.")
]
RunData = Annotated[Path | None, typer.Option("--data", metavar="DIR", help="The run's dataset, if it has moved.")]
History = Annotated[
    str | None,
    typer.Option(
        "--history",
        metavar="ID,ID,...",
        help="Item ids, oldest first: a new account's, or instead of --account's own. Quote an id that has a comma.",
    ),
]
ClusterAddress = Annotated[
    str | None,
    typer.Option("--cluster", metavar="HOST:PORT", help="Use this Ray cluster (an extra): see docs/cluster.md."),
]
Threads = Annotated[
    int | None, typer.Option("--threads", metavar="N", min=1, help="With --cluster: CPUs of each task (default 1).")
]
Times = Annotated[
    str | None,
    typer.Option("--times", metavar="TIME,...", help="Times of the events of --history (ISO), to find people in it."),
]


def known_history(text: str | None, items: Container[str]) -> list[str] | None:
    """Return the item ids of a history. Raise an error when none is known: the list would be the same for anybody."""
    ids = split_ids(text)
    if ids and not any(one in items for one in ids):
        raise DataError(
            f"--history: no item {', '.join(map(repr, ids[:3]))} is in the catalogue. Give item ids as in the log."
        )
    return ids


def split_ids(text: str | None) -> list[str] | None:
    """Split a list of ids at commas; an id that contains a comma is quoted, as in CSV."""
    if text is None:
        return None
    try:
        return [part for part in next(csv.reader([text]), []) if part]
    except csv.Error as problem:
        raise SettingError(f"expected ids separated by commas, found {text[:40]!r}: {problem}.") from None

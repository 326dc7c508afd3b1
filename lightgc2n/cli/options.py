"""Options that mean the same in every command."""

import csv
from collections.abc import Container
from pathlib import Path
from typing import Annotated

import typer

from lightgc2n.config import LARGEST_SEED
from lightgc2n.errors import DataError, SettingError

DatasetFolder = Annotated[Path, typer.Argument(metavar="DIR", help="A prepared dataset (made by import or generate).")]
Seed = Annotated[
    int, typer.Option("--seed", min=0, max=LARGEST_SEED, help="Everything random follows from this number.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace what stands at --out.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="A TOML file with settings.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="TABLE.NAME=VALUE", help="Change one setting; may be repeated.")
]
History = Annotated[
    str | None,
    typer.Option(
        "--history",
        metavar="ID,ID,...",
        help="Items, oldest first: of someone new, or in place of --account's own. Quote an id that has a comma.",
    ),
]
Times = Annotated[
    str | None,
    typer.Option("--times", metavar="TIME,...", help="When each event of --history was (ISO), to find people in it."),
]


def known_history(text: str | None, items: Container[str]) -> list[str] | None:
    """The ids of a history; one of which nothing is known is refused, since its list would be that of anybody."""
    ids = split_ids(text)
    if ids and not any(one in items for one in ids):
        raise DataError(
            f"--history: no item {', '.join(map(repr, ids[:3]))} is known here. Give ids as the log has them."
        )
    return ids


def split_ids(text: str | None) -> list[str] | None:
    """What stands between commas; an id with a comma of its own stands in double quotes, as in CSV."""
    if text is None:
        return None
    try:
        return [part for part in next(csv.reader([text]), []) if part]
    except csv.Error as problem:
        raise SettingError(f"expected ids with commas between them, found {text[:40]!r}: {problem}.") from None

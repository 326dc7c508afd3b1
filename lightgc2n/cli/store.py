"""`lightgc2n store`: create, fill and look into a store of events."""

from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lightgc2n.cli.options import Force, Json
from lightgc2n.cli.printing import print_json, print_manifest
from lightgc2n.errors import SettingError


class Action(StrEnum):
    init = "init"
    fill = "import"
    export = "export"
    status = "status"
    compact = "compact"


def store(
    action: Annotated[Action, typer.Argument(metavar="ACTION", help="init, import, export, status or compact.")],
    url: Annotated[str, typer.Argument(metavar="STORE", help="A path for SQLite, or postgresql://USER@HOST/DATABASE.")],
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="import: a prepared dataset with times.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="export: the folder for the dataset.")
    ] = None,
    name: Annotated[str, typer.Option(help="export: the name of the dataset.")] = "",
    force: Force = False,
    json: Json = False,
) -> None:
    """Create a store of events, fill it from a dataset, write a dataset from it, or count what is in it.

    compact removes items that no event names and rewrites the files, so that no erased value stays in them.
    """
    from lightgc2n.store.event_store import create_store, open_store

    if action is Action.fill and data is None:
        raise SettingError("store import: no dataset. Give --data DIR.")
    if action is Action.export and out is None:
        raise SettingError("store export: no folder for the dataset. Give --out DIR.")
    events = create_store(url) if action is Action.init else open_store(url)
    try:
        if action is Action.fill and data is not None:
            from lightgc2n.store.dataset_exchange import fill_store

            _print({"store": events.database.name, "imported": fill_store(events, data)}, json)
        elif action is Action.export and out is not None:
            from lightgc2n.store.dataset_exchange import export_store

            print_manifest(export_store(events, out, name, force), out, json)
        elif action is Action.compact:
            _print({"store": events.database.name, "items_removed": events.compact()}, json)
        else:
            facts = asdict(events.facts())
            facts |= {end: _date(facts[end]) for end in ("oldest", "newest")}
            _print({"store": events.database.name} | facts, json)
    finally:
        events.close()


def _date(time: int | None) -> str | None:
    return None if time is None else datetime.fromtimestamp(time / 1e6, UTC).isoformat()


def _print(facts: dict[str, object], json: bool) -> None:
    if json:
        print_json(facts)
        return
    for name, value in facts.items():
        shown = f"{value:,}" if isinstance(value, int) else value
        typer.echo(f"{name.replace('_', ' ')}: {'none' if shown is None else shown}")

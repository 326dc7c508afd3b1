"""`lightgc2n forget`: remove accounts from datasets, runs, bundles and stores."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from lightgc2n.cli.options import Json
from lightgc2n.cli.printing import print_json
from lightgc2n.errors import DataError, SettingError
from lightgc2n.store.databases import StoreUnavailableError, is_postgres
from lightgc2n.store.events import is_text

SHOWN = 5


def forget(
    accounts: Annotated[list[str] | None, typer.Argument(metavar="ACCOUNT", help="The ids of the accounts.")] = None,
    accounts_file: Annotated[
        Path | None, typer.Option("--accounts-file", metavar="FILE", help="A file with one account id per line.")
    ] = None,
    data: Annotated[list[Path] | None, typer.Option("--data", metavar="DIR", help="A prepared dataset.")] = None,
    run: Annotated[
        list[Path] | None, typer.Option("--run", metavar="RUN", help="A run trained on that dataset.")
    ] = None,
    bundle: Annotated[list[Path] | None, typer.Option("--bundle", metavar="BUNDLE", help="A bundle.")] = None,
    store: Annotated[
        list[str] | None,
        typer.Option("--store", metavar="STORE", help="A store of events: a path, or postgresql://USER@HOST/DATABASE."),
    ] = None,
    tombstones: Annotated[
        Path | None,
        typer.Option("--tombstones", metavar="FILE", help="Add the accounts to this file, for import --tombstones."),
    ] = None,
    json: Json = False,
) -> None:
    """Remove accounts and all their events from datasets, runs, bundles and stores. Each option may be repeated.

    The command reports what remains, such as what a model has learned from all accounts together. A store that does
    not answer is reported, and the other places are changed. A pipeline removes the accounts of its store from its
    own bundles, runs and datasets in its next round, or at once with: lightgc2n pipeline forget FILE
    """
    names = _names(accounts or [], accounts_file)
    if not data and not run and not bundle and not store:
        raise SettingError(
            "no place to remove them from. Give --data DIR, --run RUN, --bundle BUNDLE or --store STORE."
        )
    held = _search(names, data or [], run or [], bundle or [])
    stored = _search_stores(names, store or [])
    if tombstones is not None:
        _write_tombstones(tombstones, names)
    existing = {account for _, _, known in held for account in known} | stored.known
    if not existing and not stored.down:
        places = ", ".join([*(str(place) for _, place, _ in held), *stored.names])
        raise DataError(f"{places}: no account {', '.join(map(repr, names[:SHOWN]))} is there.")
    # Every place is searched again: another command may have added an account meanwhile. Stores come first, so that
    # nothing is exported from them again.
    report = _forget_in_stores(store or [], sorted(existing), stored.down)
    report |= {str(place): _forget_in(kind, place, names, data or []) for kind, place, _ in held}
    unknown = sorted(set(names) - existing) if not stored.down else []
    if json:
        print_json(report | ({"not_found": unknown} if unknown else {}))
    else:
        for place_name, facts in report.items():
            typer.echo(f"{place_name}: {_sentence(facts)}")
    if stored.down:
        places = ", ".join(stored.down.values())
        raise StoreUnavailableError(f"not reached: {places} Run the command again when the store answers.")
    if unknown:
        raise DataError(f"in none of these places: {', '.join(map(repr, unknown))}. The others were forgotten.")


def _names(accounts: Sequence[str], file: Path | None) -> list[str]:
    if file is not None:
        try:
            lines = file.read_bytes().decode("utf-8-sig").split("\n")  # an id may hold any other kind of line break
            accounts = [*accounts, *(line.removesuffix("\r") for line in lines if line.removesuffix("\r"))]
        except (OSError, UnicodeDecodeError) as problem:
            raise DataError(f"{file}: cannot be read as one account id per line: {problem}.") from None
    if not accounts:
        raise SettingError("no account. Give ids, or --accounts-file FILE with one id per line.")
    return list(dict.fromkeys(accounts))


def _search(
    names: list[str], data: list[Path], runs: list[Path], bundles: list[Path]
) -> list[tuple[str, Path, list[str]]]:
    """Return which of the accounts each place holds. All places are checked before any is changed."""
    from lightgc2n.data.forget_dataset import accounts_in_dataset
    from lightgc2n.recommending.forget_bundle import accounts_in_bundle

    held = [("data", place, accounts_in_dataset(place, names)) for place in data]
    if runs:
        from lightgc2n.training.forget_run import accounts_in_run

        held += [("run", place, accounts_in_run(place, names)) for place in runs]
    return held + [("bundle", place, accounts_in_bundle(place, names)) for place in bundles]


@dataclass(frozen=True)
class Stored:
    """Which accounts are in stores, and the stores that do not answer, with the reasons."""

    names: list[str]
    known: set[str]
    down: dict[str, str]


def _search_stores(names: list[str], urls: list[str]) -> Stored:
    from lightgc2n.store.event_store import open_store

    stored = Stored([], set(), {})
    for url in urls:
        try:
            store = open_store(url)
            stored.names.append(store.database.name)
            with closing(store):
                stored.known.update(name for name in names if is_text(name) and store.version(name) is not None)
        except StoreUnavailableError as problem:
            stored.down[url] = str(problem)
    return stored


def _forget_in_stores(urls: list[str], names: list[str], down: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Erase the accounts from stores; also those of other places, so that no late event brings them back."""
    from lightgc2n.store.event_store import open_store

    report = {}
    for url in urls:
        if url in down:
            continue
        with closing(open_store(url)) as store:
            gone = [name for name in names if is_text(name) and store.version(name) is not None]
            for name in filter(is_text, names):
                store.erase_account(name)
            stays = [
                "keyed hashes of the ids, so that late events are refused",
                "space of the rows: lightgc2n store compact STORE",
                "bundles, runs and datasets of a pipeline on this store: lightgc2n pipeline forget FILE",
            ]
            if is_postgres(url):
                stays.append("the write-ahead log, logs and backups of the database: out of reach")
            report[store.database.name] = {"forgotten": len(gone), "stays": stays}
    return report


def _write_tombstones(path: Path, names: list[str]) -> None:
    from lightgc2n.data.tombstones import add_tombstones

    add_tombstones(path, names)


def _forget_in(kind: str, place: Path, names: list[str], data: list[Path]) -> dict[str, Any]:
    """Remove the accounts from one place; return what was removed and what remains."""
    if kind == "data":
        from lightgc2n.data.forget_dataset import forget_in_dataset

        forgotten = forget_in_dataset(place, names)
        return {
            "forgotten": len(forgotten.accounts),
            "checksum": forgotten.checksum,
            "items_removed": forgotten.items,
            "stays": ["salted hashes of the ids in forgotten.json, so that importing again leaves the accounts out"],
        }
    if kind == "run":
        from lightgc2n.training.forget_run import forget_in_run

        gone = forget_in_run(place, names, data[0] if len(data) == 1 else None)
        return {
            "forgotten": len(gone),
            "stays": ["what the weights have learned from all accounts together: train anew to undo that"],
        }
    from lightgc2n.recommending.forget_bundle import forget_in_bundle

    gone, items = forget_in_bundle(place, names)
    stays = ["what the model has learned from all accounts together: train anew to undo that"]
    if items:
        shown = ", ".join(items[:SHOWN]) + (", …" if len(items) > SHOWN else "")
        stays.append(
            f"{len(items):,} items that only they had ({shown}), with their counts and days: "
            f"forget them in the run, then export it again"
        )
    return {"forgotten": len(gone), "items_left": items, "stays": stays}


def _sentence(facts: dict[str, Any]) -> str:
    if not facts["forgotten"]:
        return "no such account is there"
    parts = [f"forgot {facts['forgotten']:,} account{'s' * (facts['forgotten'] != 1)}"]
    if facts.get("items_removed"):
        parts.append(f"removed {len(facts['items_removed']):,} items that only they had")
    if "checksum" in facts:
        parts.append(f"the dataset now has checksum {facts['checksum']}")
    return "; ".join(parts) + "".join(f"\n  stays: {what}" for what in facts["stays"])

"""Between prepared datasets and the event store: fill an empty store from a dataset, write a dataset from a store."""

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from lightgc2n.data.catalogue import Catalogue
from lightgc2n.data.dataset import DATASET, FORGOTTEN, Dataset, Domain, Longs, load_dataset, write_dataset
from lightgc2n.data.forget_dataset import drop_accounts
from lightgc2n.data.tombstones import forgotten_among, keep_tombstones, read_tombstones
from lightgc2n.errors import DataError
from lightgc2n.files.atomic_writes import new_folder
from lightgc2n.progress import say, step
from lightgc2n.store.databases import Row, Session
from lightgc2n.store.event_store import EventStore
from lightgc2n.store.schema import FILLED_FROM, set_value

BLOCK = 100_000  # events that are held as Python objects at once
ONE_DOMAIN = "all"  # the name that `import` gives the domain of a log without domains


def fill_store(store: EventStore, folder: Path) -> int:
    """Copy all events of a dataset into an empty store, in one transaction, and return how many were copied."""
    data = load_dataset(folder)
    times = _times(data, folder)
    with store.database.transaction() as session:
        if session.run("SELECT 1 FROM events LIMIT 1"):
            raise DataError(f"{store.database.name}: the store holds events already. Import into a new store.")
        accounts = _add_accounts(store, session, data)
        items = _add_items(session, data)
        kept = (accounts > 0)[data.sequence_accounts].repeat(data.lengths)
        total = int(kept.sum())
        with step("events", total) as progress:
            for rows in _event_blocks(data, times, accounts, items):
                session.copy("events", ("account", "item", "time"), rows)
                progress.advance(len(rows))
        set_value(session, FILLED_FROM, data.checksum)
    store.filled_from = data.checksum
    return total


def export_store(
    store: EventStore, out: Path, name: str = "", force: bool = False, catalogue: Catalogue | None = None
) -> dict[str, Any]:
    """Write all events of a store as a prepared dataset and return its manifest.

    Accounts that were forgotten in the dataset at `out` are left out, as in an import.

    Args:
        catalogue: titles and categories for the dataset; a store has ids alone.
    """
    with new_folder(out, force, kind=DATASET) as folder:
        with store.database.transaction(write=False) as session:
            accounts = session.run("SELECT number, id FROM accounts ORDER BY number")
            items = session.run("SELECT number, id, domain FROM items ORDER BY domain, number")
            (total,) = session.run("SELECT COUNT(*) FROM events")[0]
            table = _read_events(session.stream(store.ALL_EVENTS), int(total))
            last = session.run("SELECT MAX(number) FROM events")[0][0]
        if not len(table):
            raise DataError(f"{store.database.name}: the store has no events, so there is nothing to train on.")
        ids, domains, place = _catalogue(items)
        account_place = _places([number for number, _ in accounts])
        owner, item = account_place[table[:, 0]], place[table[:, 1]]
        content: dict[str, Any] = {
            "accounts": [account for _, account in accounts],
            "items": ids,
            "domains": domains,
            "offsets": np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(accounts)))]),
            "sequence_accounts": np.arange(len(accounts)),
            "events": item,
            "times": table[:, 2],
            "catalogue": catalogue,
        }
        _leave_out_forgotten(content, out)
        source = {"store": store.database.name, "last_event": int(last)}
        manifest = write_dataset(folder, name=name or "store", kind="logs", source=source, **content)
        keep_tombstones(out, folder)
    return manifest


def _leave_out_forgotten(content: dict[str, Any], out: Path) -> None:
    """Remove the accounts from `content` that were forgotten in the dataset at `out`."""
    if not (out / FORGOTTEN).exists():
        return
    forgotten = forgotten_among(content["accounts"], [read_tombstones(out / FORGOTTEN)])
    if len(forgotten) == len(content["accounts"]):
        raise DataError(f"{out}: all accounts of the store were forgotten there, so there is nothing to export.")
    if forgotten:
        drop_accounts(content, forgotten)
        say(f"{len(forgotten):,} accounts that were forgotten in {out} are left out; the store still has them")


def _times(data: Dataset, folder: Path) -> Longs:
    if data.kind != "logs" or data.times is None:
        kind = "windows" if data.kind != "logs" else "a log without times"
        raise DataError(f"{folder}: a store needs logs with times, found {kind}.")
    return data.times


def _add_accounts(store: EventStore, session: Session, data: Dataset) -> Longs:
    """Add the accounts and return the number of each row; 0 for an account that was erased from this store."""
    erased = store.erased_among(session, data.accounts)
    session.run("UPDATE accounts SET version = version + 1")  # of accounts whose events were all erased
    skipped = erased | _numbers(session, "accounts").keys()
    session.copy("accounts", ("id", "version"), ((one, 1) for one in data.accounts if one not in skipped))
    numbers = _numbers(session, "accounts")
    return np.array([numbers.get(one, 0) for one in data.accounts], dtype=np.int64)


def _add_items(session: Session, data: Dataset) -> Longs:
    """Add the items that the store lacks and return the number of each row."""
    several = len(data.domains) > 1
    domain_of = [domain.name if several else None for domain in data.domains for _ in range(len(domain))]
    known = _numbers(session, "items")
    rows = zip(data.items, domain_of, strict=True)
    session.copy("items", ("id", "domain"), (row for row in rows if row[0] not in known))
    numbers = _numbers(session, "items")
    return np.array([numbers[item] for item in data.items], dtype=np.int64)


def _numbers(session: Session, table: str) -> dict[str, int]:
    """Return the row number of each id of a table."""
    return {str(one): int(number) for one, number in session.stream(f"SELECT id, number FROM {table}")}


def _event_blocks(data: Dataset, times: Longs, accounts: Longs, items: Longs) -> Iterator[list[Row]]:
    """Yield the events of accounts that were not erased, in blocks."""
    owners = np.repeat(accounts[data.sequence_accounts], data.lengths)
    for start in range(0, len(owners), BLOCK):
        part = slice(start, start + BLOCK)
        kept = owners[part] > 0
        columns = (owners[part], items[data.events[part]], times[part])
        yield list(zip(*(column[kept].tolist() for column in columns), strict=True))


def _read_events(rows: Iterator[Row], total: int) -> Longs:
    """Return the rows as an array [E, 3] of account, item and time, without holding them as Python objects."""
    table = np.empty((total, 3), dtype=np.int64)
    for start in range(0, total, BLOCK):
        size = min(BLOCK, total - start)
        flat = chain.from_iterable(islice(rows, size))
        table[start : start + size] = np.fromiter(flat, dtype=np.int64, count=size * 3).reshape(size, 3)
    return table


def _catalogue(items: list[Row]) -> tuple[list[str], list[Domain], Longs]:
    """Return item ids, domains, and the place of each row number in the catalogue. Domains are sorted by name."""
    names = sorted({domain for _, _, domain in items if domain is not None})
    rank = {name: place for place, name in enumerate(names)}
    # An item that was sent without a domain, where others have one, belongs to the first domain.
    ordered = sorted(items, key=lambda row: (rank.get(row[2], 0), row[0]))
    counts = np.bincount([rank.get(domain, 0) for _, _, domain in ordered], minlength=max(len(names), 1))
    stops = np.cumsum(counts).tolist()
    domains = [
        Domain(name, start, stop)
        for name, start, stop in zip(names or [ONE_DOMAIN], [0, *stops[:-1]], stops, strict=True)
    ]
    return [item for _, item, _ in ordered], domains, _places([number for number, _, _ in ordered])


def _places(numbers: list[int]) -> Longs:
    """Return an array that maps the number of a row to its place in the list."""
    places = np.full(max(numbers) + 1, -1, dtype=np.int64)
    places[numbers] = np.arange(len(numbers))
    return places

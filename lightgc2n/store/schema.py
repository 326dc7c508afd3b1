"""The tables of the event store, their version, and migrations that only run forwards.

    meta      name, value: the schema's version, the key of the hashes, the dataset that the store was filled from
    accounts  one row an account; `version` grows with each of its writes, so that a cached history can be checked
    items     every item id that an event has named, with its domain
    events    one row an event; `number` grows with every event that is stored
    quality   sums of live quality by day and model; no account or item is named
    erased    keyed hashes of erased accounts and events, so that a late copy does not bring them back

A migration is a tuple of statements. Never change one that was released: append another.
"""

import secrets

from lightgc2n.errors import DataError
from lightgc2n.store.databases import NAMESPACE, Database, PostgresDatabase, Session

SCHEMA = "schema"
KEY = "key"
FILLED_FROM = "filled_from"

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE accounts (number {key}, id TEXT NOT NULL UNIQUE, version {integer} NOT NULL)",
        "CREATE TABLE items (number {key}, id TEXT NOT NULL UNIQUE, domain TEXT)",
        "CREATE TABLE events (number {key}, account {integer} NOT NULL REFERENCES accounts, "
        "item {integer} NOT NULL REFERENCES items, time {integer} NOT NULL, id TEXT, session TEXT)",
        # The newest events of an account are one scan of this index alone.
        "CREATE INDEX events_of_account ON events (account, time, number, item)",
        "CREATE INDEX events_of_item ON events (item)",
        "CREATE UNIQUE INDEX event_ids ON events (account, id) WHERE id IS NOT NULL",
        "CREATE TABLE erased (hash TEXT PRIMARY KEY)",
    ),
    (
        "CREATE TABLE quality (day {integer} NOT NULL, model TEXT NOT NULL, received {integer} NOT NULL, "
        "scored {integer} NOT NULL, model_mrr DOUBLE PRECISION NOT NULL, model_rc DOUBLE PRECISION NOT NULL, "
        "popular_mrr DOUBLE PRECISION NOT NULL, popular_rc DOUBLE PRECISION NOT NULL, "
        "recent_mrr DOUBLE PRECISION NOT NULL, recent_rc DOUBLE PRECISION NOT NULL, PRIMARY KEY (day, model))",
    ),
)


def create_tables(database: Database) -> None:
    """Create all tables in an empty database. Raise an error if there are tables already."""
    with database.transaction() as session:
        if isinstance(database, PostgresDatabase):
            session.run(f"CREATE SCHEMA IF NOT EXISTS {NAMESPACE}")
        if _has_tables(database, session):
            raise DataError(f"{database.name}: the store exists already. See what is in it: lightgc2n store status URL")
        session.run("CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
        set_value(session, SCHEMA, "0")
        set_value(session, KEY, secrets.token_hex(32))
        _migrate(database, session, 0)


def update_tables(database: Database) -> None:
    """Run the migrations that this store does not have yet. Raise an error if its schema is newer than this version."""
    with database.transaction() as session:
        if not _has_tables(database, session):
            raise DataError(f"{database.name}: there is no store. Create one with: lightgc2n store init URL")
        version = int(value_of(session, SCHEMA) or 0)
        if version > len(MIGRATIONS):
            raise DataError(
                f"{database.name}: schema {version}, this version of lightgc2n knows {len(MIGRATIONS)}. "
                f"Install a newer lightgc2n."
            )
        if version < len(MIGRATIONS):
            _migrate(database, session, version)


def value_of(session: Session, name: str) -> str | None:
    """Return a value of the table `meta`."""
    rows = session.run("SELECT value FROM meta WHERE name = ?", (name,))
    return str(rows[0][0]) if rows else None


def set_value(session: Session, name: str, value: str) -> None:
    """Set a value of the table `meta`."""
    session.run(
        "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (name, value),
    )


def _migrate(database: Database, session: Session, version: int) -> None:
    for statements in MIGRATIONS[version:]:
        for statement in statements:
            session.run(statement.format(key=database.key, integer=database.integer))
    set_value(session, SCHEMA, str(len(MIGRATIONS)))


def _has_tables(database: Database, session: Session) -> bool:
    if isinstance(database, PostgresDatabase):
        return bool(session.run("SELECT 1 WHERE to_regclass(?) IS NOT NULL", (f"{NAMESPACE}.meta",)))
    return bool(session.run("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'meta'"))

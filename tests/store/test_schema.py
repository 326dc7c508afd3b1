"""Migrations run forwards only, and the newest events of an account are one scan of an index."""

import pytest

from lightgc2n.errors import DataError
from lightgc2n.store import schema
from lightgc2n.store.databases import PostgresDatabase
from lightgc2n.store.event_store import EventStore, NewEvent, open_store

NOW = len(schema.MIGRATIONS)
HISTORY = EventStore.NEWEST.replace("id = ?", "id = 'a7'").replace("LIMIT ?", "LIMIT 20")


def test_a_migration_runs_once_and_keeps_what_is_there(
    store: EventStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append([NewEvent("a", "x", 1)])
    more = ("ALTER TABLE items ADD COLUMN colour TEXT", "CREATE TABLE colours (number {key}, name TEXT)")
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, more))
    for _ in range(2):
        newer = open_store(url)
        assert newer.facts().schema == NOW + 1
        assert newer.facts().events == 1
        newer.database.query("SELECT colour FROM items")
        newer.close()
    monkeypatch.undo()
    with pytest.raises(DataError, match=f"schema {NOW + 1}, this version of lightgc2n knows {NOW}"):
        open_store(url)


def test_a_migration_that_fails_changes_nothing(store: EventStore, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = ("CREATE TABLE colours (number {key}, name TEXT)", "CREATE TABLE colours (number {key}, name TEXT)")
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, bad))
    with pytest.raises(Exception, match="colours"):
        open_store(url)
    monkeypatch.undo()
    again = open_store(url)
    assert again.facts().schema == NOW
    again.close()


def test_the_newest_events_of_an_account_are_one_index_scan(store: EventStore) -> None:
    with store.database.transaction() as session:
        session.copy("accounts", ("id", "version"), ((f"a{one}", 1) for one in range(200)))
        session.copy("items", ("id",), ((f"i{one}",) for one in range(50)))
        numbers = [row[0] for row in session.run("SELECT number FROM accounts")]
        places = [row[0] for row in session.run("SELECT number FROM items")]
        rows = ((one, places[at % 50], at * 7 % 1000) for one in numbers for at in range(200))
        session.copy("events", ("account", "item", "time"), rows)
    if isinstance(store.database, PostgresDatabase):
        store.database.vacuum()
        with store.database.transaction() as session:
            session.run("ANALYZE events")
            session.run("ANALYZE accounts")
            plan = "\n".join(row[0] for row in session.run(f"EXPLAIN {HISTORY}"))
        assert "events_of_account" in plan
        assert "Sort" not in plan
        assert "Bitmap" not in plan
    else:
        plan = "\n".join(row[3] for row in store.database.query(f"EXPLAIN QUERY PLAN {HISTORY}"))
        assert "SEARCH events USING COVERING INDEX events_of_account (account=?)" in plan
        assert "TEMP B-TREE" not in plan

"""The event store on SQLite and PostgreSQL: durable appends, ids that count once, histories, erasure, races."""

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lightgc2n.errors import DataError, OutputError
from lightgc2n.store.databases import database_name
from lightgc2n.store.event_store import EventStore, NewEvent, Outcome, create_store, open_store

STORED, DUPLICATE, ERASED = Outcome.STORED, Outcome.DUPLICATE, Outcome.ERASED


def test_history_is_in_the_order_of_time_then_arrival(store: EventStore) -> None:
    store.append([NewEvent("a", "late", 9), NewEvent("a", "early", 1), NewEvent("b", "other", 5)])
    store.append([NewEvent("a", "tie", 9)])
    history = store.history("a", newest=10)
    assert history is not None
    assert (history.items, history.times) == (("early", "late", "tie"), (1, 9, 9))
    newest = store.history("a", newest=2)
    assert newest is not None
    assert newest.items == ("late", "tie")
    assert store.history("nobody", newest=10) is None


def test_the_same_id_counts_once_for_an_account(store: EventStore) -> None:
    first = store.append([NewEvent("a", "x", 1, id="1"), NewEvent("a", "y", 2, id="1"), NewEvent("b", "x", 1, id="1")])
    again = store.append([NewEvent("a", "z", 3, id="1"), NewEvent("a", "z", 3)])
    assert first == [STORED, DUPLICATE, STORED]
    assert again == [DUPLICATE, STORED]
    history = store.history("a", newest=10)
    assert history is not None
    assert history.items == ("x", "z")


def test_the_version_grows_with_each_write(store: EventStore) -> None:
    assert store.version("a") is None
    versions = []
    for time in range(3):
        store.append([NewEvent("a", "x", time, id=str(time))])
        versions.append(store.version("a"))
    store.erase_event("a", id="1")
    versions.append(store.version("a"))
    assert versions == sorted(set(versions))


def test_pages_cover_every_event_once(store: EventStore) -> None:
    times = [3, 1, 3, 2, 3]
    store.append([NewEvent("a", f"i{place}", time) for place, time in enumerate(times)])
    seen: list[str] = []
    before: tuple[int, int] | None = None
    while page := store.events("a", limit=2, before=before):
        seen += [event.item for event in page]
        before = (page[-1].time, page[-1].number)
    assert seen == ["i4", "i2", "i0", "i3", "i1"]


def test_an_erased_account_stays_erased(store: EventStore) -> None:
    store.append([NewEvent("a", "x", 1), NewEvent("a", "y", 2), NewEvent("b", "x", 1)])
    assert store.erase_account("a") == 2
    assert store.append([NewEvent("a", "x", 3), NewEvent("b", "y", 3)]) == [ERASED, STORED]
    assert store.history("a", newest=10) is None
    assert store.is_erased("a")
    assert not store.is_erased("b")
    assert store.erase_account("a") == 0  # a second request is no error


def test_an_account_that_was_never_stored_can_be_erased(store: EventStore) -> None:
    assert store.erase_account("only in the bundle") == 0
    assert store.append([NewEvent("only in the bundle", "x", 1)]) == [ERASED]


def test_an_erased_event_stays_erased(store: EventStore) -> None:
    store.append([NewEvent("a", "x", 1, id="one"), NewEvent("a", "y", 2)])
    assert store.erase_event("a", id="one")
    assert not store.erase_event("a", id="one")
    assert store.append([NewEvent("a", "x", 1, id="one")]) == [ERASED]
    (left,) = store.events("a", limit=5)
    assert store.erase_event("a", number=left.number)
    assert store.events("a", limit=5) == []
    assert not store.erase_event("nobody", id="one")


def test_compact_removes_items_that_nobody_has(store: EventStore) -> None:
    store.append([NewEvent("a", "only-of-a", 1), NewEvent("a", "shared", 1), NewEvent("b", "shared", 1)])
    store.erase_account("a")
    assert store.compact() == 1
    assert store.facts().items == 1
    assert store.append([NewEvent("b", "only-of-a", 2)]) == [STORED]
    history = store.history("b", newest=5)
    assert history is not None
    assert history.items == ("shared", "only-of-a")


def test_facts_count_what_is_there(store: EventStore) -> None:
    store.append([NewEvent("a", "x", 4), NewEvent("b", "x", 2), NewEvent("b", "y", 8)])
    facts = store.facts()
    assert (facts.accounts, facts.items, facts.events, facts.erased) == (2, 2, 3, 0)
    assert (facts.oldest, facts.newest) == (2, 8)


def test_another_process_sees_what_was_acknowledged(store: EventStore, url: str) -> None:
    store.append([NewEvent("a", "x", 1)])
    other = open_store(url)
    try:
        assert other.version("a") == store.version("a")
        other.append([NewEvent("a", "y", 2)])
        history = store.history("a", newest=5)
        assert history is not None
        assert history.items == ("x", "y")
    finally:
        other.close()


def at_once(*calls: Callable[[], object]) -> None:
    """Run calls in threads that start together, and raise what they raise."""
    barrier, problems = threading.Barrier(len(calls)), []

    def run(call: Callable[[], object]) -> None:
        barrier.wait()
        try:
            call()
        except Exception as problem:  # shown in the main thread
            problems.append(problem)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_writers_of_the_same_accounts_do_not_deadlock_or_double(store: EventStore) -> None:
    accounts = ["a", "b", "c", "d"]

    def send(order: list[str], name: str) -> Callable[[], object]:
        batches = [[NewEvent(account, f"new-{turn}", turn, id=f"{turn}") for account in order] for turn in range(20)]
        return lambda: [store.append(batch) for batch in batches]

    at_once(send(accounts, "one"), send(accounts[::-1], "two"))
    assert store.facts().events == 20 * len(accounts)


def test_an_erasure_wins_against_writers(store: EventStore) -> None:
    events = [[NewEvent("a", "x", turn)] for turn in range(30)]
    at_once(lambda: [store.append(one) for one in events], lambda: store.erase_account("a"))
    assert store.history("a", newest=5) is None
    assert store.facts().events == 0


def test_a_store_is_never_created_twice(url: str) -> None:
    create_store(url).close()
    with pytest.raises((OutputError, DataError), match="exists already"):
        create_store(url)


def test_a_newer_schema_is_refused(store: EventStore, url: str) -> None:
    with store.database.transaction() as session:
        session.run("UPDATE meta SET value = '99' WHERE name = 'schema'")
    with pytest.raises(DataError, match="schema 99, this version of lightgc2n knows 2"):
        open_store(url)


@pytest.mark.parametrize(
    "event",
    [
        NewEvent("a", "x", 1.5),  # type: ignore[arg-type]
        NewEvent("a", "x", np.int64(1)),  # type: ignore[arg-type]
        NewEvent("a", "x", True),
        NewEvent("a", "x", float("nan")),  # type: ignore[arg-type]
        NewEvent("a", None, 1),  # type: ignore[arg-type]
        NewEvent(b"a", "x", 1),  # type: ignore[arg-type]
    ],
)
def test_a_value_of_another_type_is_refused(store: EventStore, event: NewEvent) -> None:
    with pytest.raises(DataError, match=r"expected (an int|text)"):
        store.append([event])
    assert store.facts().events == 0


def test_a_transaction_that_fails_stores_nothing(store: EventStore) -> None:
    store.append([NewEvent("a", "x", 1)])

    def stop_halfway() -> None:
        with store.database.transaction() as session:
            session.run("DELETE FROM events")
            raise RuntimeError("halfway")

    with pytest.raises(RuntimeError, match="halfway"):
        stop_halfway()
    assert store.facts().events == 1


def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    foreign, text = tmp_path / "mine.db", tmp_path / "thesis.txt"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE meta (name TEXT)")
    connection.close()
    text.write_text("thesis")
    before = foreign.read_bytes()
    for path, message in ((foreign, "did not create"), (text, "not a store")):
        with pytest.raises(DataError, match=message):
            open_store(str(path))
        with pytest.raises(OutputError, match="exists already"):
            create_store(str(path))
    assert foreign.read_bytes() == before
    assert text.read_text() == "thesis"
    with pytest.raises(DataError, match="no such store"):
        open_store(str(tmp_path / "missing.db"))
    assert not (tmp_path / "missing.db").exists()
    with pytest.raises(DataError, match="expected a path"):
        open_store("mysql://somewhere/db")
    for url in ("", "/", "."):
        with pytest.raises(DataError, match="names no file"):
            create_store(url)
    with pytest.raises(DataError, match=r"the address of the store: .* Expected postgresql://"):
        create_store("postgresql://[somewhere/db")


def test_messages_hide_the_password() -> None:
    assert database_name("postgresql://me:secret@host:5432/db") == "postgresql://me:***@host:5432/db"
    assert database_name("postgresql://me@host/db") == "postgresql://me@host/db"
    assert database_name("events.db") == "events.db"

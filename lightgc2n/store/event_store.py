"""The event store: appends that are durable when they return, histories by account, and erasure.

    store = open_store("events.db")                    # or postgresql://...
    store.append([NewEvent("h1", "film-7", time)])     # the same id of an account twice counts once
    store.history("h1", newest=500)

Every write locks the row of its account first, accounts in the order of their ids, so writers of one account are
serialised and two batches cannot deadlock.
"""

import hashlib
import hmac
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightgc2n.errors import DataError, SettingError
from lightgc2n.store.databases import Database, PostgresDatabase, Session, StoreReplacedError, is_postgres
from lightgc2n.store.events import LATEST, AccountHistory, Earlier, NewEvent, Outcome, StoredEvent, StoreFacts, fault_of
from lightgc2n.store.schema import FILLED_FROM, KEY, SCHEMA, create_tables, update_tables, value_of
from lightgc2n.store.sqlite_database import NewSqliteFile, SqliteDatabase

__all__ = [
    "AccountHistory",
    "EventStore",
    "NewEvent",
    "Outcome",
    "StoreFacts",
    "StoredEvent",
    "create_store",
    "open_store",
]
MOST_EVENTS = 5000  # events of one append, whose values are the variables of one statement
MOST_ITEM_IDS = 1_000_000  # item ids that are kept in memory
ANY_EVENT = ""  # stands for any event of an account among the erased
NO_VERSIONS: Mapping[str, int] = {}


class EventStore:
    """Events of accounts in a database. Safe to use from several threads and processes."""

    # One statement sees one state of the store; a join with accounts would sort all events of the account.
    NEWEST = (
        "SELECT (SELECT version FROM accounts WHERE id = ?), item, time FROM events "
        "WHERE account = (SELECT number FROM accounts WHERE id = ?) ORDER BY time DESC, number DESC LIMIT ?"
    )
    # Account, item and time by the numbers of their rows: all that training needs.
    ALL_EVENTS = "SELECT account, item, time FROM events ORDER BY account, time, number"

    def __init__(self, database: Database) -> None:
        self.database = database
        update_tables(database)
        with database.transaction(write=False) as session:
            self._key = bytes.fromhex(value_of(session, KEY) or "")
            self.filled_from = value_of(session, FILLED_FROM)
        self._item_ids: dict[int, str] = {}  # a row of `items` never changes, and its number is not used again

    def append(self, events: Sequence[NewEvent], earlier: Earlier | None = None) -> list[Outcome]:
        """Store events in one transaction and return the outcome of each; durable when this returns.

        Args:
            earlier: returns the events that an account has elsewhere, oldest first; they are stored before the first
                event of an account that is new here.
        """
        for event in events:
            if fault := fault_of(event):
                raise DataError(f"event of account {event.account!r:.100}: {fault}.")
        if len(events) > MOST_EVENTS:
            raise SettingError(f"expected at most {MOST_EVENTS:,} events at once, found {len(events):,}. Split them.")
        if not events:
            return []
        with self.database.transaction() as session:
            accounts, new = self._lock(session, sorted({one.account for one in events}))
            for account in new if earlier is not None else ():
                for part in _parts(earlier(account) if earlier is not None else ()):
                    self._insert(session, accounts, part)
            erased = self._erased_events(session, events)
            allowed = [one for one in events if one.account in accounts and (one.account, one.id) not in erased]
            fresh = iter(self._insert(session, accounts, allowed))
        kept = {id(one) for one in allowed}
        return [next(fresh) if id(one) in kept else Outcome.ERASED for one in events]

    def read(
        self, accounts: Sequence[str], newest: int, versions: Mapping[str, int] = NO_VERSIONS
    ) -> dict[str, AccountHistory | None]:
        """Return the newest events of accounts; None for an account that is not stored.

        Args:
            versions: of histories that the caller has; those that are current are left out of the result.
        """
        padding = [accounts[-1]] * (_power_of_two(len(accounts)) - len(accounts)) if accounts else []
        padded = [*accounts, *padding]  # so that there are few different statements
        sql = f"SELECT id, version FROM accounts WHERE id IN ({_marks(len(padded))})"
        current = {str(account): int(version) for account, version in self.database.query(sql, padded)}
        histories: dict[str, AccountHistory | None] = {}
        for account in accounts:
            if account not in current:
                histories[account] = None
            elif versions.get(account) != current[account]:
                histories[account] = self.history(account, newest) or AccountHistory(current[account], (), ())
        return histories

    def counts(self, accounts: Sequence[str]) -> dict[str, int]:
        """Return the number of events of each of these accounts that is stored."""
        if not accounts:
            return {}
        sql = (
            f"SELECT a.id, (SELECT COUNT(*) FROM events e WHERE e.account = a.number) FROM accounts a "
            f"WHERE a.id IN ({_marks(len(accounts))})"
        )
        return {str(account): int(count) for account, count in self.database.query(sql, accounts)}

    def version(self, account: str) -> int | None:
        """Return a number that grows with each write of the account; None for an account that is not stored."""
        rows = self.database.query("SELECT version FROM accounts WHERE id = ?", (account,))
        return int(rows[0][0]) if rows else None

    def history(self, account: str, newest: int) -> AccountHistory | None:
        """Return the newest events of an account, or None if there are none."""
        rows = self.database.query(self.NEWEST, (account, account, newest))
        if not rows:
            return None
        version = int(rows[0][0])
        ids = self._ids_of({item for _, item, _ in rows})
        rows = [row for row in reversed(rows) if row[1] in ids]  # `compact` removes items whose events were erased
        return AccountHistory(version, tuple(ids[item] for _, item, _ in rows), tuple(time for _, _, time in rows))

    def events(self, account: str, limit: int, before: tuple[int, int] | None = None) -> list[StoredEvent]:
        """Return a page of an account's events, newest first.

        Args:
            before: time and number of the last event of the page before.
        """
        time, number = before or (LATEST + 1, 0)
        with self.database.transaction(write=False) as session:
            rows = session.run(
                "SELECT e.number, i.id, e.time, e.id, i.domain, e.session FROM events e "
                "JOIN items i ON i.number = e.item WHERE e.account = (SELECT number FROM accounts WHERE id = ?) "
                "AND (e.time, e.number) < (?, ?) ORDER BY e.time DESC, e.number DESC LIMIT ?",
                (account, time, number, limit),
            )
        return [StoredEvent(*row) for row in rows]

    def erase_account(self, account: str) -> int:
        """Erase an account with all its events and return how many there were. Its id cannot be stored again."""
        with self.database.transaction() as session:
            numbers, _ = self._lock(session, [account])
            self._remember(session, self._hash(account))
            count = session.changed("DELETE FROM events WHERE account = ?", (numbers.get(account, 0),))
            session.run("DELETE FROM accounts WHERE id = ?", (account,))
        return count

    def erase_event(self, account: str, *, id: str | None = None, number: int | None = None) -> bool:
        """Erase one event by its id or its number, and return whether it was there. The id cannot be stored again."""
        column, value = ("number", number) if id is None else ("id", id)
        with self.database.transaction() as session:
            if not session.run("SELECT 1 FROM accounts WHERE id = ?", (account,)):
                return False
            owner = self._lock(session, [account])[0].get(account, 0)
            ids = session.run(f"SELECT id FROM events WHERE account = ? AND {column} = ?", (owner, value))
            if not ids:
                return False
            self._remember(session, self._hash(account, ANY_EVENT))
            if ids[0][0] is not None:
                self._remember(session, self._hash(account, ids[0][0]))
            return session.changed(f"DELETE FROM events WHERE account = ? AND {column} = ?", (owner, value)) > 0

    def is_erased(self, account: str) -> bool:
        """Return whether the account was erased."""
        return bool(self.erased([account]))

    def erased(self, accounts: Sequence[str]) -> set[str]:
        """Return those of the accounts that were erased."""
        hashes = {self._hash(account): account for account in accounts}
        if not hashes:
            return set()
        sql = f"SELECT hash FROM erased WHERE hash IN ({_marks(len(hashes))})"
        return {hashes[str(digest)] for (digest,) in self.database.query(sql, list(hashes))}

    def tombstones(self) -> frozenset[str]:
        """Return the hashes of all that was erased, for `remembers`."""
        return frozenset(str(digest) for (digest,) in self.database.query("SELECT hash FROM erased"))

    def erasures(self) -> int:
        """Return a number that changes with every erasure."""
        return int(self.database.query("SELECT COUNT(*) FROM erased")[0][0])

    def ping(self) -> None:
        """Raise an error unless the database answers and holds the same store as before."""
        rows = self.database.query("SELECT value FROM meta WHERE name = ?", (KEY,))
        if not rows or bytes.fromhex(str(rows[0][0])) != self._key:
            raise StoreReplacedError(f"{self.database.name}: another store is there now.")

    def hash_of(self, account: str) -> str:
        """Return the keyed hash that stands for an account where its id must not be kept."""
        return self._hash(account)

    def hash_of_any_event(self, account: str) -> str:
        """Return the keyed hash that is among the tombstones once an event of the account was erased."""
        return self._hash(account, ANY_EVENT)

    def facts(self) -> StoreFacts:
        """Count what is in the store."""
        with self.database.transaction(write=False) as session:
            counts = {
                table: int(session.run(f"SELECT COUNT(*) FROM {table}")[0][0])
                for table in ("accounts", "items", "events", "erased")
            }
            oldest, newest = session.run("SELECT MIN(time), MAX(time) FROM events")[0]
            schema = int(value_of(session, SCHEMA) or 0)
            return StoreFacts(schema=schema, **counts, oldest=oldest, newest=newest, filled_from=self.filled_from)

    def erased_among(self, session: Session, accounts: Sequence[str]) -> set[str]:
        """Return the accounts that were erased."""
        erased = {str(digest) for (digest,) in session.stream("SELECT hash FROM erased")}
        return {account for account in accounts if self._hash(account) in erased} if erased else set()

    def compact(self) -> int:
        """Remove items that no event names, give space back, and return how many items were removed."""
        with self.database.transaction() as session:
            gone = session.changed(
                "DELETE FROM items WHERE NOT EXISTS (SELECT 1 FROM events WHERE events.item = items.number)"
            )
        self._item_ids = {}
        self.database.vacuum()
        return gone

    def close(self) -> None:
        self.database.close()

    def _lock(self, session: Session, accounts: Sequence[str]) -> tuple[dict[str, int], list[str]]:
        """Lock the rows of accounts, which are sorted; return their numbers, and which were not stored before.

        Erased accounts are left out.
        """
        rows = session.run(
            f"INSERT INTO accounts (id, version) VALUES {_marks(len(accounts), '(?, 1)')} "
            f"ON CONFLICT (id) DO UPDATE SET version = accounts.version + 1 RETURNING id, number, version",
            accounts,
        )
        numbers = {str(account): int(number) for account, number, _ in rows}
        erased = self._erased(session, [self._hash(account) for account in accounts])
        for account in [account for account in accounts if self._hash(account) in erased]:
            session.run("DELETE FROM accounts WHERE number = ?", (numbers.pop(account),))
        return numbers, [str(account) for account, _, version in rows if version == 1 and account in numbers]

    def _erased_events(self, session: Session, events: Sequence[NewEvent]) -> set[tuple[str, str | None]]:
        """Return account and id of the events that were erased before."""
        hashes = {self._hash(one.account, one.id): (one.account, one.id) for one in events if one.id is not None}
        return {hashes[digest] for digest in self._erased(session, list(hashes))}

    def _insert(self, session: Session, accounts: dict[str, int], events: Sequence[NewEvent]) -> list[Outcome]:
        if not events:
            return []
        items = self._item_numbers(session, events)
        rows = [(accounts[one.account], items[one.item], one.time, one.id, one.session) for one in events]
        new = session.run(
            f"INSERT INTO events (account, item, time, id, session) VALUES {_marks(len(rows), '(?, ?, ?, ?, ?)')} "
            f"ON CONFLICT (account, id) WHERE id IS NOT NULL DO NOTHING RETURNING account, id",
            [value for row in rows for value in row],
        )
        stored = {(int(account), id) for account, id in new if id is not None}
        return [_outcome(accounts[one.account], one.id, stored) for one in events]

    def _item_numbers(self, session: Session, events: Sequence[NewEvent]) -> dict[str, int]:
        """Return the numbers of the events' items; unknown ones are added, in the order of their ids."""
        domains = {one.item: one.domain for one in events}
        numbers: dict[str, int] = {}
        while missing := sorted(domains.keys() - numbers.keys()):
            # The rows must stay until the events that name them are stored: `compact` removes unused items.
            sql = f"SELECT id, number FROM items WHERE id IN ({_marks(len(missing))}){self.database.keep_row}"
            numbers |= {str(item): int(number) for item, number in session.run(sql, missing)}
            if unknown := [item for item in missing if item not in numbers]:
                session.run(
                    f"INSERT INTO items (id, domain) VALUES {_marks(len(unknown), '(?, ?)')} "
                    f"ON CONFLICT (id) DO NOTHING",
                    [value for item in unknown for value in (item, domains[item])],
                )
        return numbers

    def _ids_of(self, numbers: set[int]) -> dict[int, str]:
        """Return the item ids of row numbers, from memory where they are known."""
        known = self._item_ids
        if missing := list(numbers - known.keys()):
            if len(known) > MOST_ITEM_IDS:
                known, missing = {}, list(numbers)
                self._item_ids = known
            for part in _parts(missing):
                sql = f"SELECT number, id FROM items WHERE number IN ({_marks(len(part))})"
                known.update(self.database.query(sql, part))
        return known

    def _hash(self, account: str, event: str | None = None) -> str:
        """Return a keyed hash of an account, or of an event of it."""
        text = account if event is None else f"{account}\0{event}"
        return hmac.new(self._key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()

    def _erased(self, session: Session, hashes: Sequence[str]) -> set[str]:
        """Return those of the hashes that belong to something erased."""
        if not hashes:
            return set()
        rows = session.run(f"SELECT hash FROM erased WHERE hash IN ({_marks(len(hashes))})", hashes)
        return {str(digest) for (digest,) in rows}

    def _remember(self, session: Session, digest: str) -> None:
        session.run("INSERT INTO erased (hash) VALUES (?) ON CONFLICT (hash) DO NOTHING", (digest,))


def _marks(count: int, row: str = "?") -> str:
    """Return the placeholders of a list of values, or of rows of values."""
    return ", ".join([row] * count)


def _power_of_two(count: int) -> int:
    """Return the next power of two."""
    return 1 << max(count - 1, 0).bit_length()


def _parts(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield rows in parts that fit into one statement."""
    for start in range(0, len(rows), MOST_EVENTS):
        yield rows[start : start + MOST_EVENTS]


def _outcome(account: int, event: str | None, stored: set[tuple[int, str]]) -> Outcome:
    """Return what became of an event, and mark its id as used: the same id again in the batch is a duplicate."""
    if event is None:
        return Outcome.STORED
    if (account, event) not in stored:
        return Outcome.DUPLICATE
    stored.remove((account, event))
    return Outcome.STORED


def create_store(url: str) -> EventStore:
    """Create an empty store: a new SQLite file, or tables of our own in a PostgreSQL database."""
    if is_postgres(url):
        database = PostgresDatabase(url)
        with _closed_after_an_error(database):
            create_tables(database)
            return EventStore(database)
    file = NewSqliteFile(_path(url))
    create_tables(file)
    file.save()
    return open_store(url)


def open_store(url: str, seconds: float | None = None) -> EventStore:
    """Open an existing store and bring its schema up to date.

    Args:
        seconds: the longest that PostgreSQL may take for a statement; None: any time, for work on the whole store.
    """
    database: Any = PostgresDatabase(url, seconds) if is_postgres(url) else SqliteDatabase(_path(url))
    with _closed_after_an_error(database):
        return EventStore(database)


@contextmanager
def _closed_after_an_error(database: Database) -> Iterator[None]:
    try:
        yield
    except BaseException:
        database.close()
        raise


def _path(url: str) -> Path:
    if "://" in url:
        raise DataError(f"{url}: expected a path for SQLite, or postgresql://USER@HOST/DATABASE.")
    if not Path(url).name:
        raise DataError(f"{url!r} names no file. Expected a path for SQLite, or postgresql://USER@HOST/DATABASE.")
    return Path(url)

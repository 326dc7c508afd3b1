"""SQLite in WAL mode with `synchronous=FULL`: one file, with a log beside it while the store is open."""

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from lightgc2n.errors import DataError, OutputError
from lightgc2n.files.atomic_writes import new_file
from lightgc2n.store.databases import (
    WAIT_SECONDS,
    Row,
    Session,
    StoreFullError,
    StoreReplacedError,
    StoreUnavailableError,
)

APPLICATION_ID = 0x4C474332  # "LGC2" in the header of an SQLite file: a store of this product
LOG_FILES = ("-wal", "-shm")  # beside a database that is open
SQLITE_FILES = ("-journal", *LOG_FILES)
_Identity = tuple[int, int] | None  # device and inode of a file; None if there is none
PRAGMAS = (
    *("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON"),
    "wal_autocheckpoint=4000",  # pages: a page that several transactions change is copied back once
    "cache_size=-16000",  # KiB
)


class SqliteDatabase:
    """One SQLite file. Each thread has a connection; a writer takes the lock before it reads."""

    key, integer, keep_row = "INTEGER PRIMARY KEY AUTOINCREMENT", "INTEGER", ""
    _log: list[_Identity] | None = None  # of the write-ahead log and its index, once a connection is open

    def __init__(self, path: Path) -> None:
        self.name, self._place = str(path), os.path.abspath(path)  # SQLite reads ":memory:" as no file at all
        self._own = threading.local()
        self._all: list[_SharedConnection] = []
        self._lock, self._closed = threading.Lock(), False
        if path.is_dir():
            raise DataError(f"{path}: is a folder. Expected the file of a store.")
        if not path.is_file():
            raise DataError(f"{path}: no such store. Create one with: lightgc2n store init {path}")
        _refuse_foreign(path)
        self._opened = self._file()

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        with self._errors(), self._connection() as connection:
            return connection.execute(sql, values).fetchall()

    @contextmanager
    def transaction(self, write: bool = True) -> Iterator[Session]:
        with self._errors(), self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                if self._log_is_gone():  # seen by the next statement, which has no transaction open
                    raise StoreUnavailableError(f"{self.name}-wal was removed. Try again.")
                yield _SqliteSession(connection)
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    def vacuum(self) -> None:
        with self._errors(), self._connection() as connection:
            connection.execute("VACUUM")
            busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        if busy:
            raise StoreUnavailableError(
                f"{self.name}: another process reads the store, so {self.name}-wal may still hold what was erased. "
                f"Run the command again."
            )

    def close(self) -> None:
        """Close each connection after the statement that uses it: SQLite crashes where it is closed meanwhile."""
        with self._lock:
            self._closed = True
            for shared in self._all:
                if not shared.lock.acquire(timeout=2 * WAIT_SECONDS):
                    continue  # a longer statement keeps its connection until the process ends
                with suppress(sqlite3.Error):
                    shared.connection.close()
                shared.lock.release()
            self._all.clear()

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection of this thread, which is not closed meanwhile."""
        if self._file() != self._opened:  # what is written to a file without a name would be lost
            raise StoreReplacedError(f"{self.name}: another file is there now.")
        if self._log_is_gone():
            self._save_log()
        shared: _SharedConnection | None = getattr(self._own, "shared", None)
        if shared is None:
            shared = self._own.shared = self._connect()
        with shared.lock:
            self._refuse_closed()
            yield shared.connection

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreUnavailableError(f"{self.name}: the store was closed.")

    def _connect(self) -> "_SharedConnection":
        connection = sqlite3.connect(
            self._place, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=64
        )
        for pragma in PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("PRAGMA user_version").fetchone()  # the first read opens the log
        shared = _SharedConnection(connection)
        with self._lock:
            self._all.append(shared)
            self._log = self._log or self._log_files()
        return shared

    def _log_files(self) -> list[_Identity]:
        return [_identity(f"{self._place}{name}") for name in LOG_FILES]

    def _log_is_gone(self) -> bool:
        """Return whether somebody removed the log that is open. SQLite itself does so only after the last close."""
        return self._log is not None and self._log_files() != self._log

    def _save_log(self) -> NoReturn:
        """Copy the events of a log that somebody removed into the database, or they are lost with the last process."""
        with self._lock:
            self._refuse_closed()
            shared = self._all[0]
        with shared.lock:
            self._refuse_closed()  # while this thread waited
            if not self._has_new_log():
                try:  # TRUNCATE empties the removed log, so that no process can copy its pages over newer ones
                    busy = shared.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
                except sqlite3.OperationalError:
                    if not self._has_new_log():
                        raise
                    busy = False
                if busy:
                    raise StoreUnavailableError(f"{self.name}-wal was removed while the store is open. Try again.")
        raise StoreReplacedError(
            f"{self.name}-wal or -shm was removed while the store was open; its events are saved. Leave both alone."
        )

    def _has_new_log(self) -> bool:
        """Return whether another process has opened a new log, after it saved or read the events of the removed one."""
        assert self._log is not None
        (log, index), (own_log, own_index) = self._log_files(), self._log
        if index not in (None, own_index):
            return True
        with suppress(FileNotFoundError):
            return log not in (None, own_log) and os.path.getsize(f"{self._place}-wal") > 0
        return False

    def _file(self) -> tuple[int, int]:
        """Return device and inode of the file; sqlite3 would create one that is not there."""
        try:
            facts = os.stat(self._place)
        except OSError as problem:
            raise StoreUnavailableError(f"{self.name}: cannot be opened: {problem.strerror}.") from None
        return facts.st_dev, facts.st_ino

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with _disk_errors(self.name):
                yield
        except sqlite3.DatabaseError as problem:
            if isinstance(problem, sqlite3.IntegrityError | sqlite3.ProgrammingError):
                raise
            raise StoreUnavailableError(f"{self.name}: {problem}.") from None


@dataclass(frozen=True)
class _SharedConnection:
    """The connection of one thread, and the lock that is held while a statement of it runs."""

    connection: sqlite3.Connection
    lock: threading.RLock = field(default_factory=threading.RLock)


class _SqliteSession:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._connection.execute(sql, values).fetchall()

    def changed(self, sql: str, values: Sequence[Any] = ()) -> int:
        return self._connection.execute(sql, values).rowcount

    def stream(self, sql: str, values: Sequence[Any] = ()) -> Iterator[Row]:
        yield from self._connection.execute(sql, values)

    def copy(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        marks = ", ".join("?" * len(columns))
        self._connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)


def _identity(path: str) -> _Identity:
    """Return device and inode of a file; None if there is none."""
    try:
        facts = os.stat(path)
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


def _refuse_foreign(path: Path) -> None:
    """Raise an error unless the file has our mark.

    SQLite itself reads it: if we opened and closed the file, the system would drop the locks of all connections that
    this process has to it. With `immutable`, SQLite does not complete what a crash of another program left: it would
    change the file and remove its journal.
    """
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            connection.execute("PRAGMA writable_schema=ON")  # else a file is refused while its log is copied into it
            (mark,) = connection.execute("PRAGMA application_id").fetchone()
    except sqlite3.OperationalError as problem:
        raise DataError(f"{path}: cannot be read: {problem}.") from None
    except sqlite3.DatabaseError:
        raise DataError(f"{path}: not a store of events: it is no SQLite file.") from None
    if mark != APPLICATION_ID:
        raise DataError(
            f"{path}: a file that lightgc2n did not create, so it is left alone. "
            f"Create a store at another path with: lightgc2n store init FILE"
        )


class NewSqliteFile(SqliteDatabase):
    """A new database that is in memory until `save` writes it to its file, which only its owner may read.

    An existing file is never replaced, nor one that SQLite would remove with the new database.
    """

    def __init__(self, path: Path) -> None:
        for name in ("", *SQLITE_FILES):
            if os.path.lexists(path.with_name(path.name + name)):
                why = ", and SQLite would use or remove it" if name else " already"
                raise OutputError(f"{path}{name} exists{why}. Choose another path for the store.")
        self.name, self._path = str(path), path
        self._memory = sqlite3.connect(":memory:", isolation_level=None)
        self._memory.execute(f"PRAGMA application_id={APPLICATION_ID}")

    def save(self) -> None:
        """Write the file; it appears whole or not at all."""
        with new_file(self._path) as temporary:
            temporary.chmod(0o600)
            with _disk_errors(self.name), closing(sqlite3.connect(temporary)) as connection:
                connection.execute("PRAGMA journal_mode=MEMORY")  # no files beside it
                self._memory.backup(connection)
        self._memory.close()

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        yield self._memory


@contextmanager
def _disk_errors(name: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as problem:
        kind = StoreFullError if "full" in str(problem) else StoreUnavailableError
        raise kind(f"{name}: {problem}. Try again.") from None

"""The two databases of the event store behind one small interface: SQLite in WAL mode, and PostgreSQL.

Statements are written once with `?` for values. A transaction that ends without an error is durable: SQLite runs with
`synchronous=FULL`, PostgreSQL with its own `synchronous_commit`.
"""

import logging
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from lightgc2n.errors import DataError, LightGC2NError, MissingExtraError, OutputError
from lightgc2n.files.atomic_writes import new_file

Row = tuple[Any, ...]
WAIT_SECONDS = 5.0  # for a lock of another writer, or for a connection
APPLICATION_ID = 0x4C474332  # "LGC2" in the header of an SQLite file: a store of this product
MAGIC, HEADER_BYTES, APPLICATION_ID_AT = b"SQLite format 3\0", 100, 68  # https://www.sqlite.org/fileformat.html
SQLITE_FILES = ("-journal", "-wal", "-shm")  # beside a database
PRAGMAS = (
    *("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON"),
    "wal_autocheckpoint=4000",  # pages: a page that several transactions change is copied back once
    "cache_size=-16000",  # KiB
)
NAMESPACE = "lightgc2n"  # the schema of our tables in PostgreSQL; tables of the user are never touched


class StoreUnavailableError(LightGC2NError):
    """The database does not answer; a retry may succeed."""

    exit_code = 1
    status = 503


class StoreFullError(StoreUnavailableError):
    """The disk of the database is full; nothing of the transaction was stored."""

    status = 507


class StoreReplacedError(StoreUnavailableError):
    """Another database is where the store was; open it anew."""


class Session(Protocol):
    """One open transaction."""

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Execute a statement and return its rows, if it has any."""

    def changed(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Execute a statement and return how many rows it changed."""

    def stream(self, sql: str, values: Sequence[Any] = ()) -> Iterator[Row]:
        """Yield the rows of a query without holding all of them."""

    def copy(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """Insert many rows in the fastest way."""


class Database(Protocol):
    """A place for tables; safe to use from several threads and processes."""

    name: str  # for messages, without a password
    key: str  # the type of a primary key that is numbered by the database
    integer: str  # the type of a 64-bit integer
    keep_row: str  # ends a SELECT whose rows must stay until the transaction ends

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return the rows of one SELECT outside any transaction: one round trip."""

    def transaction(self, write: bool = True) -> Any:
        """Return a context manager that yields a `Session`, commits at the end, and rolls back after an error."""

    def vacuum(self) -> None:
        """Rewrite the files without the space of deleted rows, so that no deleted value stays in them."""

    def close(self) -> None: ...


def database_name(url: str) -> str:
    """Return the address of a store without its password."""
    try:
        parts = urlsplit(url)
    except ValueError as problem:
        raise DataError(f"the address of the store: {problem}. Expected postgresql://USER@HOST/DATABASE.") from None
    if parts.password is None:
        return url
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{parts.username}:***@{host}").geturl()


def is_postgres(url: str) -> bool:
    return url.startswith(("postgresql://", "postgres://"))


class SqliteDatabase:
    """One SQLite file. Each thread has a connection; a writer takes the lock before it reads."""

    key, integer, keep_row = "INTEGER PRIMARY KEY AUTOINCREMENT", "INTEGER", ""

    def __init__(self, path: Path) -> None:
        self.name, self._path = str(path), Path(os.path.abspath(path))  # SQLite reads ":memory:" as no file at all
        self._own = threading.local()
        self._all: list[_SharedConnection] = []
        self._lock, self._closed = threading.Lock(), False
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
        shared: _SharedConnection | None = getattr(self._own, "shared", None)
        if shared is None:
            shared = self._own.shared = self._connect()
        with shared.lock:
            if self._closed:
                raise StoreUnavailableError(f"{self.name}: the store was closed.")
            yield shared.connection

    def _connect(self) -> "_SharedConnection":
        connection = sqlite3.connect(
            self._path, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=64
        )
        for pragma in PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
        shared = _SharedConnection(connection)
        with self._lock:
            self._all.append(shared)
        return shared

    def _file(self) -> tuple[int, int]:
        """Return device and inode of the file; sqlite3 would create one that is not there."""
        try:
            facts = self._path.stat()
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


def _refuse_foreign(path: Path) -> None:
    """Raise an error unless the header of the file has our mark.

    SQLite itself would complete what a crash of another program left: it would change the file and remove its journal.
    """
    try:
        with path.open("rb") as file:
            header = file.read(HEADER_BYTES)
    except OSError as problem:
        raise DataError(f"{path}: cannot be read: {problem.strerror}.") from None
    if not header.startswith(MAGIC):
        raise DataError(f"{path}: not a store of events: it is no SQLite file.")
    if int.from_bytes(header[APPLICATION_ID_AT : APPLICATION_ID_AT + 4], "big") != APPLICATION_ID:
        raise DataError(
            f"{path}: an SQLite file that lightgc2n did not create, so it is left alone. "
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


class PostgresDatabase:
    """The schema `lightgc2n` of a PostgreSQL database, through a pool of connections."""

    key, integer, keep_row = "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY", "BIGINT", " FOR KEY SHARE"

    def __init__(self, url: str, seconds: float | None = None, connections: int = 4) -> None:
        try:
            import psycopg
            from psycopg_pool import ConnectionPool, PoolTimeout
        except ModuleNotFoundError:
            raise MissingExtraError("psycopg", "store") from None
        self.name, self._psycopg, self._timeout = database_name(url), psycopg, PoolTimeout
        self._wait = WAIT_SECONDS if seconds is None else min(seconds, WAIT_SECONDS)
        options: dict[str, Any] = {
            "autocommit": True,
            "connect_timeout": max(2, int(self._wait)),
            "options": f"-c search_path={NAMESPACE}",
        }
        if seconds is not None:
            options["options"] += f" -c statement_timeout={int(1000 * seconds)}"
            options |= {"tcp_user_timeout": int(1000 * seconds), "keepalives_idle": 5, "keepalives_interval": 2}
        self._pool = ConnectionPool(
            url, min_size=1, max_size=connections, kwargs=options, open=False, timeout=self._wait,
            reconnect_timeout=WAIT_SECONDS, configure=_require_durable_commits,
        )  # fmt: skip
        self._pool.open(wait=False)
        # The pool prints each attempt to reconnect; callers get one error instead.
        logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        with self._errors(), self._pool.connection() as connection:
            rows: list[Row] = connection.execute(sql.replace("?", "%s"), _no_nul(values)).fetchall()
            return rows

    @contextmanager
    def transaction(self, write: bool = True) -> Iterator[Session]:
        with self._errors(), self._pool.connection() as connection, connection.transaction():
            if not write:
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield _PostgresSession(connection)

    def vacuum(self) -> None:
        with self._errors(), self._pool.connection() as connection:
            tables = connection.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = %s", (NAMESPACE,)
            ).fetchall()
            for (table,) in tables:
                connection.execute(f'VACUUM FULL {NAMESPACE}."{table}"')

    def close(self) -> None:
        self._pool.close(timeout=1.0)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except self._timeout:
            raise StoreUnavailableError(f"{self.name}: no connection within {self._wait:.0f} s. Try again.") from None
        except self._psycopg.errors.DiskFull as problem:
            raise StoreFullError(f"{self.name}: {first_line(problem)}.") from None
        except (self._psycopg.OperationalError, self._psycopg.InterfaceError) as problem:
            self._pool.check()  # after a restart of the server, drop all connections that are broken
            raise StoreUnavailableError(f"{self.name}: {first_line(problem)}. Try again.") from None
        except (self._psycopg.ProgrammingError, self._psycopg.InternalError) as problem:
            if problem.sqlstate is None:  # not of the server: our own mistake
                raise
            # No right to a table, a server that may only read, tables that are gone.
            raise StoreUnavailableError(f"{self.name}: {first_line(problem)}.") from None


class _PostgresSession:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        cursor = self._connection.execute(sql.replace("?", "%s"), _no_nul(values))
        return cursor.fetchall() if cursor.description else []

    def changed(self, sql: str, values: Sequence[Any] = ()) -> int:
        return int(self._connection.execute(sql.replace("?", "%s"), _no_nul(values)).rowcount)

    def stream(self, sql: str, values: Sequence[Any] = ()) -> Iterator[Row]:
        with self._connection.cursor(name="lightgc2n_stream") as cursor:
            cursor.itersize = 10_000
            cursor.execute(sql.replace("?", "%s"), _no_nul(values))
            yield from cursor

    def copy(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        with self._connection.cursor().copy(f"COPY {table} ({', '.join(columns)}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)


def _no_nul(values: Sequence[Any]) -> list[Any]:
    """Return the values with another control character for NUL, which PostgreSQL refuses: no stored id has either."""
    return [one.replace("\0", "\1") if isinstance(one, str) else one for one in values]


def _require_durable_commits(connection: Any) -> None:
    """Wait for the log of each transaction to reach the disk, also where the server's default is not to."""
    connection.execute(
        "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
    )


def first_line(problem: Exception) -> str:
    """Return the first line of the message of a driver, without a full stop."""
    return str(problem).partition("\n")[0].rstrip(". ") or type(problem).__name__

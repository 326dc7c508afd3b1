"""A query of a PostgreSQL database of yours as a CSV file, for `lightgc2n import postgresql://... --query '...'`.

The query runs in a transaction that may only read.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lightgc2n.errors import DataError, MissingExtraError, SettingError
from lightgc2n.progress import step
from lightgc2n.store.databases import StoreUnavailableError, database_name, first_line

CONNECT_SECONDS = 10
# Dates as ISO 8601 in UTC, whatever the server's defaults are.
OPTIONS = "-c default_transaction_read_only=on -c DateStyle=ISO -c TimeZone=UTC"


@contextmanager
def queried_table(url: str, query: str) -> Iterator[Path]:
    """Write the rows of a query to a temporary CSV file with a header, and yield its path.

    Args:
        query: one SELECT.
    """
    try:
        import psycopg
    except ModuleNotFoundError:
        raise MissingExtraError("psycopg", "store") from None
    text = query.strip().rstrip(";").strip()
    if not text:
        raise SettingError("--query: expected a SELECT that returns accounts, items and times, found nothing.")
    with TemporaryDirectory(prefix="lightgc2n-query-") as folder:
        path = Path(folder) / "query.csv"
        try:
            with psycopg.connect(url, connect_timeout=CONNECT_SECONDS, options=OPTIONS) as connection:
                _copy(connection, text, path)
        except psycopg.OperationalError as problem:
            raise StoreUnavailableError(f"{database_name(url)}: {first_line(problem)}.") from None
        except psycopg.Error as problem:
            raise DataError(f"--query: {database_name(url)}: {first_line(problem)}.") from None
        yield path


def _copy(connection: Any, query: str, path: Path) -> None:
    # A prepared statement is one statement: the query cannot end COPY's brackets, or the transaction, and go on.
    connection.execute(f"EXPLAIN {query}", prepare=True)
    with (
        path.open("wb") as file,
        step("rows of the query, bytes") as progress,
        connection.cursor().copy(f"COPY ({query}\n) TO STDOUT WITH (FORMAT csv, HEADER)") as rows,
    ):
        for block in rows:
            file.write(block)
            progress.advance(len(block))

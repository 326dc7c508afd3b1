"""A store in each database. PostgreSQL runs in a temporary folder, where it is installed."""

import os
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from lightgc2n.store.event_store import EventStore, create_store
from tests.store.postgres import PostgresServer, find_binaries, running_postgres

NUMBERS = count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    pytest.importorskip("psycopg_pool")
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed")
    with tempfile.TemporaryDirectory(prefix="lightgc2n-pg-") as folder:
        os.chmod(folder, 0o755)  # PostgreSQL runs as another user when the tests run as root
        inner = Path(folder) / "server"
        inner.mkdir()
        with running_postgres(inner, binaries) as server:
            yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.services)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store that does not exist yet."""
    if request.param == "sqlite":
        return str(tmp_path / "events.db")
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database(f"store_{next(NUMBERS)}")


@pytest.fixture
def store(url: str) -> Iterator[EventStore]:
    events = create_store(url)
    yield events
    events.close()

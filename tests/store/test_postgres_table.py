"""A table of the user's in PostgreSQL becomes a dataset; the query may only read."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lightgc2n.cli.main import app
from lightgc2n.data.dataset import load_dataset
from lightgc2n.store.databases import StoreUnavailableError
from lightgc2n.store.event_store import create_store
from tests.store.postgres import PostgresServer

pytestmark = pytest.mark.services
ROWS = (
    "('ann', 'film; \"one\"', '2024-05-01 20:15:00+02'), ('ann', 'two', '2024-05-02 07:00:00+02'), ('bo', 'two', now())"
)


@pytest.fixture
def shop(postgres: PostgresServer, request: pytest.FixtureRequest) -> str:
    import psycopg

    url = postgres.new_database(f"shop_{request.node.name}"[:60].lower())
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE views (who text, film text, at timestamptz)")
        connection.execute(f"INSERT INTO views VALUES {ROWS}")
    return url


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["import", *words])
    return getattr(result.exception, "exit_code", result.exit_code), result.output + str(result.exception or "")


COLUMNS = ("--account-column", "who", "--item-column", "film", "--time-column", "at")


def test_a_query_becomes_a_dataset(shop: str, tmp_path: Path) -> None:
    out = tmp_path / "shop"
    code, text = run(
        shop, "--query", "SELECT who, film, at FROM views WHERE who LIKE 'a%';", "--out", str(out), *COLUMNS
    )
    assert code == 0, text
    data = load_dataset(out)
    assert (data.accounts, data.items) == (["ann"], ['film; "one"', "two"])
    assert data.times is not None
    assert [str(time) for time in data.times.astype("datetime64[us]")] == [
        "2024-05-01T18:15:00.000000",
        "2024-05-02T05:00:00.000000",
    ]
    assert "tester" not in json.dumps(data.manifest["source"])


def test_what_goes_wrong_is_explained(shop: str, tmp_path: Path) -> None:
    for query, problem in (
        ("", "expected a SELECT"),
        ("SELECT nothing FROM views", "does not exist"),
        ("DELETE FROM views RETURNING *", "read-only"),
    ):
        code, text = run(shop, "--query", query, "--out", str(tmp_path / "out"), *COLUMNS)
        assert code == 2, text
        assert problem in text
    code, text = run("postgresql://tester@127.0.0.1:1/none", "--query", "SELECT 1", "--out", str(tmp_path / "out"))
    assert (code, "Traceback" in text) == (1, False), text
    assert not (tmp_path / "out").exists()
    code, text = run(str(tmp_path), "--query", "SELECT 1", "--out", str(tmp_path / "out"))
    assert "only for postgresql://" in text


def test_a_query_cannot_end_its_transaction_and_write(shop: str, tmp_path: Path) -> None:
    import psycopg

    for query in (
        "SELECT who, film, at FROM views) TO STDOUT; ROLLBACK; BEGIN READ WRITE; DELETE FROM views; COMMIT; "
        "COPY (SELECT 1",
        f"SELECT 1) TO '{tmp_path}/written'; COPY (SELECT 1",
        "SELECT who, film, at FROM views; COMMIT; BEGIN READ WRITE; DELETE FROM views",
        "ANALYZE DELETE FROM views",
    ):
        code, text = run(shop, "--query", query, "--out", str(tmp_path / "out"), *COLUMNS)
        assert (code, "Traceback" in text) == (2, False), text
    with psycopg.connect(shop) as connection:
        assert connection.execute("SELECT COUNT(*) FROM views").fetchone() == (3,)
    assert not list(tmp_path.iterdir())


def test_a_role_without_rights_is_told_so(shop: str) -> None:
    import psycopg

    with psycopg.connect(shop) as connection:
        connection.execute("DROP ROLE IF EXISTS guest")
        connection.execute("CREATE ROLE guest LOGIN")
    with pytest.raises(StoreUnavailableError, match="permission denied"):
        create_store(shop.replace("tester@", "guest@"))

"""The files of SQLite: ours appear whole, and those of other programs are never changed, not even by a look at them."""

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from lightgc2n.errors import DataError, LightGC2NError, OutputError
from lightgc2n.files.atomic_writes import sha256
from lightgc2n.store.databases import StoreReplacedError, StoreUnavailableError
from lightgc2n.store.event_store import NewEvent, create_store, open_store
from lightgc2n.store.sqlite_database import SqliteDatabase

CRASHED = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute(f"PRAGMA journal_mode={sys.argv[2]}")
connection.execute("PRAGMA cache_size=2")
connection.execute("CREATE TABLE films (name TEXT)")
connection.execute("INSERT INTO films VALUES ('first')")
if sys.argv[2] == "DELETE":
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO films VALUES (?)", [("x" * 900,)] * 100)
os._exit(9)
"""


def contents(folder: Path) -> dict[str, str]:
    return {path.name: sha256(path) for path in folder.iterdir()}


@pytest.mark.parametrize(("mode", "beside"), [("WAL", "-wal"), ("DELETE", "-journal")])
def test_what_a_crash_of_another_program_left_stays(mode: str, beside: str, tmp_path: Path) -> None:
    place = tmp_path / "theirs.db"
    assert subprocess.run([sys.executable, "-c", CRASHED, place, mode], check=False).returncode == 9
    before = contents(tmp_path)
    assert f"theirs.db{beside}" in before
    with pytest.raises(DataError, match="did not create, so it is left alone"):
        open_store(str(place))
    assert contents(tmp_path) == before


@pytest.mark.parametrize("beside", ["-journal", "-wal", "-shm"])
def test_a_file_that_sqlite_would_remove_is_refused(beside: str, tmp_path: Path) -> None:
    (tmp_path / f"work{beside}").write_text("my diary")
    with pytest.raises(OutputError, match=f"work{beside} exists, and SQLite would use or remove it"):
        create_store(str(tmp_path / "work"))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {f"work{beside}": "my diary"}


def test_the_name_of_sqlites_memory_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    create_store(":memory:").close()
    store = open_store(":memory:")
    assert store.facts().accounts == 0
    store.close()
    assert (tmp_path / ":memory:").stat().st_size > 0


def test_a_store_that_cannot_be_created_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("lightgc2n.store.schema._migrate", stop)
        with pytest.raises(KeyboardInterrupt):
            create_store(str(tmp_path / "events.db"))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises((LightGC2NError, OSError)):
        create_store(str(tmp_path / ("x" * 250)))
    assert list(tmp_path.iterdir()) == []


def test_a_new_store_is_private_and_its_journal_is_a_write_ahead_log(tmp_path: Path) -> None:
    create_store(str(tmp_path / "events.db")).close()
    assert os.stat(tmp_path / "events.db").st_mode & 0o777 == 0o600
    with sqlite3.connect(tmp_path / "events.db") as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


CLOSED_WHILE_READING = """
import sys, threading, time
from lightgc2n.store.event_store import create_store

store = create_store(sys.argv[1])
counting = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000000) SELECT max(i) FROM n"
rows, reading = [], threading.Event()

def read():
    store.database.query("SELECT 1")  # its connection is open
    reading.set()
    rows.extend(store.database.query(counting))

thread = threading.Thread(target=read)
thread.start()
reading.wait()
time.sleep(0.05)
store.close()
thread.join()
print(rows)
"""


def test_a_store_that_is_closed_while_a_thread_reads_it(tmp_path: Path) -> None:
    """SQLite crashes the process where a connection is closed under a statement: the statement ends first."""
    command = [sys.executable, "-c", CLOSED_WHILE_READING, str(tmp_path / "events.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) in ((0, "[(3000000,)]\n"), (0, "[]\n")), done.stderr


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is a folder"):
        open_store(str(tmp_path))


READING = """
import sys
from lightgc2n.store.event_store import open_store
store = open_store(sys.argv[1])
print(store.history("a", 10).items)
store.close()
"""


def test_opening_a_store_again_keeps_the_locks_of_this_process(tmp_path: Path) -> None:
    """Without them, the next process that closes the store removes the log under the connections of this one."""
    place = str(tmp_path / "events.db")
    create_store(place).close()
    store = open_store(place)
    store.append([NewEvent("a", "i", 1)])
    open_store(place).close()
    done = subprocess.run([sys.executable, "-c", READING, place], capture_output=True, text=True, check=True)
    assert done.stdout == "('i',)\n"
    assert (tmp_path / "events.db-wal").exists()
    store.append([NewEvent("a", "i", 2)])
    store.close()


def test_a_store_is_opened_after_a_kill_while_the_log_was_copied_into_it(tmp_path: Path) -> None:
    """Its header then counts pages that the file does not have yet."""
    place, killed = tmp_path / "events.db", tmp_path / "killed.db"
    create_store(str(place)).close()
    store = open_store(str(place))
    store.append([NewEvent("a", "i", time) for time in range(2000)])
    shutil.copy(place, killed)
    shutil.copy(f"{place}-wal", f"{killed}-wal")
    store.close()
    with killed.open("r+b") as file:
        file.write(place.read_bytes()[:4096])
    after = open_store(str(killed))
    assert after.counts(["a"]) == {"a": 2000}
    after.close()


REMOVED = pytest.mark.parametrize("removed", [["-wal"], ["-shm"], ["-wal", "-shm"]], ids=" ".join)


@REMOVED
def test_events_of_a_removed_log_are_saved(tmp_path: Path, removed: list[str]) -> None:
    """Before, they were lost when the process was killed: the log had no name any more."""
    place = str(tmp_path / "events.db")
    create_store(place).close()
    store = open_store(place)
    store.append([NewEvent("a", "i", time, id=str(time)) for time in range(10)])
    for name in removed:
        (tmp_path / f"events.db{name}").unlink()
    with pytest.raises(StoreReplacedError, match="its events are saved"):
        store.append([NewEvent("a", "i", 11, id="late")])
    after = open_store(place)  # as after a kill: the other store is still open
    assert [event.time for event in after.events("a", 100)] == list(range(10))[::-1]
    after.close()
    store.close()


@REMOVED
def test_every_process_notices_that_the_log_was_removed(tmp_path: Path, removed: list[str]) -> None:
    place = str(tmp_path / "events.db")
    create_store(place).close()
    workers = [open_store(place), open_store(place)]
    for number, one in enumerate(workers):
        one.append([NewEvent("a", "i", number)])
    for name in removed:
        (tmp_path / f"events.db{name}").unlink()
    for number, one in enumerate(workers):
        with pytest.raises(StoreReplacedError, match="its events are saved"):
            one.history("a", 10)
        one.close()
        workers[number] = open_store(place)
        workers[number].append([NewEvent("a", "i", 2 + number)])
    for one in workers:
        assert [event.time for event in one.events("a", 100)] == [3, 2, 1, 0]
        one.close()
    with closing(sqlite3.connect(place)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_store_that_is_closed_while_a_thread_waits_to_save_its_log(tmp_path: Path) -> None:
    place = str(tmp_path / "events.db")
    create_store(place).close()
    store = open_store(place)
    store.append([NewEvent("a", "i", 1)])
    (tmp_path / "events.db-wal").unlink()
    lock = MagicMock()
    lock.__enter__.side_effect = store.close
    assert isinstance(store.database, SqliteDatabase)
    store.database._all[0] = replace(store.database._all[0], lock=lock)
    with pytest.raises(StoreUnavailableError, match="was closed"):
        store.history("a", 10)

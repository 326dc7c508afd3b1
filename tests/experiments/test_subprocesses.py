"""Child processes: how many at once, for how long, and that none is left behind."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lightgc2n.errors import DataError
from lightgc2n.experiments import subprocesses
from lightgc2n.experiments.subprocesses import Child, TimeBudget, last_line, run_children

ROOT = Path(__file__).parents[2]
# Writes down when it began and ended; the words say what it does in between.
WORKER = """
import fcntl, signal, sys, time
from pathlib import Path
from lightgc2n.errors import DataError
from lightgc2n.experiments.subprocesses import as_child
folder, what, seconds = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
def work():
    try:
        (folder / "began").write_text(str(time.monotonic()))
        if what == "fails":
            raise DataError("no such thing")
        if what == "is deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            lock = (folder / "lock").open("w")
            fcntl.flock(lock, fcntl.LOCK_EX)
            (folder / "deaf").touch()
        time.sleep(0.3 if what == "works" else 600)
    finally:
        (folder / "ended").write_text(str(time.monotonic()))
as_child(work)
"""


@pytest.fixture(autouse=True)
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))


def child(folder: Path, name: str, what: str) -> Child:
    (folder / name).mkdir()
    return Child(name, folder / name, folder / "logs" / f"{name}.txt", "worker", (folder / name, what))


def moment(folder: Path, name: str, which: str) -> float:
    return float((folder / name / which).read_text())


def wait_for(what: Callable[[], bool]) -> None:
    until = time.monotonic() + 300
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_children_run_at_most_so_many_at_once_and_each_end_is_reported(tmp_path: Path) -> None:
    told: dict[str, int] = {}
    five = [child(tmp_path, name, "fails" if name == "c" else "works") for name in "abcde"]
    run_children(five, 2, TimeBudget(), lambda child, code: told.update({child.name: code}))
    assert told == {"a": 0, "b": 0, "c": DataError.exit_code, "d": 0, "e": 0}
    assert last_line(five[2].log) == "error: no such thing"
    assert last_line(five[0].log) == "its log is empty"
    spans = [(moment(tmp_path, name, "began"), moment(tmp_path, name, "ended")) for name in "abde"]
    assert all(sum(first <= began < last for first, last in spans) <= 2 for began, _ in spans)


def test_python_files_of_the_current_folder_are_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m` would import them in place of the standard library: a child used to execute a user's random.py."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "random.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "worker.py").write_text(f"import random\n{WORKER}")
    told: list[int] = []
    run_children([child(tmp_path, "a", "works")], 1, TimeBudget(), lambda child, code: told.append(code))
    assert told == [0]
    assert not (tmp_path / "executed").exists()


def test_without_time_nothing_starts(tmp_path: Path) -> None:
    run_children([child(tmp_path, "a", "works")], 1, TimeBudget(0), lambda child, code: pytest.fail("it was started"))
    assert not (tmp_path / "a" / "began").exists()


def run_until_one_fails(folder: Path, what: str, until: str) -> Child:
    """One child that does something until another has failed, and what is left of it."""
    busy, broken = child(folder, "busy", what), child(folder, "broken", "fails")

    def ended(child: Child, code: int) -> None:
        wait_for(lambda: (folder / "busy" / until).exists())
        raise DataError(f"{child.name}: {code}")

    with pytest.raises(DataError, match="broken: 2"):
        run_children([busy, broken], 2, TimeBudget(), ended)
    return busy


def test_a_problem_stops_the_others_which_can_clean_up(tmp_path: Path) -> None:
    busy = run_until_one_fails(tmp_path, "waits", until="began")
    assert (tmp_path / "busy" / "ended").exists()
    assert not busy.log.read_text()


def test_a_child_that_does_not_listen_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocesses, "SECONDS_TO_STOP", 1)
    run_until_one_fails(tmp_path, "is deaf", until="deaf")
    assert _is_free(tmp_path / "busy" / "lock")
    assert not (tmp_path / "busy" / "ended").exists()


PARENT = """
import json, sys
from pathlib import Path
from lightgc2n.experiments.subprocesses import Child, TimeBudget, last_line, run_children
folder = Path(sys.argv[1])
names = json.loads(sys.argv[2])
run_children(
    [Child(name, folder / name, folder / f"{name}.txt", "worker", (folder / name, "is deaf")) for name in names],
    2, TimeBudget(), print,
)
"""


def test_no_child_outlives_a_killed_parent(tmp_path: Path) -> None:
    """A child that listens to no signal ends with its parent all the same, even by kill -9."""
    for name in "ab":
        (tmp_path / name).mkdir()
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path), json.dumps(["a", "b"])], cwd=ROOT)
    wait_for(lambda: all((tmp_path / name / "deaf").exists() for name in "ab"))
    assert not any(_is_free(tmp_path / name / "lock") for name in "ab")
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_for(lambda: all(_is_free(tmp_path / name / "lock") for name in "ab"))


def _is_free(lock: Path) -> bool:
    """Whether the process that locked a file is gone."""
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@pytest.mark.parametrize(("at_once", "set_by_hand", "expected"), [(1, None, None), (2, None, "4"), (2, "3", "3")])
def test_children_share_the_cores(
    at_once: int, set_by_hand: str | None, expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if set_by_hand:
        monkeypatch.setenv("OMP_NUM_THREADS", set_by_hand)
    (tmp_path / "threads.py").write_text("import os; print(os.environ.get('OMP_NUM_THREADS'))")
    asked = Child("a", tmp_path, tmp_path / "log.txt", "threads", ())
    run_children([asked], at_once, TimeBudget(), lambda child, code: None)
    assert last_line(asked.log) == str(expected)

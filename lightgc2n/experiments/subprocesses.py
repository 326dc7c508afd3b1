"""Run several children at once, each in a subprocess that never outlives its parent."""

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from lightgc2n.errors import LightGC2NError
from lightgc2n.progress import say
from lightgc2n.training.checkpoints import epochs_of

POLL_SECONDS = 0.1
SECONDS_BETWEEN_NEWS = 30
SECONDS_TO_STOP = 20  # grace period after SIGTERM; a killed child loses only its current epoch
STOPPED = 130  # exit code
# As `python -m MODULE`, which however imports Python files of the current folder in place of packages: -P does not.
RUN_MODULE = """
import runpy, sys
place, module = sys.argv[1:3]
del sys.argv[1:3]
if place not in sys.path:
    sys.path.insert(0, place)
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""

Process = subprocess.Popen[bytes]


@dataclass
class TimeBudget:
    """The time that a call may take; it starts at the first query, so that even a short budget trains one epoch."""

    seconds: float = math.inf
    until: float | None = None

    def left(self) -> float:
        if self.until is None:
            self.until = time.monotonic() + self.seconds
        return self.until - time.monotonic()


@dataclass(frozen=True)
class Child:
    """A subprocess that runs MODULE with ARGUMENTS and SECONDS, the rest of the time budget."""

    name: str
    run: Path  # the run folder that it trains in
    log: Path  # its stdout and stderr
    module: str
    arguments: tuple[str | Path | int, ...]


Ended = Callable[[Child, int], None]
Runner = Callable[[Iterable[Child], int, TimeBudget, Ended], None]  # run_children, or the same on a cluster


def last_line(log: Path) -> str:
    """The last line of a log file."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.is_file() else []
    return lines[-1] if lines else "its log is empty"


def run_children(children: Iterable[Child], at_once: int, budget: TimeBudget, ended: Ended) -> None:
    """Run children, at most `at_once` at a time, until all have ended or the time is up; an error stops them all.

    Args:
        ended: called with every child that has ended, and its exit code.
    """
    waiting = list(children)
    running: dict[Child, Process] = {}
    reported = time.monotonic()
    try:
        while running or (waiting and budget.left() > 0):
            while waiting and len(running) < at_once and (left := budget.left()) > 0:
                child = waiting.pop(0)
                running[child] = _start(child, left, at_once)
            for child in [child for child, process in running.items() if process.poll() is not None]:
                ended(child, _close(running.pop(child)))
            if running and time.monotonic() - reported > SECONDS_BETWEEN_NEWS:
                reported = time.monotonic()
                now = ", ".join(f"{child.name} (epoch {epochs_of(child.run) + 1})" for child in running)
                say(f"{len(waiting)} waiting; running: {now}")
            time.sleep(POLL_SECONDS)
    finally:
        _stop(running.values())


def as_child(work: Callable[[], object]) -> None:
    """Run `work` in a child process: exit with the parent or on a signal, and report an error in one line."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    try:
        work()
    except LightGC2NError as problem:
        say(f"error: {problem.command_line}")
        sys.exit(problem.exit_code)


def child_command(module: str, arguments: Sequence[str | Path | int], seconds: float) -> list[str]:
    """The command of a child."""
    place = str(Path(__file__).parents[2])
    return [sys.executable, "-P", "-c", RUN_MODULE, place, module, *map(str, arguments), str(seconds)]


def _start(child: Child, seconds: float, at_once: int) -> Process:
    command = child_command(child.module, child.arguments, seconds)
    # One thread per run: more would take cores from the other runs.
    threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // at_once))} if at_once > 1 else {}
    child.log.parent.mkdir(parents=True, exist_ok=True)
    with child.log.open("ab") as log:
        # Nothing is written to the pipe: its end of file tells the child that this process has ended.
        return Process(command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=threads | os.environ)


def _stop(processes: Iterable[Process]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(SECONDS_TO_STOP)
        except subprocess.TimeoutExpired:
            process.kill()
        _close(process)


def _close(process: Process) -> int:
    code = process.wait()
    assert process.stdin is not None
    process.stdin.close()
    return code


def _end_with_parent() -> None:
    """Exit when the parent has ended, even by kill -9: two processes must never train in one folder."""
    os.read(0, 1)
    os._exit(1)


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    # After Ctrl-C in a terminal the parent sends a second signal; it must not interrupt the clean-up.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: None)
    sys.exit(STOPPED)

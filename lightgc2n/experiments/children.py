"""Several runs at once, each in a process of its own that never outlives the one that started it."""

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from lightgc2n.errors import LightGC2NError
from lightgc2n.progress import say
from lightgc2n.training.record import epochs_of

SECONDS_BETWEEN_LOOKS = 0.1
SECONDS_BETWEEN_NEWS = 30
SECONDS_TO_STOP = 20  # what a child asked to stop may take before it is killed; it then loses its epoch alone
STOPPED = 130

Process = subprocess.Popen[bytes]


@dataclass
class Slice:
    """The time that a call may take. It runs from the first question on, so that even a short one trains an epoch."""

    seconds: float = math.inf
    until: float | None = None

    def left(self) -> float:
        if self.until is None:
            self.until = time.monotonic() + self.seconds
        return self.until - time.monotonic()


@dataclass(frozen=True)
class Child:
    """What a process shall do: `python -m MODULE WORDS SECONDS`, where the seconds are those that are left for it."""

    name: str
    run: Path  # the folder that it trains in
    log: Path  # all that it says
    module: str
    words: tuple[str | Path | int, ...]

    def last_word(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


def run_children(
    children: Iterable[Child], at_once: int, time_slice: Slice, ended: Callable[[Child, int], None]
) -> None:
    """Starts children as places fall free and time is left, until all have ended; an error on the way stops them.

    Args:
        ended: called with every child that has ended, and its exit code.
    """
    waiting = list(children)
    running: dict[Child, Process] = {}
    spoke = time.monotonic()
    try:
        while running or (waiting and time_slice.left() > 0):
            while waiting and len(running) < at_once and (left := time_slice.left()) > 0:
                child = waiting.pop(0)
                running[child] = _start(child, left, at_once)
            for child in [child for child, process in running.items() if process.poll() is not None]:
                ended(child, _close(running.pop(child)))
            if running and time.monotonic() - spoke > SECONDS_BETWEEN_NEWS:
                spoke = time.monotonic()
                now = ", ".join(f"{child.name} (epoch {epochs_of(child.run) + 1})" for child in running)
                say(f"{len(waiting)} wait; now {now}")
            time.sleep(SECONDS_BETWEEN_LOOKS)
    finally:
        _stop(running.values())


def as_child(work: Callable[[], object]) -> None:
    """Does the work of a child: ends when its parent does or asks it to, and says what went wrong in one line."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    try:
        work()
    except LightGC2NError as problem:
        say(f"error: {problem}")
        sys.exit(problem.exit_code)


def _start(child: Child, seconds: float, at_once: int) -> Process:
    command = [sys.executable, "-m", child.module, *map(str, child.words), str(seconds)]
    # Side by side, threads of one run would only take the cores of another.
    threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // at_once))} if at_once > 1 else {}
    child.log.parent.mkdir(parents=True, exist_ok=True)
    with child.log.open("ab") as log:
        # The pipe is never written to: its end tells the child that this process is gone.
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
    """Ends this process when its parent is gone, even by kill -9: two must never train in one folder."""
    os.read(0, 1)
    os._exit(1)


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    # A terminal's Ctrl-C comes from the parent once more: the second must not break the cleaning up.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: None)
    sys.exit(STOPPED)

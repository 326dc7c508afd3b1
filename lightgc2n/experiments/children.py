"""Several trials at once, each in a process of its own.

`python -m lightgc2n.experiments.children FOLDER EPOCHS DEVICE SECONDS` takes one trial on; a search starts this itself.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lightgc2n.errors import LightGC2NError
from lightgc2n.experiments.trials import Slice, Trial, take_on
from lightgc2n.progress import say

MODULE, LOG = "lightgc2n.experiments.children", "log.txt"
SECONDS_BETWEEN_LOOKS = 0.1


def take_all_on(
    trials: Sequence[Trial],
    epochs: int,
    device: str,
    side_by_side: int,
    time_slice: Slice,
    tell: Callable[[Trial], None],
) -> bool:
    """Whether all trials have come so far in the time they have.

    Args:
        tell: called with each trial when it has.
    """
    waiting = [trial for trial in trials if not trial.reached(epochs)]
    if side_by_side == 1 or len(waiting) == 1:
        _one_after_another(waiting, epochs, device, time_slice, tell)
    else:
        _at_once(waiting, epochs, device, side_by_side, time_slice, tell)
    return all(trial.reached(epochs) for trial in trials)


def _one_after_another(
    trials: Sequence[Trial], epochs: int, device: str, time_slice: Slice, tell: Callable[[Trial], None]
) -> None:
    for trial in trials:
        if (left := time_slice.left()) > 0:
            take_on(trial, epochs, device, left)
            if trial.reached(epochs):
                tell(trial)


def _at_once(
    trials: Sequence[Trial],
    epochs: int,
    device: str,
    side_by_side: int,
    time_slice: Slice,
    tell: Callable[[Trial], None],
) -> None:
    waiting = list(trials)
    with _children() as running:
        while running or (waiting and time_slice.left() > 0):
            while waiting and len(running) < side_by_side and (left := time_slice.left()) > 0:
                trial = waiting.pop(0)
                running[trial.number] = (trial, _child(trial, epochs, device, side_by_side, left))
            for trial in _ended(running):
                if trial.reached(epochs):
                    tell(trial)
            time.sleep(SECONDS_BETWEEN_LOOKS)


Running = dict[int, tuple[Trial, "subprocess.Popen[bytes]"]]


@contextmanager
def _children() -> Iterator[Running]:
    """Child processes by trial; none outlives the block."""
    running: Running = {}
    try:
        yield running
    finally:
        for _, child in running.values():
            child.terminate()
        for _, child in running.values():
            _wait(child)


def _child(trial: Trial, epochs: int, device: str, side_by_side: int, seconds: float) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", MODULE, str(trial.folder), str(epochs), device, str(seconds)]
    threads = max(1, (os.cpu_count() or 1) // side_by_side)
    environment = {"OMP_NUM_THREADS": str(threads)} | os.environ
    with (trial.folder / LOG).open("ab") as log:
        # The pipe is never written to: its end tells the child that this process is gone.
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment)


def _ended(running: Running) -> Iterator[Trial]:
    for number, (trial, child) in list(running.items()):
        if child.poll() is None:
            continue
        _wait(child)
        del running[number]
        if child.returncode:
            lines = (trial.folder / LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines()
            last = lines[-1] if lines else "no word"
            raise LightGC2NError(f"trial {number} ended with code {child.returncode}: {last} ({trial.folder / LOG})")
        yield trial


def _wait(child: "subprocess.Popen[bytes]") -> None:
    assert child.stdin is not None
    child.wait()
    child.stdin.close()


def _end_with_parent() -> None:
    """Ends this process when the one that started it is gone, even by kill -9: two must never train in one folder."""

    def watch() -> None:
        os.read(0, 1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    _end_with_parent()
    folder, epochs, device, seconds = sys.argv[1:]
    try:
        take_on(Trial(-1, Path(folder)), int(epochs), device, float(seconds))
    except LightGC2NError as problem:
        say(f"error: {problem}")
        sys.exit(problem.exit_code)

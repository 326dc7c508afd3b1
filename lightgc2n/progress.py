"""Progress on stderr: a live bar in a terminal, plain lines elsewhere, so that stdout holds results alone."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

SECONDS_BETWEEN_LINES = 5.0


class Step:
    """One piece of long work; `advance` says how much of it is done."""

    def __init__(self, console: Console, title: str, total: float | None, bar: Progress | None) -> None:
        self._console, self._title, self._total, self._bar = console, title, total, bar
        self._task = bar.add_task(title, total=total) if bar else None
        self._done, self._spoke, self._started = 0.0, time.monotonic(), time.monotonic()

    def advance(self, amount: float = 1) -> None:
        self._done += amount
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, amount)
        elif time.monotonic() - self._spoke > SECONDS_BETWEEN_LINES:
            self._spoke = time.monotonic()
            self._console.print(f"{self._title}: {self._state()}", highlight=False, markup=False)

    def _state(self) -> str:
        if not self._total or not self._done:
            return f"{self._done:,.0f}"
        left = (self._spoke - self._started) * (self._total - self._done) / self._done
        return f"{100 * self._done / self._total:.0f} %, about {duration(left)} left"


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:.0f} {unit}" if seconds >= 10 * length else f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def pace(steps: int, seconds: float) -> str:
    """Steps a second, or the seconds of a step where it takes longer than one."""
    if steps <= 0 or seconds <= steps:
        return f"{steps / max(seconds, 1e-9):.1f} steps/s"
    return f"{duration(seconds / steps)} a step"


@contextmanager
def step(title: str, total: float | None = None) -> Iterator[Step]:
    """A `Step` that is shown while the block runs."""
    console = Console(file=sys.stderr)
    if not console.is_terminal:
        yield Step(console, title, total, None)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        yield Step(console, title, total, bar)


def say(sentence: str) -> None:
    """One line for the person who waits."""
    Console(file=sys.stderr, soft_wrap=True).print(sentence, highlight=False, markup=False)

"""Progress on stderr: a live bar in a terminal, plain lines elsewhere; stdout holds only results."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

SECONDS_BETWEEN_LINES = 5.0


class Step:
    """A long task; `advance` reports its progress."""

    def __init__(self, console: Console, title: str, total: float | None, bar: Progress | None) -> None:
        self._console, self._title, self._total, self._bar = console, title, total, bar
        self._task = bar.add_task(title, total=total) if bar else None
        self._done, self._spoke = 0.0, time.monotonic()

    def advance(self, amount: float = 1) -> None:
        self._done += amount
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, amount)
        elif time.monotonic() - self._spoke > SECONDS_BETWEEN_LINES:
            self._spoke = time.monotonic()
            share = f" {100 * self._done / self._total:.0f} %" if self._total else f" {self._done:,.0f}"
            self._console.print(f"{self._title}:{share}", highlight=False, markup=False)


@contextmanager
def step(title: str, total: float | None = None) -> Iterator[Step]:
    """Show a `Step` while the block runs."""
    console = Console(file=sys.stderr)
    if not console.is_terminal:
        yield Step(console, title, total, None)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        yield Step(console, title, total, bar)


def say(sentence: str) -> None:
    """Print one line for the user to stderr."""
    Console(file=sys.stderr, soft_wrap=True).print(sentence, highlight=False, markup=False)

"""Progress on stderr: a live bar in a terminal, plain lines elsewhere; stdout holds only results."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

SECONDS_BETWEEN_LINES = 5.0
Value = TypeVar("Value")


class Step:
    """A long task; `advance` reports its progress."""

    def __init__(self, title: str, total: float | None) -> None:
        self.title, self.total, self.done = title, total, 0.0

    def advance(self, amount: float = 1) -> None:
        self.done += amount


class Output:
    """Where a caller wants progress in place of stderr; this one shows nothing."""

    def step(self, title: str, total: float | None) -> Step:
        return Step(title, total)

    def say(self, sentence: str) -> None:
        """Show one sentence."""


SILENT = Output()
_output: ContextVar[Output | None] = ContextVar("lightgc2n-progress", default=None)


class _BarStep(Step):
    """A live bar in a terminal."""

    def __init__(self, title: str, total: float | None, bar: Progress) -> None:
        super().__init__(title, total)
        self._bar, self._task = bar, bar.add_task(title, total=total)

    def advance(self, amount: float = 1) -> None:
        super().advance(amount)
        self._bar.advance(self._task, amount)


class _LineStep(Step):
    """A plain line now and then."""

    def __init__(self, title: str, total: float | None, console: Console) -> None:
        super().__init__(title, total)
        self._console, self._spoke, self._started = console, time.monotonic(), time.monotonic()

    def advance(self, amount: float = 1) -> None:
        super().advance(amount)
        is_due = time.monotonic() - self._spoke > SECONDS_BETWEEN_LINES
        if is_due and (self.total is None or self.done < self.total):
            self._spoke = time.monotonic()
            self._console.print(f"{self.title}: {self._state()}", highlight=False, markup=False, soft_wrap=True)

    def _state(self) -> str:
        if not self.total or not self.done:
            return f"{self.done:,.0f}"
        left = (self._spoke - self._started) * (self.total - self.done) / self.done
        return f"{100 * self.done / self.total:.0f} %, about {duration(left)} left"


def duration(seconds: float) -> str:
    """Return a time in the unit that suits it."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:.0f} {unit}" if seconds >= 10 * length else f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def number_of(count: int, word: str) -> str:
    """Return a count with its word: `1 epoch`, `3 epochs`."""
    return f"{count:,} {word if count == 1 else word + 's'}"


def pace(steps: int, seconds: float) -> str:
    """Return the steps a second, or the seconds of a step that takes longer than one."""
    if steps <= 0 or seconds <= steps:
        return f"{steps / max(seconds, 1e-9):.1f} steps/s"
    return f"{duration(seconds / steps)} a step"


@contextmanager
def sent_to(output: Output) -> Iterator[None]:
    """Send the progress of the block to `output`; an enclosing `sent_to` takes precedence."""
    token = _output.set(_output.get() or output)
    try:
        yield
    finally:
        _output.reset(token)


@contextmanager
def step(title: str, total: float | None = None) -> Iterator[Step]:
    """Show a `Step` while the block runs."""
    if (output := _output.get()) is not None:
        yield output.step(title, total)
        return
    console = Console(file=sys.stderr)
    if not console.is_terminal:
        yield _LineStep(title, total, console)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        yield _BarStep(title, total, bar)


def tracked(title: str, values: Sequence[Value]) -> Iterator[Value]:
    """Yield the values and show how many of them are done."""
    with step(title, total=len(values)) as shown:
        for value in values:
            yield value
            shown.advance()


def say(sentence: str) -> None:
    """Print one line for the user."""
    if (output := _output.get()) is not None:
        output.say(sentence)
    else:
        Console(file=sys.stderr, soft_wrap=True).print(sentence, highlight=False, markup=False)

"""Progress on stderr: a live bar in a terminal, plain lines elsewhere, so that stdout holds results alone.

Python callers may silence it; in a notebook it is one output of the cell, rewritten in place and removed at the end.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from html import escape
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

SECONDS_BETWEEN_LINES = 5.0
SECONDS_BETWEEN_UPDATES = 0.2  # of a notebook's output, each of which is a message to the browser


class Step:
    """One piece of long work; `advance` says how much of it is done."""

    def __init__(self, title: str, total: float | None) -> None:
        self.title, self.total, self.done = title, total, 0.0

    def advance(self, amount: float = 1) -> None:
        self.done += amount
        self._show(amount)

    def _show(self, amount: float) -> None:
        """Show what is done; nothing where progress is silenced."""


class _BarStep(Step):
    """A live bar in a terminal."""

    def __init__(self, title: str, total: float | None, bar: Progress) -> None:
        super().__init__(title, total)
        self._bar, self._task = bar, bar.add_task(title, total=total)

    def _show(self, amount: float) -> None:
        self._bar.advance(self._task, amount)


class _LineStep(Step):
    """A plain line now and then."""

    def __init__(self, title: str, total: float | None, console: Console) -> None:
        super().__init__(title, total)
        self._console, self._spoke = console, time.monotonic()

    def _show(self, amount: float) -> None:
        if time.monotonic() - self._spoke > SECONDS_BETWEEN_LINES:
            self._spoke = time.monotonic()
            share = f" {100 * self.done / self.total:.0f} %" if self.total else f" {self.done:,.0f}"
            self._console.print(f"{self.title}:{share}", highlight=False, markup=False)


class _NotebookStep(Step):
    """A bar in the output of a notebook's cell."""

    def __init__(self, title: str, total: float | None, output: "_NotebookOutput") -> None:
        super().__init__(title, total)
        self._output = output

    def _show(self, amount: float) -> None:
        self._output.show(self)


class _NotebookOutput:
    """The one output of a call in a notebook: the last sentence and the bar of the present step."""

    def __init__(self) -> None:
        from IPython.display import display

        self._sentence, self._shown = "", 0.0
        self._handle: Any = display(_as_html("", None), raw=True, display_id=True)

    def say(self, sentence: str) -> None:
        self._sentence = sentence
        self._handle.update(_as_html(sentence, None), raw=True)

    def show(self, step: Step) -> None:
        if time.monotonic() - self._shown > SECONDS_BETWEEN_UPDATES:
            self._shown = time.monotonic()
            self._handle.update(_as_html(self._sentence, step), raw=True)

    def close(self) -> None:
        self._handle.update(_as_html("", None), raw=True)


_SILENT = object()
_output: ContextVar[Any] = ContextVar("lightgc2n-progress", default=None)


@contextmanager
def shown(progress: bool = True) -> Iterator[None]:
    """Within the block progress is shown, in a notebook in place, or not at all."""
    if _output.get() is not None and progress:  # an outer block decides
        yield
        return
    output = (_NotebookOutput() if _in_notebook() else None) if progress else _SILENT
    token = _output.set(output)
    try:
        yield
    finally:
        _output.reset(token)
        if isinstance(output, _NotebookOutput):
            output.close()


@contextmanager
def step(title: str, total: float | None = None) -> Iterator[Step]:
    """A `Step` that is shown while the block runs."""
    output, console = _output.get(), Console(file=sys.stderr)
    if isinstance(output, _NotebookOutput):
        yield _NotebookStep(title, total, output)
    elif output is _SILENT:
        yield Step(title, total)
    elif not console.is_terminal:
        yield _LineStep(title, total, console)
    else:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            yield _BarStep(title, total, bar)


def say(sentence: str) -> None:
    """One line for the person who waits."""
    output = _output.get()
    if isinstance(output, _NotebookOutput):
        output.say(sentence)
    elif output is None:
        Console(file=sys.stderr, soft_wrap=True).print(sentence, highlight=False, markup=False)


def _in_notebook() -> bool:
    """Whether a notebook's kernel runs this code; IPython is there already where that is so."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell is not None and getattr(shell, "kernel", None) is not None


def _as_html(sentence: str, step: Step | None) -> dict[str, str]:
    """The output as HTML, and as text for front ends without HTML."""
    parts, text = [f"<div>{escape(sentence)}</div>"] if sentence else [], sentence
    if step is not None:
        done = f'value="{step.done:g}" max="{step.total:g}"' if step.total else ""
        parts.append(f"<div>{escape(step.title)} <progress {done}></progress></div>")
        text = " ".join([sentence, step.title, f"{100 * step.done / step.total:.0f} %" if step.total else ""]).strip()
    return {"text/html": "".join(parts), "text/plain": text}

"""The wrapper of every API call: progress on stderr or in a notebook, and errors for missing extras and wrong paths."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from html import escape
from typing import Any

from lightgc2n.errors import EXTRA_OF_PACKAGE, MissingExtraError, path_error
from lightgc2n.progress import SILENT, Output, Step, sent_to

SECONDS_BETWEEN_UPDATES = 0.2  # each is a message to the browser


@contextmanager
def api_call(progress: bool = True) -> Iterator[None]:
    """Run the block of an API function.

    Args:
        progress: show progress on stderr; in a notebook as one output that is updated in place and cleared at the end.
    """
    notebook = NotebookOutput() if progress and in_notebook() else None
    output = SILENT if not progress else notebook
    try:
        with sent_to(output) if output is not None else nullcontext():
            yield
    except ModuleNotFoundError as problem:
        package = (problem.name or "").partition(".")[0]
        if package not in EXTRA_OF_PACKAGE:
            raise
        raise MissingExtraError(package, EXTRA_OF_PACKAGE[package]) from None
    except (OSError, ValueError) as problem:
        if (explained := path_error(problem)) is None:
            raise
        raise explained from None
    finally:
        if notebook is not None:
            notebook.close()


def given_arguments(**values: Any) -> dict[str, Any]:
    """Return the arguments that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def in_notebook() -> bool:
    """Return whether a notebook kernel runs this code. IPython is then already imported."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return getattr(shell, "kernel", None) is not None


class NotebookOutput(Output):
    """The output of a call in a notebook: the last message and the progress bar of the current step."""

    def __init__(self) -> None:
        self._sentence, self._updated = "", 0.0
        self._handle: Any = None  # created with the first message

    def step(self, title: str, total: float | None) -> Step:
        return _NotebookStep(title, total, self)

    def say(self, sentence: str) -> None:
        self._sentence = sentence
        self._update(None)

    def show(self, step: Step) -> None:
        """Update the progress bar of a step, at most five times a second."""
        if time.monotonic() - self._updated > SECONDS_BETWEEN_UPDATES:
            self._update(step)

    def close(self) -> None:
        """Clear the output, so that only results remain in the notebook."""
        self._sentence = ""
        if self._handle is not None:
            self._update(None)

    def _update(self, step: Step | None) -> None:
        import IPython.display

        display: Any = IPython.display.display
        self._updated = time.monotonic()
        content = progress_html(self._sentence, step)
        if self._handle is None:
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


class _NotebookStep(Step):
    def __init__(self, title: str, total: float | None, output: NotebookOutput) -> None:
        super().__init__(title, total)
        self._output = output

    def advance(self, amount: float = 1) -> None:
        super().advance(amount)
        self._output.show(self)


def progress_html(sentence: str, step: Step | None) -> dict[str, str]:
    """Return message and progress bar as HTML, and as text for front ends without HTML."""
    parts, texts = [f"<div>{escape(sentence)}</div>"] if sentence else [], [sentence] if sentence else []
    if step is not None:
        done = f' value="{step.done:g}" max="{step.total:g}"' if step.total else ""
        parts.append(f"<div>{escape(step.title)} <progress{done}></progress></div>")
        texts.append(step.title + (f" {100 * step.done / step.total:.0f} %" if step.total else ""))
    return {"text/html": "".join(parts), "text/plain": ", ".join(texts)}

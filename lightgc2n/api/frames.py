"""Results as pandas or polars data frames, as text, and as HTML tables in notebooks."""

import importlib.util
import io
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from lightgc2n.config import unknown_name
from lightgc2n.errors import MissingExtraError, SettingError
from lightgc2n.experiments.table import Table, html, plain_table, terminal

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

LIBRARIES = ("pandas", "polars")
SHOWN = 30  # rows of a table on the screen
Columns = Mapping[str, Sequence[Any]]


def make_frame(columns: Columns, library: str | None = None, preferred: str | None = None) -> Any:
    """Return a data frame of `library`, else of the preferred library, else of one that is installed."""
    if library is not None and library not in LIBRARIES:
        raise SettingError(f"library: {unknown_name('library', library, LIBRARIES)}")
    installed = [name for name in LIBRARIES if importlib.util.find_spec(name) is not None]
    if library is not None and library not in installed:
        raise SettingError(f"library: {library} is not installed. Install it with: pip install {library}")
    if not installed:
        raise MissingExtraError("a library of data frames (polars or pandas)", "train")
    chosen = library or (preferred if preferred in installed else installed[0])
    if chosen == "pandas":
        import pandas

        return pandas.DataFrame(dict(columns))
    import polars

    return polars.DataFrame(dict(columns))


def library_of(frame: Any) -> str | None:
    """Return the library of a frame, if results can be frames of it."""
    package = type(frame).__module__.partition(".")[0]
    return package if package in LIBRARIES else None


class Tabular(ABC):
    """A result that converts to a data frame and is displayed as a table.

    Attributes:
        library: the library of the frame that the data came from; None where it came from files.
    """

    library: str | None

    @abstractmethod
    def _columns(self) -> Columns:
        """The columns of the frame."""

    @abstractmethod
    def _headline(self) -> str:
        """A one-sentence summary."""

    @overload
    def to_frame(self, library: Literal["pandas"]) -> "pd.DataFrame": ...
    @overload
    def to_frame(self, library: Literal["polars"]) -> "pl.DataFrame": ...
    @overload
    def to_frame(self, library: None = None) -> Any: ...
    def to_frame(self, library: str | None = None) -> Any:
        """Return the result as a data frame.

        Args:
            library: "pandas" or "polars"; without it the library that the data came from, else one that is installed.
        """
        return make_frame(self._columns(), library, self.library)

    def _tables(self) -> Sequence[Table]:
        """The tables to display."""
        columns = self._columns()
        rows = [[_printed(value) for value in row] for row in zip(*columns.values(), strict=True)]
        table = plain_table("result", list(columns), rows[:SHOWN], text_columns=len(columns))
        return [table]

    def _shown_notes(self) -> Sequence[str]:
        """Notes below the tables."""
        return ()

    def __repr__(self) -> str:
        from rich.console import Console

        text = io.StringIO()
        console = Console(file=text, width=160, highlight=False, color_system=None, force_jupyter=False)
        for table in self._tables():
            console.print(terminal(table))
        lines = [line.rstrip() for line in text.getvalue().splitlines()]
        return "\n".join([self._headline(), *lines, *self._shown_notes()])

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{_escaped(note)}</p>" for note in self._shown_notes())
        return f"<p>{_escaped(self._headline())}</p>{''.join(map(html, self._tables()))}{notes}"


def _printed(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _escaped(text: str) -> str:
    from html import escape

    return escape(text)

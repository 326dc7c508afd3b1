"""Event tables with typed columns: Parquet files, read batch by batch, and data frames."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import polars as pl

from lightgc2n.data.formats.columns import TimeReader, find_columns, overlooked, time_reader
from lightgc2n.data.formats.event_tables import HINT_SAMPLE, LINE, TEXT, TIME_SAMPLE, check_rows, good_rows
from lightgc2n.data.formats.rows import RowFilter, Tally, shown
from lightgc2n.errors import DataError

if TYPE_CHECKING:
    import narwhals as nw

ROWS_PER_BATCH = 250_000
FRAME = Path("frame")  # what errors call a data frame
TEXTLESS = (pl.Binary, pl.Object, pl.Duration)  # types that polars does not cast to text


@dataclass
class TypedReader(ABC):
    """The base of readers of typed tables; a subclass opens the table and counts its rows."""

    place: ClassVar[str]  # how an error names a row
    first_row: ClassVar[int]
    kind: ClassVar[str]
    advice: ClassVar[str] = ""

    path: Path
    tally: Tally
    chosen: Mapping[str, str]
    unit: str = "auto"
    row_filter: RowFilter | None = None
    names: list[str] = field(default_factory=list)  # all columns of the table
    columns: dict[str, str] = field(default_factory=dict)
    times: TimeReader | None = None
    hints: list[str] = field(default_factory=list)  # columns that are not used but look like titles or kinds of events

    @abstractmethod
    def _names(self) -> list[str]:
        """The names of all columns."""

    @abstractmethod
    def _table(self, columns: Sequence[str]) -> pl.LazyFrame:
        """The columns that are used."""

    def frames(self) -> Iterator[pl.DataFrame]:
        """Good rows, batch by batch: account, item, and where there are such columns time (µs), domain, member."""
        try:
            yield from self._frames()
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as problem:
            if isinstance(problem, OSError) and problem.filename:
                raise
            reason = shown(str(problem).partition("\n")[0], 200)
            raise DataError(f"{self.path}: cannot be read as {self.kind}: {reason}.{self.advice}") from None

    def _frames(self) -> Iterator[pl.DataFrame]:
        self.names = self._names()
        self.columns = find_columns(self.names, self.chosen, str(self.path), self.row_filter, typed=True)
        unused = (name for name in self.names if name not in self.columns.values())
        self.hints = overlooked(self.columns, {name: self._first_values(name) for name in unused})
        table = self._table(list(dict.fromkeys(self.columns.values())))
        schema = table.collect_schema()
        if "time" in self.columns and schema[self.columns["time"]].is_temporal():
            self.unit = "us"
        for name in self.columns.values():
            if schema[name].is_nested():
                raise DataError(f"{self.path}: column {name}: expected one value per row, found {schema[name]}.")
        self.tally.rows += table.select(pl.len()).collect().item()
        texts = [_as_text(role, name, schema[name]) for role, name in self.columns.items()]
        row = 0
        for batch in table.select(texts).collect_batches(chunk_size=ROWS_PER_BATCH, maintain_order=True):
            if "time" in self.columns and self.times is None:
                sample = batch["time"].drop_nulls().head(TIME_SAMPLE)
                self.times = time_reader(self.unit, sample, f"{self.path}: column {self.columns['time']}")
            numbered = batch.with_row_index(LINE, offset=row + self.first_row).with_columns(pl.lit("").alias(TEXT))
            checked = check_rows(numbered, self.columns, self.times, self.row_filter)
            bad = checked.filter("bad").select(LINE, "column", "reason", TEXT)
            self.tally.reject(self.path, bad.rows(), self.place)
            yield good_rows(checked, self.columns, self.tally)
            row += len(batch)

    def _first_values(self, name: str) -> list[str]:
        """The first values of a column as text; none of a column whose type has no text."""
        table = self._table([name])
        dtype = table.collect_schema()[name]
        if dtype.is_nested() or dtype in TEXTLESS:
            return []
        return table.head(HINT_SAMPLE).collect()[name].cast(pl.String).fill_null("").to_list()


@dataclass
class ParquetReader(TypedReader):
    """Reads a Parquet file; rows are counted from 1 in errors."""

    place = "{path}: row {line}"
    first_row = 1
    kind = "Parquet"
    advice = " Is the file complete?"

    def _names(self) -> list[str]:
        return self._scan().collect_schema().names()

    def _table(self, columns: Sequence[str]) -> pl.LazyFrame:
        return self._scan().select(columns)

    def _scan(self) -> pl.LazyFrame:
        return pl.scan_parquet(self.path, glob=False)


@dataclass
class FrameReader(TypedReader):
    """Reads a data frame of pandas, polars or Arrow; rows are counted from 0 in errors, as Python counts them."""

    place = "{path}: row {line} (counted from 0)"
    first_row = 0
    kind = "a data frame"

    frame: Any = None

    def __post_init__(self) -> None:
        self._native = open_frame(self.frame)

    def _names(self) -> list[str]:
        return [str(name) for name in self._native.columns]

    def _table(self, columns: Sequence[str]) -> pl.LazyFrame:
        if isinstance(self._native, pl.DataFrame):
            floats = pl.selectors.float()
            return self._native.select(columns).with_columns(floats.fill_nan(None)).lazy()
        pairs = zip(self._names(), self._native.iter_columns(), strict=True)
        return pl.DataFrame([_polars_column(name, column) for name, column in pairs if name in columns]).lazy()

    def _first_values(self, name: str) -> list[str]:
        if isinstance(self._native, pl.DataFrame):
            return super()._first_values(name)
        column = list(self._native.iter_columns())[self._names().index(name)].head(HINT_SAMPLE)
        pairs = zip(column.to_list(), column.is_null().to_list(), strict=True)
        return ["" if missing else str(value) for value, missing in pairs]


def open_frame(frame: Any) -> "pl.DataFrame | nw.DataFrame[Any]":
    """A polars frame for what polars can read without copying, a narwhals frame for pandas and similar libraries."""
    import narwhals as nw

    try:
        opened = nw.from_native(frame, pass_through=True)
    except nw.exceptions.DuplicateError:
        raise DataError(f"{FRAME}: two columns have the same name. Rename one of them.") from None
    if isinstance(opened, nw.LazyFrame):
        opened = opened.collect(backend="polars")
    if isinstance(opened, nw.DataFrame) and opened.implementation.is_polars():
        return opened.to_polars()
    if isinstance(opened, nw.DataFrame) and opened.implementation.is_pandas_like():
        return opened
    if hasattr(frame, "__arrow_c_stream__"):
        return pl.DataFrame(frame)
    raise DataError(
        f"expected a data frame of pandas or polars, or an Arrow table, found {type(frame).__name__}. "
        f"Read a file with lightgc2n.Dataset.from_path."
    )


def _polars_column(name: str, column: "nw.Series[Any]") -> pl.Series:
    """A column of pandas as one of polars, without pyarrow, which neither needs; missing values become null."""
    import narwhals as nw

    if isinstance(column.dtype, nw.Datetime):
        if column.dtype.time_zone is not None:
            column = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        return pl.Series(name, column.to_numpy().astype("datetime64[us]"))
    if column.dtype.is_integer() and not column.is_null().any():
        return pl.Series(name, np.asarray(column.to_numpy()))
    if column.dtype.is_float():
        return pl.Series(name, column.to_numpy(), nan_to_null=True)
    nested = next((value for value in column.to_list() if isinstance(value, list | tuple | set | dict)), None)
    if nested is not None:
        raise DataError(f"{FRAME}: column {name}: expected one value per row, found a {type(nested).__name__}.")
    pairs = zip(column.to_list(), column.is_null().to_list(), strict=True)
    return pl.Series(name, [None if missing else str(value) for value, missing in pairs], dtype=pl.String)


def _as_text(role: str, name: str, kind: pl.DataType) -> pl.Expr:
    value = pl.col(name)
    if role == "time" and kind.is_temporal():
        value = value.cast(pl.Datetime("us")).cast(pl.Int64)
    return value.cast(pl.String).alias(role)

"""Event tables in Parquet: typed columns, read batch by batch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from lightgc2n.data.formats.columns import TimeReader, find_columns, time_reader
from lightgc2n.data.formats.event_tables import LINE, TEXT, TIME_SAMPLE, check_rows
from lightgc2n.data.formats.rows import Tally, shown
from lightgc2n.errors import DataError

ROWS_PER_BATCH = 250_000


@dataclass
class ParquetReader:
    """Reads one Parquet table; rows are counted from 1 in errors."""

    path: Path
    tally: Tally
    chosen: Mapping[str, str]
    unit: str = "auto"
    names: list[str] = field(default_factory=list)  # all columns of the table
    columns: dict[str, str] = field(default_factory=dict)
    times: TimeReader | None = None

    def frames(self) -> Iterator[pl.DataFrame]:
        """Yield good rows, batch by batch: account, item, and time (µs), domain and member if the table has them."""
        try:
            yield from self._frames()
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as problem:
            if isinstance(problem, OSError) and problem.filename:
                raise
            reason = shown(str(problem).partition("\n")[0], 200)
            raise DataError(f"{self.path}: cannot be read as Parquet: {reason}. Is the file complete?") from None

    def _frames(self) -> Iterator[pl.DataFrame]:
        table = pl.scan_parquet(self.path, glob=False)
        schema = table.collect_schema()
        self.names = schema.names()
        self.columns = find_columns(self.names, self.chosen, str(self.path))
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
                self.times = time_reader(self.unit, batch["time"].drop_nulls().head(TIME_SAMPLE))
            numbered = batch.with_row_index(LINE, offset=row + 1).with_columns(pl.lit("").alias(TEXT))
            checked = check_rows(numbered, self.columns, self.times)
            bad = checked.filter("bad").select(LINE, "column", "reason", TEXT)
            self.tally.reject(self.path, bad.rows(), unit="row")
            yield checked.filter(~pl.col("bad")).select(*self.columns)
            row += len(batch)


def _as_text(role: str, name: str, kind: pl.DataType) -> pl.Expr:
    value = pl.col(name)
    if role == "time" and kind.is_temporal():
        value = value.cast(pl.Datetime("us")).cast(pl.Int64)
    return value.cast(pl.String).alias(role)

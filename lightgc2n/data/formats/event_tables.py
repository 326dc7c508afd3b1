"""Event tables: one event per row, in CSV, TSV, RecBole's .inter, MovieTweetings' .dat or JSON lines.

Polars parses a whole block. If that fails, the block is parsed in small pieces, and a piece that fails is parsed row by
row to find the bad row.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from lightgc2n.data.formats.blocks import Block, Record, read_blocks
from lightgc2n.data.formats.columns import TimeReader, find_columns, overlooked, time_reader
from lightgc2n.data.formats.file_formats import TableFormat
from lightgc2n.data.formats.rows import (
    FILTER,
    BadRow,
    BadRowError,
    RowFilter,
    Tally,
    encoding_advice,
    id_problem,
    record_text,
    shown,
)
from lightgc2n.errors import DataError

TIME_SAMPLE = 10_000
SAMPLED_BYTES = 2**20  # usually enough for `TIME_SAMPLE` times
NAMES_SAMPLE = HINT_SAMPLE = 1000
MOST_HINT_CELLS = 500_000  # fewer rows are looked at where there are very many columns
LINE, TEXT = "\0line", "\0text"  # internal columns; a column name read from a file cannot contain NUL


@dataclass
class TableReader:
    """Reads one table; it learns the columns and the time format from the first block."""

    path: Path
    form: TableFormat
    tally: Tally
    chosen: Mapping[str, str]  # role -> column name, for columns that the caller has named
    unit: str = "auto"
    header: Sequence[str] = ()  # column names of a file without a header
    encoding: str = ""  # UTF-8 if empty
    row_filter: RowFilter | None = None
    names: list[str] = field(default_factory=list)  # all columns of the table
    columns: dict[str, str] = field(default_factory=dict)
    times: TimeReader | None = None
    hints: list[str] = field(default_factory=list)  # columns that are not used but look like times or titles

    def frames(self) -> Iterator[pl.DataFrame]:
        """Yield good rows, block by block: account, item, and further roles that the table has (time in µs)."""
        for block in read_blocks(self.path, self.form.separator if self.form.quoted else "", encoding=self.encoding):
            if not self.names:
                if not block.rows:
                    continue
                block = self._read_header(block)
                if block.rows:
                    self.hints = self._hints(block.records())
            if not block.rows:
                continue
            if "time" in self.columns and self.times is None:
                self.times = time_reader(self.unit, self._time_sample(block), self._where("time"))
            if block.lines > len(block.ends):
                block = self._take_apart(block)
            self.tally.rows += block.rows
            yield from self._good_rows(block)

    def _read_header(self, block: Block) -> Block:
        """Read the column names and return the remaining rows of the block."""
        names, first = list(self.header or self.form.fixed_names), next(block.records())
        where = f"{self.path}:{first.line}"
        if not names and self.form.names_in_rows:
            names = self._names_in_rows(block)
        elif not names:
            first, block = block.after_header()
            try:
                names = self.form.names(record_text(first))
            except BadRowError as problem:
                advice = encoding_advice(problem.reason)
                what = "" if advice else "no header: "
                raise DataError(f"{where}: {what}{problem.reason}. {advice}".rstrip()) from None
            for name in names:
                if "\n" in name and self.form.separator in name:
                    raise DataError(
                        f"{where}: the header has an unbalanced quote, which joins it with the next lines: "
                        f"expected a column name, found '{shown(name)}'. Remove the quote."
                    )
        self.columns, self.names = find_columns(names, self.chosen, where, self.row_filter), names
        return block

    def _hints(self, records: Iterable[Record]) -> list[str]:
        """Hints at columns that are not used, from the first rows."""
        used = set(self.columns.values())
        unused = {name: name for name in self.names if name not in used}
        values: dict[str, list[str]] = {name: [] for name in unused}
        rows = min(HINT_SAMPLE, max(1, MOST_HINT_CELLS // max(1, len(unused))))
        for record in islice(records, rows):
            try:
                row = self.form.row(record_text(record), self.names, unused)
            except BadRowError:
                continue
            for name in unused:
                values[name].append(row.get(name) or "")
        return overlooked(self.columns, values)

    def _where(self, role: str) -> str:
        return f"{self.path}: column {self.columns[role]}"

    def _names_in_rows(self, block: Block) -> list[str]:
        """Return all names in the first rows; a row may lack some of them."""
        names: dict[str, None] = {}
        first_problem = ""
        for record in islice(block.records(), NAMES_SAMPLE):
            try:
                names |= dict.fromkeys(self.form.names(record_text(record)))
            except BadRowError as problem:
                first_problem = first_problem or f"{self.path}:{record.line}: {problem.reason}."
        if not names and first_problem:
            raise DataError(first_problem)
        return list(names)

    def _good_rows(self, block: Block) -> Iterator[pl.DataFrame]:
        frame = self._fast(block)
        if frame is not None:
            yield frame
            return
        for piece in block.pieces():
            frame = self._fast(piece) if len(piece.data) < len(block.data) else None
            yield frame if frame is not None else self._slow(piece)

    def _time_sample(self, block: Block) -> pl.Series:
        """Return the first times of the block, including those of bad rows."""
        time = self.columns["time"]
        frame = self._parsed(next(block.pieces(SAMPLED_BYTES)))
        if frame is not None and len(times := frame[time].filter(frame[time] != "")) >= TIME_SAMPLE:
            return times.head(TIME_SAMPLE)
        texts = (self._text(record, time) for record in block.records())
        return pl.Series(list(islice(filter(None, texts), TIME_SAMPLE)), dtype=pl.String)

    def _text(self, record: Record, column: str) -> str | None:
        try:
            return self.form.row(record_text(record), self.names, {"": column})[column]
        except BadRowError:
            return None

    def _take_apart(self, block: Block) -> Block:
        """Split records that unbalanced quotes have joined into their lines; count the other multi-line records."""
        spans = block.spans_lines()
        places = zip(block.starts[spans].tolist(), block.ends[spans].tolist(), strict=True)
        stray = np.array(
            [self._is_joined(block.data[start : end - 1].split(b"\n")) for start, end in places], dtype=bool
        )
        block = block.divided(np.flatnonzero(spans)[stray].tolist())
        self.tally.joined_rows += int((~stray).sum())
        self.tally.joined_lines += block.lines - len(block.ends) + int((~stray).sum())
        return block

    def _is_joined(self, lines: list[bytes]) -> bool:
        """Return whether unbalanced quotes have joined these lines, rather than one field with line breaks.

        If so, each line is a good row when split at every separator. A quoted text could look the same, but hardly if
        every row has a time. Splitting is harmless if the joined lines form a bad row.
        """
        cut = replace(self.form, quoted=False)
        if any(line.count(cut.separator.encode()) != len(self.names) - 1 for line in lines):
            return False
        are_good = self._are_good(cut, [line.removesuffix(b"\r") for line in lines])
        return are_good and ("time" in self.columns or not self._are_good(self.form, [b"\n".join(lines)]))

    def _are_good(self, form: TableFormat, records: Sequence[bytes]) -> bool:
        checked, bad = self._checked(form, (Record(0, data) for data in records))
        return not bad and not checked["bad"].any()

    def _fast(self, block: Block) -> pl.DataFrame | None:
        """Return the rows of a block without any error, otherwise None."""
        frame = self._parsed(block)
        if frame is None:
            return None
        checked = check_rows(self._by_role(frame), self.columns, self.times, self.row_filter)
        return None if checked["bad"].any() else good_rows(checked, self.columns, self.tally)

    def _parsed(self, block: Block) -> pl.DataFrame | None:
        """Return the rows of a block if every row splits into fields, otherwise None."""
        if not block.is_clean():
            return None
        try:
            frame = self.form.frame(block.without_empty_lines(), self.names, self.columns, block.well_formed)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
            return None
        return frame if len(frame) == block.rows else None

    def _slow(self, block: Block) -> pl.DataFrame:
        """Return the good rows of a block and reject the bad ones."""
        checked, bad = self._checked(self.form, block.records())
        bad += checked.filter("bad").select(LINE, "column", "reason", TEXT).rows()
        self.tally.reject(self.path, sorted(bad))
        return good_rows(checked, self.columns, self.tally)

    def _checked(self, form: TableFormat, records: Iterable[Record]) -> tuple[pl.DataFrame, list[BadRow]]:
        """Return the records that split into fields, each checked, and those that do not."""
        rows: list[dict[str, Any]] = []
        bad: list[BadRow] = []
        for record in records:
            try:
                text = record_text(record)
                rows.append(form.row(text, self.names, self.columns) | {LINE: record.line, TEXT: text[:200]})
            except BadRowError as problem:
                first = record.data[:200].partition(b"\n")[0]
                bad.append((record.line, problem.column, problem.reason, first.decode("utf-8", "replace")))
        kinds = dict.fromkeys(self.columns.values(), pl.String) | {LINE: pl.Int64, TEXT: pl.String}
        frame = self._by_role(pl.DataFrame(rows, schema=kinds), keep=(LINE, TEXT))
        return check_rows(frame, self.columns, self.times, self.row_filter), bad

    def _by_role(self, frame: pl.DataFrame, keep: Sequence[str] = ()) -> pl.DataFrame:
        return frame.select(*(pl.col(name).alias(role) for role, name in self.columns.items()), *keep)


def check_rows(
    frame: pl.DataFrame, columns: Mapping[str, str], times: TimeReader | None, row_filter: RowFilter | None = None
) -> pl.DataFrame:
    """Return the frame with numeric times, and for each row whether it is `bad`, the `reason` and the `column`.

    A row that the filter leaves out is `filtered` and never bad.
    """
    problems = {role: id_problem(pl.col(role)) for role in ("account", "item", "domain") if role in columns}
    if times is not None:
        frame = frame.with_columns(times.microseconds(frame["time"]).alias("time"), written=pl.col("time"))
        problems["time"] = times.problem("time", "written")
    for role in ("member", "context"):  # a missing one is allowed, an invalid name is not
        if role in columns:
            frame = frame.with_columns(pl.when(pl.col(role) != "").then(role).alias(role))
            problems[role] = pl.when(pl.col(role).is_not_null()).then(id_problem(pl.col(role)))
    filtered = pl.lit(False)
    if row_filter is not None:
        unclear = row_filter.problem(pl.col(FILTER))
        filtered = ~row_filter.keeps(pl.col(FILTER)) & unclear.is_null()
        problems = {FILTER: unclear, **problems}
    reason = pl.coalesce(*problems.values())
    places = (pl.when(why.is_not_null()).then(pl.lit(columns[role])) for role, why in problems.items())
    return frame.with_columns(reason=reason, column=pl.coalesce(*places), filtered=filtered).with_columns(
        bad=pl.col("reason").is_not_null() & ~pl.col("filtered")
    )


def good_rows(checked: pl.DataFrame, columns: Mapping[str, str], tally: Tally) -> pl.DataFrame:
    """Return the rows to keep by role; count those that the filter leaves out."""
    if FILTER in columns:
        tally.leave_out(checked.filter("filtered")[FILTER])
    return checked.filter(~pl.col("bad") & ~pl.col("filtered")).select(role for role in columns if role != FILTER)

"""Event tables: one event a row, in CSV, TSV, RecBole's .inter, MovieTweetings' .dat or JSON lines.

Polars parses a block at once. A block in which anything is wrong is read again row by row, to say which row it is.
"""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from lightgc2n.data.reading.blocks import LONGEST_RECORD, Block, Record, read_blocks
from lightgc2n.data.reading.columns import find_columns
from lightgc2n.data.reading.rows import BadRowError, Rejects, StrayQuoteError, id_problem, record_text, shown
from lightgc2n.data.reading.times import TimeReader, time_reader
from lightgc2n.errors import DataError

TIME_SAMPLE = 10_000
NAMES_SAMPLE = 1000
LINE, TEXT = "\0line", "\0text"  # columns of ours; a NUL cannot stand in a name that was read from a file
# A row as long as we allow may be one field; the parser's own limit is lower.
csv.field_size_limit(max(csv.field_size_limit(), LONGEST_RECORD))
# As polars reads it, but numbers stay as they are written, since they may be ids. Of a repeated key the first counts.
JSON = json.JSONDecoder(
    parse_int=str,
    parse_float=str,
    strict=False,
    object_pairs_hook=lambda pairs: dict(reversed(dict(reversed(pairs)).items())),
)


@dataclass(frozen=True)
class Separated:
    """Fields between separators; with `quoted`, a field in double quotes may hold anything."""

    separator: str
    quoted: bool = False
    typed_header: bool = False  # RecBole writes `user_id:token`
    fixed_names: tuple[str, ...] = ()  # where the format has no header
    names_in_rows: bool = False  # every row names its columns

    def names(self, text: str) -> list[str]:
        """The column names in one record."""
        names = self._fields(text)
        return [name.partition(":")[0] for name in names] if self.typed_header else names

    def row(self, text: str, names: Sequence[str], columns: Mapping[str, str]) -> dict[str, str | None]:
        """The `columns` (role -> name) of one record, by name; a malformed one is a `BadRowError`."""
        fields = self._fields(text)
        if len(fields) > len(names):
            raise BadRowError("", f"expected {len(names)} fields, found {len(fields)}")
        by_name = dict(zip(names, fields, strict=False))
        return {name: by_name.get(name) for name in columns.values()}

    def frame(self, data: bytes, names: Sequence[str], columns: Mapping[str, str]) -> pl.DataFrame:
        """The same of many records at once, as strings; polars raises where one is malformed."""
        separator = self.separator
        if len(separator) > 1:  # polars splits at one byte; the unit separator never stands in a good field
            if b"\x1f" in data:
                raise pl.exceptions.ComputeError("a control character")
            data, separator = data.replace(separator.encode(), b"\x1f"), "\x1f"
        if data.count(b"\r") != data.count(b"\r\n") or (self.quoted and not _quotes_enclose_fields(data, separator)):
            raise pl.exceptions.ComputeError("a stray quote or line break, which polars would leave out")
        # All columns are read, since polars takes no notice of surplus fields where it may leave a column out.
        return pl.read_csv(
            data,
            has_header=False,
            schema=dict.fromkeys(names, pl.String),
            separator=separator,
            quote_char='"' if self.quoted else None,
        )

    def _fields(self, text: str) -> list[str]:
        if not self.quoted:
            return text.split(self.separator)
        try:
            rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=self.separator, strict=True))
        except csv.Error as problem:
            raise StrayQuoteError("", f"expected fields separated by {self.separator!r}, found: {problem}") from None
        if len(rows) > 1:
            raise StrayQuoteError("", "expected one row, found a line break outside of quotes, or a stray quote")
        return rows[0] if rows else [""]


@dataclass(frozen=True)
class JsonLines:
    """One JSON object a line; the same methods as `Separated`."""

    quoted: bool = False
    fixed_names: tuple[str, ...] = ()
    names_in_rows: bool = True

    def names(self, text: str) -> list[str]:
        return list(_json_object(text))

    def row(self, text: str, names: Sequence[str], columns: Mapping[str, str]) -> dict[str, str | None]:
        values = _json_object(text)
        return {name: _json_text(name, values.get(name)) for name in columns.values()}

    def frame(self, data: bytes, names: Sequence[str], columns: Mapping[str, str]) -> pl.DataFrame:
        # Polars would write the number 1e3 as 1000, which is another id.
        names = [name for role, name in columns.items() if role != "time"]
        ids = "|".join(re.escape(json.dumps(name, ensure_ascii=ascii)) for name in names for ascii in (True, False))
        if re.search(rf"(?:{ids})\s*:\s*(?:-0|-?\d+[.eE])".encode(), data):
            raise pl.exceptions.ComputeError("a number that is not whole")
        frame = pl.read_ndjson(data, schema=dict.fromkeys(columns.values(), pl.String))
        # Polars writes lists and objects as text; only the slow way can tell them from a string that looks so.
        nested = frame.select(pl.any_horizontal(pl.all().str.contains(r"^[\[{]")).any()).item()
        if nested:
            raise pl.exceptions.ComputeError("a nested value")
        return frame


TableFormat = Separated | JsonLines


@dataclass
class TableReader:
    """Reads one table; after the first block it knows the columns and how times are written."""

    path: Path
    form: TableFormat
    rejects: Rejects
    told: Mapping[str, str]  # role -> column name, as far as the caller has named them
    unit: str = "auto"
    header: Sequence[str] = ()  # column names of a file without a header
    names: list[str] = field(default_factory=list)  # all columns of the table
    columns: dict[str, str] = field(default_factory=dict)
    times: TimeReader | None = None

    def frames(self) -> Iterator[pl.DataFrame]:
        """Good rows, block by block: account, item, and where there are such columns time (µs), domain, member."""
        names: list[str] = []
        for block in read_blocks(self.path, self.form.quoted):
            if not names:
                block = _without_blank_lines(block)
                if not block.data:
                    continue
                names, block = self._read_header(block)
            frame = self._fast(block, names)
            yield frame if frame is not None else self._slow(block, names)

    def _read_header(self, block: Block) -> tuple[list[str], Block]:
        """The column names, and the rows of the block."""
        names, where = list(self.header or self.form.fixed_names), f"{self.path}:{block.first_line}"
        if not names and self.form.names_in_rows:
            names = self._names_in_rows(block)
        elif not names:
            first, block = _cut_first_record(block)
            try:
                names = self.form.names(record_text(first))
            except BadRowError as problem:
                raise DataError(f"{where}: no header: {problem.reason}.") from None
        self.names, self.columns = names, find_columns(names, self.told, where)
        return names, block

    def _names_in_rows(self, block: Block) -> list[str]:
        """All names in the first rows; a row may lack some of them."""
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

    def _fast(self, block: Block, names: Sequence[str]) -> pl.DataFrame | None:
        if not block.data or not block.is_clean():
            return None
        try:
            frame = self.form.frame(block.data, names, self.columns)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
            return None
        checked = self._check(self._by_role(frame))
        return None if checked["bad"].any() else checked.select(*self.columns)

    def _slow(self, block: Block, names: Sequence[str]) -> pl.DataFrame:
        """The good rows of a block with bad ones; each bad one is handed to `rejects`."""
        rows: list[dict[str, Any]] = []
        bad: list[tuple[int, str, str, str]] = []
        waiting = list(block.records())[::-1]
        while waiting:
            record = waiting.pop()
            try:
                text = record_text(record)
                if text:  # an empty line is no row
                    rows.append(self.form.row(text, names, self.columns) | {LINE: record.line, TEXT: text[:200]})
            except BadRowError as problem:
                first, _, rest = record.data.partition(b"\n")
                if rest and isinstance(problem, StrayQuoteError):
                    # Lines that a stray quote has joined may be good rows: each is tried by itself.
                    waiting += list(Block(record.line + 1, rest + b"\n", block.quoted).records())[::-1]
                    waiting.append(Record(record.line, first.removesuffix(b"\r")))
                    continue
                bad.append((record.line, problem.column, problem.reason, first[:200].decode("utf-8", "replace")))
        kinds = dict.fromkeys(self.columns.values(), pl.String) | {LINE: pl.Int64, TEXT: pl.String}
        frame = self._by_role(pl.DataFrame(rows, schema=kinds), keep=(LINE, TEXT))
        checked = self._check(frame)
        bad += checked.filter("bad").select(LINE, "column", "reason", TEXT).rows()
        for line, column, reason, text in sorted(bad):
            self.rejects.add(self.path, line, column, reason, text)
        return checked.filter(~pl.col("bad")).select(*self.columns)

    def _by_role(self, frame: pl.DataFrame, keep: Sequence[str] = ()) -> pl.DataFrame:
        return frame.select(*(pl.col(name).alias(role) for role, name in self.columns.items()), *keep)

    def _check(self, frame: pl.DataFrame) -> pl.DataFrame:
        if "time" in self.columns and self.times is None:
            self.times = time_reader(self.unit, frame["time"].drop_nulls().head(TIME_SAMPLE))
        return check_rows(frame, self.columns, self.times)


def check_rows(frame: pl.DataFrame, columns: Mapping[str, str], times: TimeReader | None) -> pl.DataFrame:
    """The frame with times as numbers, and for each row whether it is `bad`, the `reason`, and the `column`."""
    problems = {role: id_problem(pl.col(role)) for role in ("account", "item", "domain") if role in columns}
    if times is not None:
        frame = frame.with_columns(times.microseconds(frame["time"]).alias("time"), written=pl.col("time"))
        problems["time"] = times.problem("time", "written")
    if "member" in columns:  # an unknown member is no fault, an unusable name is
        frame = frame.with_columns(pl.when(pl.col("member") != "").then("member").alias("member"))
        problems["member"] = pl.when(pl.col("member").is_not_null()).then(id_problem(pl.col("member")))
    reason = pl.coalesce(*problems.values())
    places = (pl.when(why.is_not_null()).then(pl.lit(columns[role])) for role, why in problems.items())
    return frame.with_columns(reason=reason, column=pl.coalesce(*places)).with_columns(
        bad=pl.col("reason").is_not_null()
    )


def _quotes_enclose_fields(data: bytes, separator: str) -> bool:
    """Whether every quote stands at an end of a field, or beside another quote within one."""
    if b'"' not in data:
        return True
    octets = np.frombuffer(b"\n" + data + b"\n", dtype=np.uint8)
    quotes = np.flatnonzero(octets == ord('"'))
    before_opening, after_closing = octets[quotes[::2] - 1], octets[quotes[1::2] + 1]
    ends = np.frombuffer(f'{separator}\n"'.encode(), dtype=np.uint8)
    return bool(np.isin(before_opening, ends).all() and np.isin(after_closing, np.append(ends, ord("\r"))).all())


def _without_blank_lines(block: Block) -> Block:
    """The block from its first line that is not empty."""
    data = block.data.lstrip(b"\r\n")
    passed = block.data.count(b"\n", 0, len(block.data) - len(data))
    return Block(block.first_line + passed, data, block.quoted)


def _cut_first_record(block: Block) -> tuple[Record, Block]:
    first = next(block.records())
    end = block.data.index(b"\n", len(first.data)) + 1
    rest = block.data[end:]
    return first, Block(block.first_line + block.data.count(b"\n", 0, end), rest, block.quoted)


def _json_object(text: str) -> dict[str, Any]:
    try:
        pairs = JSON.decode(text)
    except (ValueError, RecursionError) as problem:
        raise BadRowError("", f"expected a JSON object, found: {shown(str(problem))}") from None
    if not isinstance(pairs, dict):
        raise BadRowError("", f"expected a JSON object, found {type(pairs).__name__}")
    return pairs


def _json_text(name: str, value: Any) -> str | None:
    if value is None or isinstance(value, str):
        if value is not None and any("\ud800" <= sign <= "\udfff" for sign in value):
            raise BadRowError(name, "expected text, found half of a surrogate pair")
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    raise BadRowError(name, f"expected text or a number, found {type(value).__name__}")

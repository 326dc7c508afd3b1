"""The formats of log files: how a format is detected, and how single rows of an event table are parsed.

Event tables are CSV, TSV, RecBole's .inter, MovieTweetings' .dat and JSON lines.
"""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from lightgc2n.config import unknown_name
from lightgc2n.data.formats.blocks import LONGEST_RECORD, QUOTE, plain_suffix, quotes_enclose_fields, read_blocks
from lightgc2n.data.formats.columns import find_columns
from lightgc2n.data.formats.rows import BadRowError, shown
from lightgc2n.errors import DataError, option
from lightgc2n.files.folder_kinds import kind_found

FEW_COLUMNS, MOST_FAST_COLUMNS = 16, 10_000
MOST_CELLS_PER_BYTE = 2  # in a complete row every field takes at least one byte: a separator or the line end
# A row of the maximal length may be a single field; the parser's default limit is lower.
csv.field_size_limit(max(csv.field_size_limit(), LONGEST_RECORD))
# Like polars, but numbers stay text because they may be ids. Of a repeated key the first value is used.
JSON = json.JSONDecoder(
    parse_int=str,
    parse_float=str,
    strict=False,
    object_pairs_hook=lambda pairs: dict(reversed(dict(reversed(pairs)).items())),
)


@dataclass(frozen=True)
class Separated:
    """Fields between separators; with `quoted`, a field in double quotes may contain any character."""

    separator: str
    quoted: bool = False
    typed_header: bool = False  # RecBole writes `user_id:token`
    fixed_names: tuple[str, ...] = ()  # for formats without a header
    names_in_rows: bool = False  # every row names its columns

    def names(self, text: str) -> list[str]:
        """Return the column names in one record."""
        names = self._fields(text)
        return [name.partition(":")[0] for name in names] if self.typed_header else names

    def row(self, text: str, names: Sequence[str], columns: Mapping[str, str]) -> dict[str, str | None]:
        """Return the `columns` (role -> name) of one record, by name; raise `BadRowError` if it is malformed."""
        fields = self._fields(text)
        if len(fields) > len(names):
            raise BadRowError("", f"expected {len(names)} fields, found {len(fields)}")
        by_name = dict(zip(names, fields, strict=False))
        return {name: by_name.get(name) for name in columns.values()}

    def frame(
        self, data: bytes, names: Sequence[str], columns: Mapping[str, str], well_formed: bool = False
    ) -> pl.DataFrame:
        """Return the same columns of many records as strings; polars raises an error if one is malformed."""
        separator = self.separator
        if len(separator) > 1:  # polars needs a single byte; a good field never contains the unit separator
            if b"\x1f" in data:
                raise pl.exceptions.ComputeError("a control character")
            data, separator = data.replace(separator.encode(), b"\x1f"), "\x1f"
        if data.count(b"\r") != data.count(b"\r\n") or (
            self.quoted and not well_formed and self._has_stray_quote(data)
        ):
            raise pl.exceptions.ComputeError("an unbalanced quote or line break, which polars would ignore")
        wide = len(names) > FEW_COLUMNS and data.count(b"\n") * len(names) > MOST_CELLS_PER_BYTE * len(data)
        if wide or len(names) > MOST_FAST_COLUMNS:
            raise pl.exceptions.ComputeError(
                "too many columns and missing fields for the memory that polars would need"
            )
        # Read all columns: polars ignores surplus fields if it may skip a column.
        return pl.read_csv(
            data,
            has_header=False,
            schema=dict.fromkeys(names, pl.String),
            separator=separator,
            quote_char='"' if self.quoted else None,
        )

    def _has_stray_quote(self, data: bytes) -> bool:
        quotes = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == QUOTE)
        return len(quotes) % 2 == 1 or not quotes_enclose_fields(data, quotes, self.separator)

    def _fields(self, text: str) -> list[str]:
        if not self.quoted:
            return text.split(self.separator)
        try:
            rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=self.separator, strict=True))
        except csv.Error as problem:
            raise BadRowError("", f"expected fields separated by {self.separator!r}, found: {problem}") from None
        if len(rows) > 1:
            raise BadRowError("", "expected one row, found a line break outside of quotes, or an unbalanced quote")
        return rows[0] if rows else [""]


@dataclass(frozen=True)
class JsonLines:
    """One JSON object per line; the same methods as `Separated`."""

    separator: str = ""
    quoted: bool = False
    fixed_names: tuple[str, ...] = ()
    names_in_rows: bool = True

    def names(self, text: str) -> list[str]:
        return [name for name in _json_object(text) if not _has_surrogate(name)]  # not valid text

    def row(self, text: str, names: Sequence[str], columns: Mapping[str, str]) -> dict[str, str | None]:
        values = _json_object(text)
        return {name: _json_text(name, values.get(name)) for name in columns.values()}

    def frame(
        self, data: bytes, names: Sequence[str], columns: Mapping[str, str], well_formed: bool = False
    ) -> pl.DataFrame:
        # Polars would write the number 1e3 as 1000, which is a different id.
        names = [name for role, name in columns.items() if role not in ("time", "filter")]
        ids = "|".join(re.escape(json.dumps(name, ensure_ascii=ascii)) for name in names for ascii in (True, False))
        if re.search(rf"(?:{ids})\s*:\s*(?:-0|-?\d+[.eE])".encode(), data):
            raise pl.exceptions.ComputeError("a number that is not whole")
        frame = pl.read_ndjson(data, schema=dict.fromkeys(columns.values(), pl.String))
        # Polars converts lists and objects to text; only the slow parser can tell them from strings that look the same.
        nested = frame.select(pl.any_horizontal(pl.all().str.contains(r"^[\[{]")).any()).item()
        if nested:
            raise pl.exceptions.ComputeError("a nested value")
        return frame


TableFormat = Separated | JsonLines


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
        if value is not None and _has_surrogate(value):
            raise BadRowError(name, "expected text, found half of a surrogate pair")
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    raise BadRowError(name, f"expected text or a number, found {type(value).__name__}")


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= sign <= "\udfff" for sign in text)


TABLE_FORMATS: dict[str, TableFormat] = {
    "csv": Separated(",", quoted=True),
    "tsv": Separated("\t"),
    "jsonl": JsonLines(),
    "movietweetings": Separated("::", fixed_names=("user", "movie", "rating", "timestamp")),
    "recbole": Separated("\t", typed_header=True),
}
TABLES = (*TABLE_FORMATS, "parquet")
LINES = ("logs", "windows", "sessions")
FORMATS = ("auto", *TABLES, *LINES)
SUFFIXES = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
SUFFIXES |= {".pq": "parquet", ".inter": "recbole", ".tsv": "", ".txt": "", ".dat": ""}  # "": the first line tells
NOT_A_LOG = ("movies.dat", "item_dict.txt", "user_dict.txt")
SNIFFED_BYTES, SNIFFED_LINES = 65_536, 20
DELIMITERS = (",", ";", "|", "\t")
FORMAT = option("--format", "format=")


@dataclass(frozen=True)
class Source:
    """What to read; `files` maps the role of a file to its path."""

    format: str
    files: dict[str, Path]
    item_dictionary: Path | None = None
    account_dictionary: Path | None = None
    delimiter: str = ","  # between the fields of a CSV file
    encoding: str = ""  # UTF-8 if empty
    notes: list[str] = field(default_factory=list)
    frame: Any = None  # a data frame in place of files

    def all_files(self) -> list[Path]:
        if self.frame is not None:
            return []
        dictionaries = (self.item_dictionary, self.account_dictionary)
        return [*self.files.values(), *(path for path in dictionaries if path is not None)]


def detect(path: Path, wanted: str = "auto", encoding: str = "", table: bool = False) -> Source:
    """Return the source at `path`, a file or a folder, in the `wanted` format or the detected one.

    Args:
        encoding: the encoding of the file; UTF-8 if empty.
        table: columns were named, so the file is a table and not one sequence per line.
    """
    if wanted not in FORMATS:
        raise DataError(f"{FORMAT}: {unknown_name('format', wanted, FORMATS)}")
    if not path.exists():
        raise DataError(f"{path}: no such file or folder. Give a log file, or a folder that contains one.")
    if path.is_dir():
        source = _detect_folder(path, wanted, encoding, table)
        if wanted not in ("auto", source.format):
            raise DataError(
                f"{path}: {FORMAT} is {wanted}, but the folder holds {source.format}. Give the path of the file."
            )
        return source
    if not path.is_file() and wanted in ("auto", "parquet"):
        raise DataError(f"{path}: a pipe can be read only once. Give its {FORMAT}; parquet cannot be read from a pipe.")
    kind = wanted if wanted != "auto" else _detect_file(path, encoding, table)
    known = kind == "csv" and path.is_file()
    return Source(kind, {"all": path}, delimiter=_delimiter(path, encoding) if known else ",", encoding=encoding)


def _delimiter(path: Path, encoding: str) -> str:
    """Return the column separator of a CSV file; a comma where none fits better."""
    return _likely_delimiter(_first_lines(path, encoding)) or ","


def _likely_delimiter(lines: list[str]) -> str:
    """Return the sign that yields usual column names, else the one that splits most lines like the header."""
    try:
        tables = {sign: list(csv.reader(lines, delimiter=sign)) for sign in DELIMITERS}
    except csv.Error:
        return ""
    for sign, rows in tables.items():
        if _is_header(rows[0]):
            return sign
    split = {sign: len(rows[0]) for sign, rows in tables.items() if len(rows[0]) > 1}
    alike = {sign: sum(len(row) == width for row in tables[sign]) for sign, width in split.items()}
    return max(split, key=lambda sign: (alike[sign], split[sign]), default="")


def _detect_folder(folder: Path, wanted: str, encoding: str, table: bool) -> Source:
    names = {file.name: file for file in sorted(folder.iterdir()) if file.is_file() and not file.name.startswith(".")}
    domains = {file.stem: file for name, file in names.items() if file.suffix == ".tsv"}
    if len(domains) > 2 and "mixed" in domains:
        return Source("logs", domains)
    if "test_data.txt" in names:
        parts = {part: names[f"{part}_data.txt"] for part in ("train", "test") if f"{part}_data.txt" in names}
        files = parts if len(parts) == 2 else {"all": names["test_data.txt"]}
        return Source("windows", files, names.get("item_dict.txt"), names.get("user_dict.txt"))
    if "testdata_sess.txt" in names:
        training = names.get("traindata_sess.txt", names.get("validdata_sess.txt"))
        parts = {"train": training} if training else {}
        notes = ["the training part was read from validdata_sess.txt"] if "traindata_sess.txt" not in names else []
        return Source("sessions", parts | {"test": names["testdata_sess.txt"]}, notes=notes if training else [])
    logs = [file for name, file in names.items() if plain_suffix(file) in SUFFIXES and name not in NOT_A_LOG]
    if len(logs) != 1:
        if kind := kind_found(folder):
            raise DataError(f"{folder}: expected a log. {kind}Give the path of the log that it was made from.")
        listed = ", ".join(file.name for file in logs) or "none"
        raise DataError(f"{folder}: expected one log file, found {listed}. Give the path of the file.")
    return detect(logs[0], wanted, encoding, table)


def _detect_file(path: Path, encoding: str, table: bool) -> str:
    suffix = plain_suffix(path)
    if SUFFIXES.get(suffix):
        return SUFFIXES[suffix]
    return _detect_text(path, _first_lines(path, encoding), table)


def _first_lines(path: Path, encoding: str) -> list[str]:
    """Return the first lines that are not empty."""
    for block in read_blocks(path, block_bytes=SNIFFED_BYTES, encoding=encoding):
        if block.rows:
            records = islice(block.records(), SNIFFED_LINES)
            return [record.data[:SNIFFED_BYTES].decode("utf-8", "replace") for record in records]
    raise DataError(f"{path}: the file is empty. Expected a log.")


def _detect_text(path: Path, lines: list[str], table: bool) -> str:
    line = lines[0]
    if "::" in line and "\t" not in line:
        return "movietweetings"
    fields = line.split("\t")
    many = len(fields) > 2 and bool(fields[-1])
    if _is_header(fields) or (len(fields) > 1 and table) or (many and plain_suffix(path) == ".tsv"):
        return "tsv"
    if len(fields) == 1 and _likely_delimiter(lines):
        return "csv"
    if len(fields) == 2 and fields[1]:
        return "logs"
    if line.endswith("\t"):
        return "windows"
    if len(fields) > 3 and fields[-2][:1].isalpha() and fields[-1][:1].isalpha() and fields[-2][0] != fields[-1][0]:
        return "sessions"
    raise DataError(
        f"{path}:1: cannot detect the format from the first line '{shown(line)}'. "
        f"Give it with {FORMAT}, one of: {', '.join(FORMATS[1:])}."
    )


def _is_header(fields: list[str]) -> bool:
    try:
        find_columns(fields, {}, "")
    except DataError:
        return False
    return True

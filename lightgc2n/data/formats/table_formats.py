"""Parsers of single rows of an event table: CSV, TSV, RecBole's .inter, MovieTweetings' .dat and JSON lines."""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from lightgc2n.data.formats.records import LONGEST_RECORD, QUOTE, quotes_enclose_fields
from lightgc2n.data.formats.rows import BadRowError, shown

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

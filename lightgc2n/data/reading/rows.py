"""What makes a row bad, and what becomes of bad rows: the first is an error, or all go to `rejected.tsv`."""

from pathlib import Path

import polars as pl

from lightgc2n.data.reading.blocks import LONGEST_RECORD, Record
from lightgc2n.errors import DataError

LONGEST_ID = 1024
SHOWN = 60
CONTROL_CHARACTERS = r"[\x00-\x1f\x7f]"


class BadRowError(Exception):
    """One row cannot be used; `column` is empty where the fault is not in a single one."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(reason)
        self.column, self.reason = column, reason


class StrayQuoteError(BadRowError):
    """A quote stands where none should, so lines may have been joined that are rows of their own."""


class Rejects:
    """Takes bad rows: writes them to `rejected.tsv` in a folder, or, without a folder, stops at the first one."""

    def __init__(self, folder: Path | None = None) -> None:
        self._path = folder / "rejected.tsv" if folder else None
        self.count = 0

    def add(self, path: Path, line: int, column: str, reason: str, text: str = "", unit: str = "line") -> None:
        if self._path is None:
            place = f"{path}:{line}" if unit == "line" else f"{path}: {unit} {line}"
            what = f"column {column}: {reason}" if column else reason
            raise DataError(f"{place}: {what}. Mend it, or import with --skip-bad, which drops bad rows.")
        with self._path.open("a", encoding="utf-8") as file:
            if self.count == 0:
                file.write("file\tline\tcolumn\treason\ttext\n")
            file.write("\t".join((shown(path.name), str(line), shown(column), reason, shown(text))) + "\n")
        self.count += 1


def shown(text: str, most: int = SHOWN) -> str:
    """Any text made fit for one cell of a message: short and without control characters."""
    short = text if len(text) <= most else text[:most] + "…"
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape", "replace").decode() for sign in short)


def record_text(record: Record) -> str:
    """The record as text; one that is no text, or far too long, is a bad row."""
    if len(record.data) > LONGEST_RECORD:
        raise BadRowError("", f"expected a row of at most {LONGEST_RECORD:,} bytes, found a longer one")
    if b"\0" in record.data:
        raise BadRowError("", "expected UTF-8, found a NUL byte, as in UTF-16 or a binary file")
    try:
        return record.data.decode("utf-8")
    except UnicodeDecodeError as problem:
        found = record.data[problem.start]
        raise BadRowError("", f"expected UTF-8, found the byte 0x{found:02x} at place {problem.start + 1}") from None


def id_problem(value: pl.Expr) -> pl.Expr:
    """Why a value cannot be an id, null where it can."""
    return (
        pl.when(value.is_null() | (value == ""))
        .then(pl.lit("expected an id, found nothing"))
        .when(value.str.len_bytes() > LONGEST_ID)
        .then(pl.lit(f"expected an id of at most {LONGEST_ID:,} bytes, found a longer one"))
        .when(value.str.contains(CONTROL_CHARACTERS))
        .then(pl.lit("expected an id without control characters"))
        .otherwise(None)
    )

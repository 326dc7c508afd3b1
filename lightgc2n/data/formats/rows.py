"""What makes a row bad, and the count of rows: read, and rejected into `rejected.tsv`."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from lightgc2n.data.formats.blocks import Record
from lightgc2n.data.formats.records import LONGEST_RECORD
from lightgc2n.errors import DataError, option

LONGEST_ID = 1024
SHOWN = 60
SKIP_BAD = option("--skip-bad", "skip_bad=True")
BadRow = tuple[int, str, str, str]  # line, column, reason, text
CONTROL_CHARACTERS = r"[\x00-\x1f\x7f]"


class BadRowError(Exception):
    """One row cannot be used; `column` is empty where the fault is not in a single one."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(reason)
        self.column, self.reason = column, reason


class Tally:
    """Counts rows: of the files, those read, and the bad ones.

    Bad rows are listed in `rejected.tsv` in a folder; without a folder the first one is an error.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._path = folder / "rejected.tsv" if folder else None
        self.rows = self.read = self.rejected = 0
        self.joined_rows = self.joined_lines = 0  # rows with line breaks between quotes

    def reject(self, path: Path, bad: Sequence[BadRow], place: str = "{path}:{line}") -> None:
        """List bad rows of one file; `place` is how an error names a row."""
        if not bad:
            return
        if self._path is None:
            line, column, reason, _ = bad[0]
            what = f"column {column}: {reason}" if column else reason
            where = place.format(path=path, line=line)
            raise DataError(f"{where}: {what}. Mend it, or import with {SKIP_BAD}, which drops bad rows.")
        with self._path.open("a", encoding="utf-8") as file:
            if self.rejected == 0:
                file.write("file\tline\tcolumn\treason\ttext\n")
            for line, column, reason, text in bad:
                file.write("\t".join((shown(path.name), str(line), shown(column), reason, shown(text))) + "\n")
        self.rejected += len(bad)

    def check(self, where: str) -> None:
        """Raise an error unless every row of the files was either read or rejected."""
        if self.read + self.rejected != self.rows:
            raise DataError(
                f"{where}: expected {self.rows:,} rows, found {self.read:,} read and {self.rejected:,} rejected. "
                f"This is a fault of lightgc2n, so nothing was imported: please report it with a few lines of the file."
            )

    def notes(self) -> list[str]:
        """Say what became of the rows, where it is not the usual."""
        notes = []
        if self.rejected:
            notes.append(
                f"{self.rows:,} rows: {self.read:,} read, {self.rejected:,} rejected (rejected.tsv lists them)"
            )
        if self.joined_rows:
            notes.append(
                f"{self.joined_rows:,} rows have line breaks between quotes: {self.joined_lines:,} lines in all"
            )
        return notes


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

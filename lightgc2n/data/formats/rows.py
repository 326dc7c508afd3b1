"""Checks of single rows, the row filter of `--where`, and counts of the rows read and rejected (`rejected.tsv`)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from lightgc2n.data.formats.blocks import ENCODING, LONGEST_RECORD, Record
from lightgc2n.errors import DataError, SettingError, option

LONGEST_ID = 1024
SHOWN = 60
SHOWN_VALUES = 4
NOT_UTF8 = "expected UTF-8"
SKIP_BAD = option("--skip-bad", "skip_bad=True")
BadRow = tuple[int, str, str, str]  # line, column, reason, text
CONTROL_CHARACTERS = r"[\x00-\x1f\x7f]"


class BadRowError(Exception):
    """A row cannot be used; `column` is empty if the error is not in a single column."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(reason)
        self.column, self.reason = column, reason


class Tally:
    """Counts the rows of the files, the rows read, and the bad rows.

    Bad rows are written to `rejected.tsv` in a folder; without a folder the first bad row is an error.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._path = folder / "rejected.tsv" if folder else None
        self.rows = self.read = self.rejected = 0
        self.filtered = 0  # rows that the row filter leaves out
        self.left_out: dict[str, None] = {}  # some values of these rows
        self.joined_rows = self.joined_lines = 0  # rows with line breaks inside quotes

    def reject(self, path: Path, bad: Sequence[BadRow], place: str = "{path}:{line}") -> None:
        """Reject bad rows of one file; `place` is the format of a row's place in an error."""
        if not bad:
            return
        if self._path is None:
            line, column, reason, _ = bad[0]
            what = f"column {column}: {reason}" if column else reason
            where = place.format(path=path, line=line)
            other = encoding_advice(reason)
            advice = f"{other}If only this row is broken, " if other else "Correct it, or "
            raise DataError(f"{where}: {what}. {advice}import with {SKIP_BAD}, which drops bad rows.")
        with self._path.open("a", encoding="utf-8") as file:
            if self.rejected == 0:
                file.write("file\tline\tcolumn\treason\ttext\n")
            for line, column, reason, text in bad:
                file.write("\t".join((shown(path.name), str(line), shown(column), reason, shown(text))) + "\n")
        self.rejected += len(bad)

    def leave_out(self, values: pl.Series) -> None:
        """Count rows that the row filter leaves out, given the values of its column; keep some of the values."""
        self.filtered += len(values)
        if len(self.left_out) < SHOWN_VALUES:
            kinds = values.filter(values != "").unique(maintain_order=True).head(SHOWN_VALUES)
            self.left_out |= dict.fromkeys(str(kind) for kind in kinds)

    def found_instead(self) -> str:
        """Return a clause with some values of the rows that the filter left out; empty without any."""
        kinds = [repr(shown(kind, 20)) for kind in list(self.left_out)[:SHOWN_VALUES]]
        return f"; the column holds, for example, {', '.join(kinds)}" if kinds else ""

    def check(self, where: str) -> None:
        """Raise an error unless every row of the files was either read or rejected."""
        if self.read + self.rejected + self.filtered != self.rows:
            raise DataError(
                f"{where}: expected {self.rows:,} rows, found {self.read:,} read, {self.filtered:,} filtered out and "
                f"{self.rejected:,} rejected. "
                f"This is a bug in lightgc2n, so nothing was imported: please report it with a few lines of the file."
            )

    def counts(self) -> dict[str, int]:
        """Return the counts for the manifest."""
        filtered = {"filtered_rows": self.filtered} if self.filtered else {}
        return {"rows": self.rows, **filtered, "rejected_rows": self.rejected}

    def notes(self) -> list[str]:
        """Return notes on rejected rows and on rows that span lines."""
        notes = []
        if self.rejected:
            read = f"{self.read:,} read" + (f", {self.filtered:,} left out" if self.filtered else "")
            notes.append(f"{self.rows:,} rows: {read}, {self.rejected:,} rejected (rejected.tsv lists them)")
        if self.joined_rows:
            notes.append(
                f"{self.joined_rows:,} rows have line breaks inside quotes: {self.joined_lines:,} lines in all"
            )
        return notes


def encoding_advice(reason: str) -> str:
    """Return the sentence that helps with a file in another encoding, if that is why a row is bad."""
    likely = likely_encoding(reason)
    return f"Give the file's {ENCODING}, such as {likely}. " if likely else ""


def likely_encoding(reason: str) -> str:
    """Return examples of the encoding that a file may have, if that is why a row is bad."""
    if not reason.startswith(NOT_UTF8):
        return ""
    return "utf-16" if "NUL" in reason else "cp1252 or latin-1"


def shown(text: str, most: int = SHOWN) -> str:
    """Return text that fits into one cell of a message: short and without control characters."""
    short = text if len(text) <= most else text[:most] + "…"
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape", "replace").decode() for sign in short)


def record_text(record: Record) -> str:
    """Return the record as text; raise `BadRowError` if it is not text or too long."""
    if len(record.data) > LONGEST_RECORD:
        raise BadRowError("", f"expected a row of at most {LONGEST_RECORD:,} bytes, found a longer one")
    if b"\0" in record.data:
        raise BadRowError("", f"{NOT_UTF8}, found a NUL byte, as in UTF-16 or a binary file")
    try:
        return record.data.decode("utf-8")
    except UnicodeDecodeError as problem:
        byte = record.data[problem.start]
        raise BadRowError("", f"{NOT_UTF8}, found the byte 0x{byte:02x} at position {problem.start + 1}") from None


def id_problem(value: pl.Expr) -> pl.Expr:
    """Return why a value cannot be an id, null if it can."""
    return (
        pl.when(value.is_null() | (value == ""))
        .then(pl.lit("expected an id, found nothing"))
        .when(value.str.len_bytes() > LONGEST_ID)
        .then(pl.lit(f"expected an id of at most {LONGEST_ID:,} bytes, found a longer one"))
        .when(value.str.contains(CONTROL_CHARACTERS))
        .then(pl.lit("expected an id without control characters"))
        .otherwise(None)
    )


WHERE = option("--where", "where=")
FILTER = "filter"  # the role of the compared column
COMPARISON = re.compile(r"\s*(?P<column>[^<>=!]+?)\s*(?P<sign>>=|<=|!=|==|=|<|>)\s*(?P<value>[^<>=!]*?)\s*")
ORDERS = (">=", "<=", ">", "<")


@dataclass(frozen=True)
class RowFilter:
    """Keeps the rows whose column compares with the value: as numbers where both are numbers, else as text."""

    column: str
    sign: str
    value: str

    def __str__(self) -> str:
        return f"{self.column} {self.sign} {self.value}"

    def keeps(self, cell: pl.Expr) -> pl.Expr:
        """Return whether each row passes; a missing value passes `!=` alone."""
        number, text = _number(cell), cell.fill_null("")
        if self.sign in ORDERS:
            limit = float(self.value)
            kept = {">=": number >= limit, "<=": number <= limit, ">": number > limit, "<": number < limit}[self.sign]
            return kept.fill_null(False)
        equal = text == self.value
        if _is_number(self.value):
            equal |= (number == float(self.value)).fill_null(False)
        return ~equal if self.sign == "!=" else equal

    def problem(self, cell: pl.Expr) -> pl.Expr:
        """Return why a row cannot be compared, null if it can: order needs a number."""
        wrong = pl.lit(self.sign in ORDERS) & (cell.fill_null("") != "") & _number(cell).is_null()
        text = cell.fill_null("").str.replace_all(CONTROL_CHARACTERS, " ").str.head(SHOWN)
        return pl.when(wrong).then(pl.format(f"expected a number for '{self.sign}', found '{{}}'", text))


def read_filter(text: str) -> RowFilter | None:
    """Parse one comparison; no text is no filter."""
    if not text:
        return None
    match = COMPARISON.fullmatch(text)
    if match is None:
        raise SettingError(
            f"{WHERE}: expected one comparison, such as 'rating >= 4' or 'event = watch', found {text!r}. "
            f"Signs: = != > >= < <=."
        )
    sign, value = match["sign"].replace("==", "="), match["value"]
    value = value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value
    if sign in ORDERS and not _is_number(value):
        raise SettingError(f"{WHERE}: expected a number after {sign}, found {value!r}.")
    return RowFilter(match["column"], sign, value)


def _number(cell: pl.Expr) -> pl.Expr:
    """Return a number written with a point or a decimal comma, else null."""
    return cell.str.strip_chars().str.replace(r"^([+-]?\d+),(\d+)$", "$1.$2").cast(pl.Float64, strict=False)


def _is_number(text: str) -> bool:
    try:
        return float(text) == float(text)  # not NaN
    except ValueError:
        return False

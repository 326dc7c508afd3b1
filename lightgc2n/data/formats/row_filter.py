"""One comparison that keeps rows at import, such as `rating >= 4` or `event = watch`."""

import re
from dataclasses import dataclass

import polars as pl

from lightgc2n.data.formats.rows import CONTROL_CHARACTERS, SHOWN
from lightgc2n.errors import SettingError, option

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
        found = cell.fill_null("").str.replace_all(CONTROL_CHARACTERS, " ").str.head(SHOWN)
        return pl.when(wrong).then(pl.format(f"expected a number for '{self.sign}', found '{{}}'", found))


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

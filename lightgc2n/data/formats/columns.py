"""The columns of a table: which column has which role, ids as integers, and times as microseconds since 1970.

A time is written as a number, as an ISO date, or in a format that the user gives.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np
import numpy.typing as npt
import polars as pl

from lightgc2n.config import unknown_name
from lightgc2n.data.catalogue import plain_name
from lightgc2n.data.formats.rows import CONTROL_CHARACTERS, FILTER, SHOWN, WHERE, RowFilter
from lightgc2n.errors import DataError, SettingError, option

REQUIRED = ("account", "item")
# Compared without case, blanks and punctuation; the first name in the list wins if a table has several.
USUAL_NAMES = {
    "account": "account accountid household householdid customer customerid user userid uid reviewer reviewerid "
    "visitor visitorid subscriber subscriberid",
    "item": "item itemid movie movieid video videoid program programid content contentid title titleid product "
    "productid asin parentasin sku article articleid track trackid song songid book bookid isbn iid",
    "time": "timestamp ts time datetime unixreviewtime eventtime createdat date watchedat",
    "domain": "domain domainid",
    "member": "member memberid person personid profile profileid",
    "title": "title itemtitle movietitle producttitle programtitle itemname productname",
    "context": "",  # never found by its name: it has to be named
}
Codes = npt.NDArray[np.int32]
HEADER = option("--columns", "header=")


def find_columns(
    names: Sequence[str],
    chosen: Mapping[str, str],
    where: str,
    row_filter: RowFilter | None = None,
    typed: bool = False,
) -> dict[str, str]:
    """Return the column name of each role that the table has; account and item are required.

    Args:
        chosen: the columns that the caller has named, by role.
        where: file and line of the header, for errors.
        row_filter: its column gets the role `filter`; it may have another role too.
        typed: the table is Parquet or a data frame, whose columns always have names.
    """
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise DataError(
            f"{where}: the header names the column {repeated[0]!r} more than once. Rename one of them, "
            f"or give {HEADER} with a name for each column."
        )
    plain = {plain_name(name): name for name in reversed(names)}
    columns = {}
    for role, usual in USUAL_NAMES.items():
        if role in chosen:
            if chosen[role] not in names:
                raise DataError(no_column(chosen[role], names, where, _of(role)))
            columns[role] = chosen[role]
        elif match := next((plain[name] for name in usual.split() if name in plain), None):
            columns[role] = match
    if "title" not in chosen and columns.get("title") == columns.get("item"):
        columns.pop("title", None)  # titles serve as item ids
    if missing := [role for role in REQUIRED if role not in columns]:
        raise DataError(
            f"{where}: no column looks like the {' or the '.join(missing)}. Found: {listed(names)}. "
            f"Name {'it' if len(missing) == 1 else 'them'} with {' and '.join(map(_of, missing))}"
            f"{'' if typed else f', or give {HEADER} if the file has no header'}."
        )
    for name in set(columns.values()):
        roles = [role for role, column in columns.items() if column == name]
        if len(roles) > 1:
            raise DataError(
                f"{where}: the column {name!r} would be both {roles[0]} and {roles[1]}. "
                f"Name another with {_of(roles[0])} or {_of(roles[1])}."
            )
    if row_filter is not None and row_filter.column not in names:
        raise DataError(no_column(row_filter.column, names, where, WHERE))
    return columns if row_filter is None else columns | {FILTER: row_filter.column}


def no_column(name: str, names: Sequence[str], where: str, wanted_by: str) -> str:
    """Return an error sentence that names the missing column and suggests the nearest one."""
    lower = {one.casefold(): one for one in reversed(names)}
    near = get_close_matches(name.casefold(), lower, n=1)
    hint = f" Did you mean {lower[near[0]]!r}?" if near else ""
    return f"{where}: no column {name!r} for {wanted_by}.{hint} Found: {listed(names)}."


def _of(role: str) -> str:
    """The option that names the column of a role."""
    return option(f"--{role}-column", f"{role}=")


def listed(names: Sequence[str]) -> str:
    """Return the first names for a message, and how many more there are."""
    shown = [name if len(name) <= 40 else name[:40] + "…" for name in names[:12]]
    more = f" and {len(names) - 12:,} more" if len(names) > 12 else ""
    return ", ".join(repr(name) for name in shown) + more


MOST_HINTS = 12
MOST_KINDS, ROWS_PER_KIND, LONGEST_KIND, SHOWN_KINDS = 10, 20, 30, 4


def overlooked(columns: Mapping[str, str], values: Mapping[str, Sequence[str]]) -> list[str]:
    """Return hints at columns that are not used but look like times, titles or kinds of events, where none are named.

    Args:
        values: of each column that is not used, its values in the first rows.
    """
    hints = []
    if "time" not in columns:
        dates = (name for name, texts in values.items() if any(map(_is_date, texts[:1])))
        how = "to use it, give --time-column (in Python: time=)"
        hints += [f"column {name!r} looks like times: {how}" for name in dates]
    if "title" not in columns:
        titles = (name for name in values if TITLE_NAME.search(plain_name(name)))
        how = "to keep them, give --title-column (in Python: title=)"
        hints += [f"column {name!r} looks like titles: {how}" for name in titles]
    if FILTER not in columns:
        kinds = [_with_values(name, texts) for name, texts in values.items() if _is_kind(name, texts)]
        how = "leave out rows that were only shown or not liked with --where (in Python: where=)"
        more = f" and {len(kinds) - MOST_HINTS:,} more" if len(kinds) > MOST_HINTS else ""
        shown = "; ".join(kinds[:MOST_HINTS]) + more
        hints += [f"columns with few values: {shown}. If one tells what happened, {how}"] if kinds else []
    return hints[:MOST_HINTS]


def _is_date(text: str) -> bool:
    return re.match(f"{LOCAL_DATE}|{ISO_DATE}", text.strip()) is not None


def _is_kind(name: str, texts: Sequence[str]) -> bool:
    """Return whether a column may tell shown from watched: by its name, or by few values that occur often."""
    kinds = set(filter(None, texts))
    few = 1 < len(kinds) <= MOST_KINDS and len(texts) >= ROWS_PER_KIND * len(kinds)
    return plain_name(name) in KINDS or (few and all(len(kind) <= LONGEST_KIND for kind in kinds))


def _with_values(name: str, texts: Sequence[str]) -> str:
    """The name of a column with its most frequent values."""
    common = Counter(filter(None, texts)).most_common(SHOWN_KINDS)
    shown = ", ".join(repr(text) for text, _ in common if len(text) <= LONGEST_KIND)
    return f"{name!r} ({shown})" if shown else repr(name)


class Coder:
    """Numbers ids in order of first appearance."""

    def __init__(self, known: Sequence[str] = ()) -> None:
        self._categories = pl.Categories.random("ids")
        # Polars drops categories that no series refers to; this series keeps all of them.
        self._anchor = pl.Series(known, dtype=pl.String).cast(pl.Categorical(self._categories))

    def codes(self, ids: pl.Series) -> Codes:
        """Return the number of each id, -1 for null."""
        numbers = ids.cast(pl.Categorical(self._categories)).to_physical().cast(pl.Int32)
        return numbers.fill_null(-1).to_numpy()

    def ids(self) -> list[str]:
        return list(self._categories.to_series().cast(pl.String))


MICROSECONDS_PER = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}
UNITS = ("auto", "iso", *MICROSECONDS_PER)
# The years 1900 to 2262: wide enough for any log, narrow enough to catch a value in another unit.
EARLIEST, LATEST = -2_208_988_800_000_000, 9_214_646_400_000_000
ISO_FORMATS = ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%d")
COMPACT_DATE = r"^(19|20|21)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])$"  # 20231124; as seconds it would be in 1970
# 31.12.2023 20:15 or 1/2/2024: two numbers that may be day and month, and a year
LOCAL_DATE = r"^(\d{1,2})([./-])(\d{1,2})[./-]\d{4}(?:([ T])\d{1,2}:\d\d(:\d\d)?)?$"
ISO_DATE = r"^\d{4}[-/]\d{1,2}[-/]\d{1,2}([ T]|$)"
TITLE_NAME = re.compile("title|titel|name|bezeichnung|titre|titulo")  # of a column that is not used
KINDS = {"event", "eventtype", "action", "interaction", "rating", "stars", "feedback"}  # columns to filter rows by
TIME_FORMAT = option("--time-format", "time_format=")


@dataclass(frozen=True)
class TimeReader:
    """How one source writes times: a unit of numbers, `iso`, or a format such as `%d.%m.%Y %H:%M`."""

    unit: str

    def describe(self) -> str:
        if "%" in self.unit:
            return f"times read as {self.unit!r}, UTC where no zone is given"
        if self.unit == "iso":
            return "times read as ISO dates, UTC where no zone is given"
        return f"times read as numbers, {self.unit} since 1970"

    def microseconds(self, texts: pl.Series) -> pl.Series:
        """Return each time in microseconds; null if it cannot be parsed or is outside the years 1900 to 2262."""
        texts = texts.str.strip_chars()
        if "%" in self.unit:
            read = _parsed(texts, self.unit)
        else:
            read = _iso_microseconds(texts) if self.unit == "iso" else self._number_microseconds(texts)
        return read.set(~read.is_between(EARLIEST, LATEST), None)

    def problem(self, read: str, written: str) -> pl.Expr:
        """Return why a row's time cannot be used, null if it can."""
        expected = f"a number of {self.unit} since 1970"
        if "%" in self.unit or self.unit == "iso":
            expected = "an ISO date" if self.unit == "iso" else f"a time as {self.unit.replace('{', '{{')!r}"
        text = pl.col(written).fill_null("").str.replace_all(CONTROL_CHARACTERS, " ").str.head(SHOWN)
        why = pl.format(f"expected {expected} within the years 1900 to 2262, found '{{}}'", text)
        return pl.when(pl.col(read).is_null()).then(why)

    def _number_microseconds(self, texts: pl.Series) -> pl.Series:
        factor = MICROSECONDS_PER[self.unit]
        whole = texts.cast(pl.Int64, strict=False)
        if factor >= 1:
            # A float represents every microsecond of the allowed years, and shows where the product would overflow.
            fits = (whole.cast(pl.Float64) * factor).is_between(EARLIEST, LATEST)
            exact = whole.set(~fits, None) * int(factor)
        else:
            exact = whole // int(1 / factor)
        if exact.null_count() == texts.null_count():
            return exact
        parts = (texts.cast(pl.Float64, strict=False) * factor).round()
        rounded = parts.set(~(parts.is_finite() & parts.is_between(EARLIEST, LATEST)), None).cast(pl.Int64)
        return exact.zip_with(whole.is_not_null(), rounded)


def check_unit(unit: str, form: str = "") -> None:
    """Raise an error if the unit is unknown, or the format cannot give a date."""
    if unit not in UNITS:
        raise SettingError(f"{option('--time-unit', 'time_unit')}: {unknown_name('unit', unit, UNITS)}")
    parts = set(re.findall(r"%([A-Za-z])", form))
    dated = parts & {"F", "D", "s"} or (
        parts & {"Y", "y"} and (parts & {"j"} or (parts & set("mbB") and parts & set("de")))
    )
    if form and not dated:
        raise SettingError(
            f"{TIME_FORMAT}: expected a format with year, month and day, such as '%d.%m.%Y %H:%M' for "
            f"31.12.2023 20:15, found {form!r}."
        )
    if form and unit != "auto":
        raise SettingError(f"{TIME_FORMAT}: leave out {option('--time-unit', 'time_unit=')}, which is for other times.")


def time_reader(unit: str, sample: pl.Series, where: str = "") -> TimeReader:
    """Return a reader for a unit or format; `auto` chooses the unit by the magnitude of the sampled times.

    Args:
        where: file and column, for the error about dates whose day and month are not certain.
    """
    if "%" in unit:
        return TimeReader(unit.replace(".%f", "%.f"))  # the same as in Python's strptime
    check_unit(unit)
    if unit != "auto":
        return TimeReader(unit)
    sample = sample.str.strip_chars()
    if len(sample) and sample.str.contains(COMPACT_DATE).all():
        return TimeReader("iso")
    numbers = sample.cast(pl.Float64, strict=False)
    numbers = numbers.filter(numbers.is_finite())
    if len(numbers) * 2 < len(sample):
        _refuse_local_dates(sample, where)
        return TimeReader("iso")
    size = numbers.abs().median()
    if not isinstance(size, float) or size < 1e11:  # 1e11 seconds lie in the year 5138, 1e11 ms in 1973
        return TimeReader("s")
    return TimeReader("ms" if size < 1e14 else "us" if size < 1e17 else "ns")


def _refuse_local_dates(sample: pl.Series, where: str) -> None:
    """Raise an error that names the format to give, if most times are dates such as 31.12.2023 or 01/02/2024."""
    local = sample.filter(sample.str.contains(LOCAL_DATE))
    if len(local) * 2 < len(sample):
        return
    fields = local.str.extract_groups(LOCAL_DATE).struct.unnest()
    first, second = (fields[name].cast(pl.Int64) > 12 for name in ("1", "3"))
    sign, between, seconds = (next(iter(fields[name].drop_nulls().to_list()), "") for name in ("2", "4", "5"))
    clock = f"{between}%H:%M{':%S' if seconds else ''}" if between else ""
    days, months = (f"'{sign.join(order)}{clock}'" for order in (("%d", "%m", "%Y"), ("%m", "%d", "%Y")))
    if first.any() != second.any():
        shown, advice = local.filter(first | second)[0], days if first.any() else months
    else:
        shown, advice = local[0], f"{days} if the day comes first, {months} if the month does"
    raise DataError(f"{where}: expected ISO dates or numbers, found {shown!r}. Give {TIME_FORMAT} {advice}.")


def _parsed(texts: pl.Series, form: str) -> pl.Series:
    return texts.str.to_datetime(form, strict=False, time_unit="us").cast(pl.Int64)


def _iso_microseconds(texts: pl.Series) -> pl.Series:
    """Parse ISO 8601 and common variants; each format is tried only on the texts that are not parsed yet."""
    dashed = texts.str.replace(r"^(\d+)/(\d+)/(\d+)", "$1-$2-$3").str.replace(r"^(\d+-\d+-\d+)[Tt]", "$1 ")
    dashed = dashed.str.replace(r"^(\d{4})(\d\d)(\d\d)$", "$1-$2-$3")
    frame = pl.DataFrame({"text": dashed.str.replace(r"(?i)(z|\s*UTC)$", "")})
    read = pl.Series("time", [None] * len(texts), dtype=pl.Int64)
    for form in ISO_FORMATS:
        parsed = frame.select(pl.col("text").str.to_datetime(form, strict=False, time_unit="us").cast(pl.Int64))
        read = read.zip_with(read.is_not_null(), parsed.to_series())
        if read.null_count() == texts.null_count():
            return read
    return read.zip_with(read.is_not_null(), _zoned_microseconds(frame["text"]))


def _zoned_microseconds(texts: pl.Series) -> pl.Series:
    whole = texts.str.replace(r"(:\d\d(?:\.\d+)?)\s*([+-]\d\d)$", "${1}${2}00")  # an offset in hours only
    plain = whole.str.replace(r"\s*([+-]\d\d):?(\d\d)$", "${1}${2}").str.replace(r" (\d+:\d+)([+-])", " ${1}:00${2}")
    parsed = plain.str.to_datetime("%Y-%m-%d %H:%M:%S%.f%z", strict=False, time_unit="us", time_zone="UTC")
    return parsed.cast(pl.Int64)

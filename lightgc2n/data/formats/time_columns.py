"""Times as others write them, turned into microseconds since 1970."""

from dataclasses import dataclass

import polars as pl

from lightgc2n.config import unknown_name
from lightgc2n.data.formats.rows import CONTROL_CHARACTERS, SHOWN
from lightgc2n.errors import SettingError, option

MICROSECONDS_PER = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}
UNITS = ("auto", "iso", *MICROSECONDS_PER)
# The years 1900 to 2262: wide enough for any log, narrow enough to catch a value in another unit.
EARLIEST, LATEST = -2_208_988_800_000_000, 9_214_646_400_000_000
ISO_FORMATS = ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%d")
COMPACT_DATE = r"^(19|20|21)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])$"  # 20231124, also a second of the year 1970


@dataclass(frozen=True)
class TimeReader:
    """How the times of one source are written."""

    unit: str

    def describe(self) -> str:
        if self.unit == "iso":
            return "times read as ISO dates, UTC where no zone is given"
        return f"times read as numbers, {self.unit} since 1970"

    def microseconds(self, texts: pl.Series) -> pl.Series:
        """Each time in microseconds; null where it cannot be read or lies outside the years 1900 to 2262."""
        texts = texts.str.strip_chars()
        read = _iso_microseconds(texts) if self.unit == "iso" else self._number_microseconds(texts)
        return read.set(~read.is_between(EARLIEST, LATEST), None)

    def problem(self, read: str, written: str) -> pl.Expr:
        """Why a row's time cannot be used, null where it can."""
        expected = "an ISO date" if self.unit == "iso" else f"a number of {self.unit} since 1970"
        found = pl.col(written).fill_null("").str.replace_all(CONTROL_CHARACTERS, " ").str.head(SHOWN)
        why = pl.format(f"expected {expected} within the years 1900 to 2262, found '{{}}'", found)
        return pl.when(pl.col(read).is_null()).then(why)

    def _number_microseconds(self, texts: pl.Series) -> pl.Series:
        factor = MICROSECONDS_PER[self.unit]
        whole = texts.cast(pl.Int64, strict=False)
        if factor >= 1:
            # A float keeps every microsecond of the years allowed and says where the product would not fit.
            fits = (whole.cast(pl.Float64) * factor).is_between(EARLIEST, LATEST)
            exact = whole.set(~fits, None) * int(factor)
        else:
            exact = whole // int(1 / factor)
        if exact.null_count() == texts.null_count():
            return exact
        parts = (texts.cast(pl.Float64, strict=False) * factor).round()
        rounded = parts.set(~(parts.is_finite() & parts.is_between(EARLIEST, LATEST)), None).cast(pl.Int64)
        return exact.zip_with(whole.is_not_null(), rounded)


def check_unit(unit: str) -> None:
    """Stops at a unit that nobody knows."""
    if unit not in UNITS:
        raise SettingError(f"{option('--time-unit', 'time_unit')}: {unknown_name('unit', unit, UNITS)}")


def time_reader(unit: str, sample: pl.Series) -> TimeReader:
    """A reader for `unit`, or, for `auto`, for the unit that the size of the sampled times suggests."""
    check_unit(unit)
    if unit != "auto":
        return TimeReader(unit)
    sample = sample.str.strip_chars()
    if len(sample) and sample.str.contains(COMPACT_DATE).all():
        return TimeReader("iso")
    numbers = sample.cast(pl.Float64, strict=False)
    numbers = numbers.filter(numbers.is_finite())
    if len(numbers) * 2 < len(sample):
        return TimeReader("iso")
    size = numbers.abs().median()
    if not isinstance(size, float) or size < 1e11:  # 1e11 seconds lie in the year 5138, 1e11 ms in 1973
        return TimeReader("s")
    return TimeReader("ms" if size < 1e14 else "us" if size < 1e17 else "ns")


def _iso_microseconds(texts: pl.Series) -> pl.Series:
    """ISO 8601 and its usual relatives; every format is tried only on what the ones before left open."""
    dashed = texts.str.replace(r"^(\d+)/(\d+)/(\d+)", "$1-$2-$3").str.replace(r"^(\d+-\d+-\d+)[Tt]", "$1 ")
    dashed = dashed.str.replace(r"^(\d{4})(\d\d)(\d\d)$", "$1-$2-$3")
    frame = pl.DataFrame({"text": dashed.str.replace(r"(?i)(z|\s*UTC)$", "")})
    read = pl.Series("time", [None] * len(texts), dtype=pl.Int64)
    for form in ISO_FORMATS:
        found = frame.select(pl.col("text").str.to_datetime(form, strict=False, time_unit="us").cast(pl.Int64))
        read = read.zip_with(read.is_not_null(), found.to_series())
        if read.null_count() == texts.null_count():
            return read
    return read.zip_with(read.is_not_null(), _zoned_microseconds(frame["text"]))


def _zoned_microseconds(texts: pl.Series) -> pl.Series:
    whole = texts.str.replace(r"(:\d\d(?:\.\d+)?)\s*([+-]\d\d)$", "${1}${2}00")  # an offset of hours alone
    plain = whole.str.replace(r"\s*([+-]\d\d):?(\d\d)$", "${1}${2}").str.replace(r" (\d+:\d+)([+-])", " ${1}:00${2}")
    found = plain.str.to_datetime("%Y-%m-%d %H:%M:%S%.f%z", strict=False, time_unit="us", time_zone="UTC")
    return found.cast(pl.Int64)

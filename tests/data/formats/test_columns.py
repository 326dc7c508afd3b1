import gc
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightgc2n.data.formats.columns import EARLIEST, LATEST, Coder, TimeReader, check_unit, find_columns, time_reader
from lightgc2n.errors import DataError, SettingError


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["user_id", "item_id"], {"account": "user_id", "item": "item_id"}),
        (["Timestamp", "ASIN", "Reviewer ID"], {"account": "Reviewer ID", "item": "ASIN", "time": "Timestamp"}),
        (["user", "account", "movie", "item"], {"account": "account", "item": "item"}),
        (["household-id", "videoId", "ts"], {"account": "household-id", "item": "videoId", "time": "ts"}),
        (
            ["account_id", "item_id", "timestamp", "domain", "member"],
            {"account": "account_id", "item": "item_id", "time": "timestamp", "domain": "domain", "member": "member"},
        ),
    ],
)
def test_usual_names(names: list[str], expected: dict[str, str]) -> None:
    assert find_columns(names, {}, "log:1") == expected


def test_a_named_column_overrides_the_usual_names() -> None:
    chosen = {"item": "title", "time": "when"}
    expected = {"account": "user", "item": "title", "time": "when"}
    assert find_columns(["user", "item", "title", "when"], chosen, "log:1") == expected


@pytest.mark.parametrize(
    ("names", "chosen", "message"),
    [
        (["a", "item"], {}, r"log:1: no column looks like the account. Found: 'a', 'item'.*account="),
        (["user", "b"], {}, r"log:1: no column looks like the item"),
        (["user", "item", "user"], {}, r"log:1: the header names the column 'user' more than once"),
        (["user", "item"], {"time": "when"}, r"log:1: no column 'when' for time=. Found: 'user', 'item'"),
        (["Device", "item"], {}, r"no column looks like the account"),
        (["user", "b"], {"item": "user"}, r"log:1: the column 'user' would be both account and item. Name another"),
        (["x" * 500] * 1 + [f"c{n}" for n in range(30)], {}, r"'x{40}…', 'c0', .* and 19 more"),
    ],
)
def test_refusals(names: list[str], chosen: dict[str, str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        find_columns(names, chosen, "log:1")


def test_numbers_follow_first_appearance() -> None:
    coder = Coder()
    assert coder.codes(pl.Series(["b", "a", "b", None, "007", "7"])).tolist() == [0, 1, 0, -1, 2, 3]
    assert coder.ids() == ["b", "a", "007", "7"]


def test_known_ids_come_first() -> None:
    coder = Coder(["x", "y"])
    assert coder.codes(pl.Series(["z", "y"])).tolist() == [2, 1]
    assert coder.ids() == ["x", "y", "z"]


def test_numbers_last_although_nothing_holds_the_series() -> None:
    coder, by_hand = Coder(), {}
    for block in range(12):
        ids = [f"id {(block * 37 + number * number) % 100}" for number in range(50)]
        codes = coder.codes(pl.Series(ids)).tolist()
        gc.collect()
        assert codes == [by_hand.setdefault(one, len(by_hand)) for one in ids]
    assert coder.ids() == list(by_hand)


def test_a_coder_without_ids_is_empty() -> None:
    coder = Coder()
    gc.collect()
    assert coder.ids() == []
    assert coder.codes(pl.Series([], dtype=pl.String)).tolist() == []
    assert coder.codes(pl.Series([None], dtype=pl.String)).tolist() == [-1]


def test_coders_share_nothing() -> None:
    one, other = Coder(), Coder()
    one.codes(pl.Series(["a", "b"]))
    assert other.codes(pl.Series(["b"])).tolist() == [0]
    assert one.ids() == ["a", "b"]


def test_a_series_of_many_chunks_is_numbered_in_order() -> None:
    parts = [pl.Series([f"{(start * 7919 + step) % 10_007}" for step in range(2000)]) for start in range(20)]
    coder, by_hand = Coder(), {}
    codes = coder.codes(pl.concat(parts, rechunk=False)).tolist()
    assert codes == [by_hand.setdefault(one, len(by_hand)) for part in parts for one in part]


@settings(deadline=None, max_examples=50)
@given(blocks=st.lists(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1), max_size=5))
def test_any_ids(blocks: list[list[str]]) -> None:
    coder, by_hand = Coder(), {}
    for block in blocks:
        assert coder.codes(pl.Series(block)).tolist() == [by_hand.setdefault(one, len(by_hand)) for one in block]
    assert coder.ids() == list(by_hand)


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOON = 1_704_110_400_000_000  # 2024-01-01 12:00 UTC


def read(unit: str, *texts: str | None) -> list[int | None]:
    return TimeReader(unit).microseconds(pl.Series(texts, dtype=pl.String)).to_list()


@pytest.mark.parametrize(
    ("unit", "text"),
    [
        ("s", "1704110400"),
        ("s", " 1704110400.0 "),
        ("s", "1.7041104e9"),
        ("ms", "1704110400000"),
        ("us", "1704110400000000"),
        ("ns", "1704110400000000999"),
        ("iso", "2024-01-01T12:00:00Z"),
        ("iso", "2024-01-01 12:00:00"),
        ("iso", "2024-01-01 12:00:00 UTC"),
        ("iso", "2024-01-01T12:00"),
        ("iso", "2024-01-01T12:00:00.000"),
        ("iso", "2024-01-01T14:00:00+02:00"),
        ("iso", "2024-01-01T14:00+02:00"),
        ("iso", "2024-01-01 14:00:00.000+02"),
        ("iso", "2024-01-01 14:00 +02"),
        ("iso", "2024-01-01t12:00:00z"),
        ("iso", "2024-01-01 14:00:00.000000 +0200"),
        ("iso", "2024-01-01T05:30:00-0630"),
        ("iso", "2024/01/01 12:00:00"),
        ("iso", "2024/01/01T12:00"),
    ],
)
def test_one_moment_in_many_ways(unit: str, text: str) -> None:
    assert read(unit, text) == [NOON]
    assert time_reader("auto", pl.Series([text])).unit == unit


def test_a_day_begins_at_midnight() -> None:
    assert read("iso", "2024-01-01", "2024/01/01") == [NOON - 12 * 3_600_000_000] * 2


def test_what_is_no_time_is_null() -> None:
    words = ["", None, "soon", "nan", "inf", "-inf", "1_0", "0x1", "99999999999999999999", "1e300", "9214646401"]
    assert read("s", *words) == [None] * len(words)
    dates = ["", None, "soon", "2024-02-30", "2024-13-01", "1899-12-31", "2263-01-01", "999999999-01-01", "12:00", "1"]
    assert read("iso", *dates) == [None] * len(dates)


def test_the_years_allowed() -> None:
    assert read("us", str(EARLIEST), str(EARLIEST - 1), str(LATEST), str(LATEST + 1)) == [EARLIEST, None, LATEST, None]


def test_parts_of_a_second_are_rounded_to_microseconds() -> None:
    assert read("s", "0.0000014", "1.5", "-0.25", "7") == [1, 1_500_000, -250_000, 7_000_000]
    assert read("ms", "0.5", "-3") == [500, -3000]
    assert read("ns", "1999", "-1") == [1, -1]  # a part of a microsecond is cut off, downwards


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@settings(deadline=None, max_examples=30)
@given(moments=st.lists(st.integers(EARLIEST, LATEST), min_size=1))
def test_whole_numbers_are_exact(unit: str, moments: list[int]) -> None:
    per_unit = {"s": 1_000_000, "ms": 1000, "us": 1}
    if unit == "ns":
        assert read(unit, *(f"{moment * 1000}" for moment in moments)) == moments
    else:
        whole = [moment // per_unit[unit] * per_unit[unit] for moment in moments]
        inside = [moment if moment >= EARLIEST else None for moment in whole]
        assert read(unit, *(str(moment // per_unit[unit]) for moment in whole)) == inside


@settings(deadline=None, max_examples=30)
@given(
    moments=st.lists(st.datetimes(datetime(1900, 1, 1), datetime(2261, 12, 31)), min_size=1), hours=st.integers(-12, 14)
)
def test_iso_dates_are_exact(moments: list[datetime], hours: int) -> None:
    aware = [moment.replace(tzinfo=UTC) for moment in moments]
    expected = [(moment - EPOCH) // timedelta(microseconds=1) for moment in aware]
    assert read("iso", *(moment.isoformat() for moment in moments)) == expected
    assert read("iso", *(moment.isoformat() for moment in aware)) == expected
    shift = timedelta(hours=hours)
    elsewhere = [f"{(moment + shift).replace(tzinfo=None).isoformat()}{hours:+03d}:00" for moment in moments]
    assert read("iso", *elsewhere) == expected


def test_the_unit_is_inferred_from_the_magnitude() -> None:
    assert time_reader("auto", pl.Series(["0", "1704110400", "1704110401"])).unit == "s"
    assert time_reader("auto", pl.Series(["nan", "1704110400"])).unit == "s"
    assert time_reader("auto", pl.Series([], dtype=pl.String)).unit == "s"
    assert time_reader("auto", pl.Series(["2024-01-01", "2024-01-02", "5"])).unit == "iso"
    assert time_reader("ms", pl.Series(["1704110400"])).unit == "ms"


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(SettingError, match=r"^time_unit: unknown unit 'sec'.*Known: auto, iso, ms, ns, s, us"):
        check_unit("sec")


def test_the_time_format_is_described() -> None:
    assert TimeReader("ms").describe() == "times read as numbers, ms since 1970"
    assert "ISO" in TimeReader("iso").describe()

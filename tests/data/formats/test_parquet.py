from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightgc2n.data.formats import typed_tables
from lightgc2n.data.formats.rows import Tally
from lightgc2n.data.formats.typed_tables import ParquetReader
from lightgc2n.errors import DataError

NOON = 1_704_110_400_000_000  # 2024-01-01 12:00 UTC
IDS = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=8)


def read(folder: Path, table: dict[str, Any], tally: Tally | None = None, **chosen: Any) -> list[tuple[Any, ...]]:
    path = folder / "log.parquet"
    pl.DataFrame(table).write_parquet(path)
    reader = ParquetReader(path, tally or Tally(), chosen.pop("columns", {}), **chosen)
    return [row for frame in reader.frames() for row in frame.rows()]


@pytest.mark.parametrize(
    ("times", "unit"),
    [
        (pl.Series([NOON // 1_000_000]), "auto"),
        (pl.Series([NOON / 1e6]), "auto"),
        (pl.Series([str(NOON // 1000)]), "ms"),
        (pl.Series(["2024-01-01T12:00:00Z"]), "auto"),
        (pl.Series([datetime(2024, 1, 1, 12)]).cast(pl.Datetime("ns")), "auto"),
        (pl.Series([datetime(2024, 1, 1, 12)]).cast(pl.Datetime("ms")), "iso"),
        (pl.Series([datetime(2024, 1, 1, 12, tzinfo=UTC)]).dt.convert_time_zone("Asia/Tokyo"), "auto"),
    ],
)
def test_one_moment_in_many_types(tmp_path: Path, times: pl.Series, unit: str) -> None:
    assert read(tmp_path, {"user": ["u"], "item": ["i"], "ts": times}, unit=unit) == [("u", "i", NOON)]


def test_days(tmp_path: Path) -> None:
    assert read(tmp_path, {"user": ["u"], "item": ["i"], "date": [date(1970, 1, 2)]}) == [("u", "i", 86_400_000_000)]


def test_ids_of_other_types_become_text(tmp_path: Path) -> None:
    columns = {
        "user": pl.Series([7, 8], dtype=pl.UInt64),
        "item": pl.Series(["007", "x"], dtype=pl.Categorical),
        "domain": [True, False],
        "member": [None, ""],
    }
    assert read(tmp_path, columns) == [("7", "007", "true", None), ("8", "x", "false", None)]


def test_columns_can_be_named(tmp_path: Path) -> None:
    chosen = {"account": "c", "item": "a"}
    assert read(tmp_path, {"a": ["1"], "b": [[2]], "c": ["3"]}, columns=chosen) == [("3", "1")]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"user": ["u", None], "item": ["i", "i"]}, r"log\.parquet: row 2: column user: expected an id, found nothing"),
        ({"user": ["u", "v"], "item": ["i", "a\0"]}, r"row 2: column item: expected an id without control characters"),
        ({"user": ["u", "v"], "item": ["i", "j"], "ts": [5, None]}, r"row 2: column ts: expected a number of s .* ''"),
        ({"user": ["u", "v"], "item": ["i", "j"], "ts": [5.0, float("nan")]}, r"row 2: column ts: .*found 'NaN'"),
    ],
)
def test_bad_rows(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path, columns)
    assert len(read(tmp_path, columns, Tally(tmp_path))) == 1
    listed = (tmp_path / "rejected.tsv").read_text().split("\n")
    assert listed[1].startswith("log.parquet\t2\t")
    assert len(listed) == 3


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": ["u"], "item": ["i"]}, r"log\.parquet: no column looks like the account"),
        (
            {"user": [["u"]], "item": ["i"]},
            r"log\.parquet: column user: expected one value per row, found List\(String\)",
        ),
        ({"user": [b"\xff"], "item": ["i"]}, r"log\.parquet: cannot be read as Parquet"),
    ],
)
def test_bad_tables(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path, columns)


def test_a_broken_file(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    pl.DataFrame({"user": ["u"] * 100, "item": ["i"] * 100}).write_parquet(path)
    whole = path.read_bytes()
    for broken in (b"", b"PAR1", whole[: len(whole) // 2], b"x" * 100, whole[:-4] + b"PAR2"):
        path.write_bytes(broken)
        with pytest.raises(DataError, match=r"log\.parquet: cannot be read as Parquet.*Is the file complete"):
            list(ParquetReader(path, Tally(), {}).frames())


def test_a_panic_of_the_parser_is_an_error_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(*_: Any, **__: Any) -> None:
        raise pl.exceptions.PanicException("index out of bounds")

    monkeypatch.setattr(pl, "scan_parquet", panic)
    with pytest.raises(DataError, match=r"cannot be read as Parquet: index out of bounds"):
        list(ParquetReader(tmp_path / "log.parquet", Tally(), {}).frames())


def test_rows_are_counted_over_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed_tables, "ROWS_PER_BATCH", 7)
    users = [f"u{number}" for number in range(100)]
    assert [row[0] for row in read(tmp_path, {"user": users, "item": users})] == users
    with pytest.raises(DataError, match="row 93: column user"):
        read(tmp_path, {"user": [*users[:92], None, *users[93:]], "item": users})


@settings(deadline=None, max_examples=30)
@given(rows=st.lists(st.tuples(IDS, IDS, IDS, IDS), min_size=1, max_size=12))
def test_any_ids_come_back(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, ...]]) -> None:
    columns = dict(zip(("user", "item", "domain", "member"), zip(*rows, strict=True), strict=True))
    assert read(tmp_path_factory.mktemp("ids"), columns) == rows

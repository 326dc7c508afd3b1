from pathlib import Path

import polars as pl
import pytest

from lightgc2n.data.formats.blocks import LONGEST_RECORD, Record
from lightgc2n.data.formats.rows import LONGEST_ID, BadRowError, Tally, id_problem, record_text, shown
from lightgc2n.errors import DataError


def test_without_a_folder_the_first_bad_row_is_an_error() -> None:
    with pytest.raises(
        DataError,
        match=r"^logs/a\.csv:7: column item: no good\. Correct it, or import with skip_bad=True, which drops bad rows\.$",  # noqa: E501
    ):
        Tally().reject(Path("logs/a.csv"), [(7, "item", "no good", ""), (8, "", "worse", "")])
    with pytest.raises(DataError, match=r"^a\.parquet: row 7: no good\."):
        Tally().reject(Path("a.parquet"), [(7, "", "no good", "")], place="{path}: row {line}")


def test_with_a_folder_bad_rows_are_listed(tmp_path: Path) -> None:
    tally = Tally(tmp_path)
    tally.reject(Path("logs/a.csv"), [(7, "item", "no good", "x\ty\r" + "z" * 500)])
    tally.reject(Path("logs/a.csv"), [])
    tally.reject(Path("logs/a.csv"), [(9, "", "worse", "\udcff")])
    assert tally.rejected == 2
    assert (tmp_path / "rejected.tsv").read_text(encoding="utf-8").split("\n") == [
        "file\tline\tcolumn\treason\ttext",
        "a.csv\t7\titem\tno good\tx\\ty\\r" + "z" * 56 + "…",
        "a.csv\t9\t\tworse\t\\udcff",
        "",
    ]


def test_without_bad_rows_there_is_no_list(tmp_path: Path) -> None:
    tally = Tally(tmp_path)
    tally.reject(Path("a.csv"), [])
    assert tally.rejected == 0
    assert tally.notes() == []
    assert list(tmp_path.iterdir()) == []


def test_rows_read_and_rejected_are_the_rows_of_the_file(tmp_path: Path) -> None:
    tally = Tally(tmp_path)
    tally.rows, tally.read = 1000, 999
    with pytest.raises(
        DataError, match=r"^a\.csv: expected 1,000 rows, found 999 read, 0 filtered out and 0 rejected\."
    ):
        tally.check("a.csv")
    tally.reject(Path("a.csv"), [(9, "", "no good", "")])
    tally.check("a.csv")
    assert tally.notes() == ["1,000 rows: 999 read, 1 rejected (rejected.tsv lists them)"]
    tally.read, tally.filtered = 900, 99
    tally.check("a.csv")
    assert tally.notes() == ["1,000 rows: 900 read, 99 left out, 1 rejected (rejected.tsv lists them)"]


def test_any_text_fits_into_a_message() -> None:
    assert shown("plain é 日") == "plain é 日"
    assert shown("a\0b\x1b[31m\u2028") == "a\\x00b\\x1b[31m\\u2028"
    assert shown("abc", 2) == "ab…"


def test_text_of_a_record() -> None:
    assert record_text(Record(1, "é,1".encode())) == "é,1"
    with pytest.raises(BadRowError, match="expected UTF-8, found the byte 0xff at position 3"):
        record_text(Record(1, b"ab\xff"))
    with pytest.raises(BadRowError, match="found a NUL byte"):
        record_text(Record(1, b"ab\0"))
    with pytest.raises(BadRowError, match="at most 1,048,576 bytes"):
        record_text(Record(1, b"a" * (LONGEST_RECORD + 1)))


def test_what_an_id_may_be() -> None:
    good = ["a", " a ", "007", "é", "日本", "a b", '"', "\u2028", "x" * LONGEST_ID, "null", "NaN"]
    bad = ["", None, "a\tb", "a\nb", "a\rb", "a\0", "\x7f", "x" * (LONGEST_ID + 1), "é" * (LONGEST_ID // 2 + 1)]
    problems = pl.DataFrame({"id": good + bad}).select(id_problem(pl.col("id"))).to_series()
    assert problems.is_null().to_list() == [True] * len(good) + [False] * len(bad)

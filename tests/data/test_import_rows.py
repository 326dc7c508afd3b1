"""No row is lost in silence: rows read and rows rejected are the rows of the file, whatever quotes stand in it."""

import functools
import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import zstandard

from lightgc2n.data.dataset import load_dataset
from lightgc2n.data.formats import lines
from lightgc2n.data.formats.event_tables import TableReader
from lightgc2n.data.importing import ImportOptions, import_log
from lightgc2n.errors import DataError

ROWS = 12_000  # of 100 bytes: more than one record may have, so that an open quote cannot be followed to the end
STRAY = 1000


def log(titles: dict[int, str], separator: str = ",", end: str = "\n", rows: int = ROWS) -> bytes:
    """A log in which row n is that of account n, with a title for some rows."""
    names = ["user", "title", "filler", "item", "timestamp"]
    table = [[f"u{n}", titles.get(n, "plain"), "x" * 70, f"i{n % 7}", str(1704110400 + n)] for n in range(rows)]
    return "".join(separator.join(row) + end for row in [names, *table]).encode()


def imported(
    folder: Path, data: bytes, name: str = "log.csv", skip_bad: bool = True
) -> tuple[set[int], dict[str, Any]]:
    """The accounts that were imported, by number, and the manifest."""
    (folder / name).write_bytes(data)
    manifest = import_log(folder / name, folder / "out", ImportOptions(skip_bad=skip_bad))
    accounts = {int(account.removeprefix("u")) for account in load_dataset(folder / "out").accounts}
    assert len(accounts) == manifest["counts"]["events"]
    return accounts, manifest


def check_lost(folder: Path, data: bytes, lost: set[int], name: str = "log.csv", rows: int = ROWS) -> None:
    accounts, manifest = imported(folder, data, name)
    assert set(range(rows)) - accounts == lost
    assert (manifest["counts"]["rows"], manifest["counts"]["rejected_rows"]) == (rows, len(lost))
    listed = folder / "out" / "rejected.tsv"
    rejected = [line.split("\t")[1] for line in listed.read_text().splitlines()[1:]] if lost else []
    assert rejected == [str(number + 2) for number in sorted(lost)]
    said = f"{rows:,} rows: {rows - len(lost):,} read, {len(lost):,} rejected (rejected.tsv lists them)"
    assert (said in manifest["notes"]) == bool(lost)


# A quote within or at the end of a field without quotes is a character; elsewhere it makes its row bad.
GOOD_TITLES, BAD_TITLES = ['5" disk', 'disk 5"', '5"" disk', '"5"" disk"'], ['"5" disk"', '"5 disk', '"5" disk', '"""']


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("title", [*GOOD_TITLES, *BAD_TITLES])
def test_a_stray_quote_costs_at_most_one_row(tmp_path: Path, title: str, separator: str, end: str) -> None:
    lost = {STRAY} if title in BAD_TITLES else set()
    check_lost(tmp_path, log({STRAY: title}, separator, end), lost)


@pytest.mark.parametrize("title", BAD_TITLES)
def test_two_stray_quotes_cost_two_rows(tmp_path: Path, title: str) -> None:
    places = {STRAY, STRAY + 1, 2 * STRAY, ROWS - 1}
    check_lost(tmp_path, log(dict.fromkeys(places, title)), places)


def test_a_stray_quote_at_the_end_of_the_last_column(tmp_path: Path) -> None:
    data = log({}).replace(b",1704111400\n", b',"1704111400\n')
    check_lost(tmp_path, data, {STRAY})


@pytest.mark.parametrize("between", [0, 1, 50])
def test_an_opening_and_a_later_closing_quote_join_no_rows(tmp_path: Path, between: int) -> None:
    """The two make one well-formed field of all that stands between them, but every line in it is a row with a time."""
    check_lost(tmp_path, log({STRAY: '"5 disk', STRAY + 1 + between: 'disk 5"'}), {STRAY})


@pytest.mark.parametrize(("name", "pack"), [("log.csv.gz", gzip.compress), ("log.csv.zst", zstandard.compress)])
def test_a_stray_quote_in_a_packed_file(tmp_path: Path, name: str, pack: Callable[[bytes], bytes]) -> None:
    check_lost(tmp_path, pack(log({STRAY: '"5" disk"'})), {STRAY}, name)


def test_quotes_are_characters_in_a_tsv(tmp_path: Path) -> None:
    check_lost(tmp_path, log(dict.fromkeys(range(0, ROWS, 7), '"5 disk'), "\t"), set(), "log.tsv")


def test_a_stray_quote_in_json_lines(tmp_path: Path) -> None:
    names = ("user", "title", "ts")
    table = [json.dumps({"item": "i", **dict(zip(names, (f"u{n}", '5" disk\n', n), strict=True))}) for n in range(500)]
    table[100] = table[100].replace("5", '"5', 1)
    accounts, manifest = imported(tmp_path, "\n".join(table).encode(), "log.jsonl")
    assert set(range(500)) - accounts == {100}
    assert (manifest["counts"]["rows"], manifest["counts"]["rejected_rows"]) == (500, 1)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_breaks_between_quotes_belong_to_their_row(tmp_path: Path, end: str) -> None:
    """Also where a line of such a text looks like a row, but for its time."""
    story = f'"one{end}two, ""three""{end}{end}u9,title,filler,item,soon"'
    titles: dict[int, str] = dict.fromkeys(range(0, 3000, 10), story)
    accounts, manifest = imported(tmp_path, log(titles, end=end, rows=3000))
    assert accounts == set(range(3000))
    assert manifest["counts"]["rows"] == 3000
    assert "300 rows have line breaks inside quotes: 1,200 lines in all" in manifest["notes"]
    (tmp_path / "again").mkdir()
    accounts, manifest = imported(tmp_path / "again", log(titles | {5: '"5 disk', 8: 'disk 5"'}, end=end, rows=3000))
    assert set(range(3000)) - accounts == {5}
    assert manifest["counts"]["rows"] == 3000


def test_a_text_that_looks_like_rows_stays_one_row_where_there_are_no_times(tmp_path: Path) -> None:
    data = b'user,item,story\nu0,i0,"Great.\nI liked it, a lot, really"\nu1,i1,short\n'
    accounts, manifest = imported(tmp_path, data)
    assert accounts == {0, 1}
    assert manifest["counts"]["rows"] == 2


def test_rows_in_an_id_that_cannot_be_one_are_rows(tmp_path: Path) -> None:
    """An id has no line break, so that quotes around one are stray where each line is a row."""
    accounts, manifest = imported(tmp_path, b'user,item\nu0,"a\nu1,b\nu2,c"\nu3,d\n')
    assert accounts == {1, 2, 3}
    assert (manifest["counts"]["rows"], manifest["counts"]["rejected_rows"]) == (4, 1)


def test_without_skip_bad_a_stray_quote_stops_the_import_at_its_line(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_bytes(log({STRAY: '"5 disk'}))
    with pytest.raises(DataError, match=rf"log\.csv:{STRAY + 2}: expected fields separated by ','"):
        import_log(tmp_path / "log.csv", tmp_path / "out", ImportOptions())
    assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("log.csv", b"user,item\nu0,i\nu1,\nu2,i\n"),
        ("log.tsv", b"u0\ti\nu1\t\nu2\ti j\n"),
    ],
)
def test_a_reader_that_loses_a_row_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, data: bytes
) -> None:
    whole = {TableReader: TableReader._slow, lines: lines._slow}
    for place, slow in whole.items():
        monkeypatch.setattr(place, "_slow", lambda *given, slow=slow: slow(*given).head(1))
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=rf"{name}: expected 3 rows, found 1 read, 0 filtered out and 1 rejected"):
        import_log(tmp_path / name, tmp_path / "out", ImportOptions(skip_bad=True))
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_rows_of_parquet_and_of_sequences_are_counted(tmp_path: Path) -> None:
    pl.DataFrame({"user": ["a", "", "b"], "item": ["x", "y", None]}).write_parquet(tmp_path / "log.parquet")
    (tmp_path / "log.tsv").write_bytes(b"\na\tx y\n\n\tz\r\n\r\nb\tz")
    for name, rejected in (("log.parquet", 2), ("log.tsv", 1)):
        counts = import_log(tmp_path / name, tmp_path / f"out {name}", ImportOptions(skip_bad=True))["counts"]
        assert (counts["rows"], counts["rejected_rows"]) == (3, rejected)


@pytest.fixture
def rows_read_slowly(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many rows each slow reading took; there each row is a Python object of its own."""
    taken: list[int] = []

    def counted(whole: Callable[..., Any], place: int, *given: Any) -> Any:
        taken.append(given[place].rows)
        return whole(*given)

    slow_table = TableReader._slow
    monkeypatch.setattr(TableReader, "_slow", lambda *given: counted(slow_table, 1, *given))
    monkeypatch.setattr(lines, "_slow", functools.partial(counted, lines._slow, 1))
    return taken  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("name", "head", "row", "bad"),
    [
        ("log.csv", "user,item,timestamp\n", "u{n},item {n},{n}\n", "u{n},item {n},soon\n"),
        ("log.csv", "user,item,timestamp\n", "u{n},item {n},{n}\n", "u{n},\0,{n}\n"),
        ("log.csv", "user,item,timestamp\n", "u{n},item {n},{n}\n", 'u{n},"5" disk",{n}\n'),
        ("log.jsonl", "", '{{"user":"u{n}","item":"i","ts":{n}}}\n', '{{"user":"u{n}"\n'),
        ("log.tsv", "", "u{n}\titem{n} and more\n", "u{n}\n"),
    ],
)
def test_a_few_bad_rows_do_not_make_all_others_slow(
    tmp_path: Path, rows_read_slowly: list[int], name: str, head: str, row: str, bad: str
) -> None:
    wrong = (5, 60_000, 60_001, 99_999)
    text = head + "".join((bad if n in wrong else row).format(n=n) for n in range(100_000))
    (tmp_path / name).write_text(text)
    manifest = import_log(tmp_path / name, tmp_path / "out", ImportOptions(skip_bad=True))
    assert (manifest["counts"]["rows"], manifest["counts"]["rejected_rows"]) == (100_000, 4)
    assert len(rows_read_slowly) in (2, 3)
    assert sum(rows_read_slowly) < 50_000


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("log.csv", "user,item\nu0,i\n", "u1,j\n"),
        ("log.csv", "", "user,item\nu0,i\n"),
        ("log.tsv", "u0\ti j\n", "u1\tj"),
        ("log.jsonl", '{"user":"u0","item":"i"}\n', '{"user":"u1","item":"j"}'),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_millions_of_empty_lines(
    tmp_path: Path, rows_read_slowly: list[int], name: str, before: str, after: str, end: str
) -> None:
    (tmp_path / name).write_text(before + end * 2_000_000 + after)
    manifest = import_log(tmp_path / name, tmp_path / "out", ImportOptions())
    assert manifest["counts"]["rows"] == len(load_dataset(tmp_path / "out").accounts) == (2 if before else 1)
    assert rows_read_slowly == []


def test_very_many_columns(tmp_path: Path) -> None:
    names = [f"{n:x}" for n in range(150_000)]  # as many as fit into the longest row
    rows: Sequence[str] = [f"u{n},i{n}," + "," * (len(names) - 1) for n in range(2)]
    text = "\n".join([",".join(["user", "item", *names]), *rows])
    accounts, manifest = imported(tmp_path, text.encode())
    assert accounts == {0, 1}
    assert any("'b' and 149,988 more" in note for note in manifest["notes"])


def test_short_rows_under_very_many_columns(tmp_path: Path) -> None:
    """Every missing field would take memory: 40,000 rows of 100,000 columns."""
    text = ",".join(["user", "item", *(f"c{n}" for n in range(100_000))]) + "\n"
    accounts, _ = imported(tmp_path, (text + "".join(f"u{n},i\n" for n in range(40_000))).encode())
    assert len(accounts) == 40_000


def test_very_many_json_keys(tmp_path: Path) -> None:
    rows = [{"user": f"u{n}", "item": "i"} | {f"k{n * 60 + k}": k for k in range(60)} for n in range(1000)]
    accounts, manifest = imported(tmp_path, "\n".join(map(json.dumps, rows)).encode(), "log.jsonl")
    assert len(accounts) == 1000
    assert any("'k11' and 59,988 more" in note for note in manifest["notes"])

import csv
import functools
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_records import slow_rows

from lightgc2n.data.formats import event_tables
from lightgc2n.data.formats.blocks import read_blocks
from lightgc2n.data.formats.event_tables import TableReader
from lightgc2n.data.formats.file_formats import TABLE_FORMATS, Separated
from lightgc2n.data.formats.rows import Tally
from lightgc2n.errors import DataError

Rows = list[tuple[Any, ...]]
IDS = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=8)
HEADER = b"user,item,timestamp\n"


def read(path: Path, form: str = "csv", tally: Tally | None = None, **chosen: Any) -> Rows:
    reader = TableReader(path, TABLE_FORMATS[form], tally or Tally(), chosen.pop("columns", {}), **chosen)
    return [row for frame in reader.frames() for row in frame.rows()]


def read_bytes(folder: Path, data: bytes, form: str = "csv", **chosen: Any) -> Rows:
    path = folder / "log"
    path.write_bytes(data)
    return read(path, form, **chosen)


def read_leniently(folder: Path, data: bytes, form: str) -> tuple[Rows, str]:
    """The good rows and the list of bad ones, or the error that nothing could be read."""
    listed = folder / "rejected.tsv"
    listed.unlink(missing_ok=True)
    try:
        rows = read_bytes(folder, data, form, tally=Tally(folder))
    except DataError as problem:
        return [], str(problem)
    return rows, listed.read_text(encoding="utf-8") if listed.exists() else ""


@contextmanager
def only_the_slow_way() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableReader, "_fast", lambda *_: None)
        yield


@contextmanager
def only_the_fast_way() -> Iterator[None]:
    def refuse(*_: Any) -> None:
        raise AssertionError("the slow way was taken")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableReader, "_slow", refuse)
        yield


@contextmanager
def blocks_of(size: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_tables, "read_blocks", functools.partial(read_blocks, block_bytes=size))
        yield


SAME = {
    "csv": b"user,item,timestamp,domain,member\nu1,007,10,v,ann\n u 2 ,7 ,20,l,\n",
    "tsv": b"user\titem\ttimestamp\tdomain\tmember\nu1\t007\t10\tv\tann\n u 2 \t7 \t20\tl\t\n",
    "recbole": b"user_id:token\titem_id:token\ttimestamp:float\tdomain:token\tmember:token\n"
    b"u1\t007\t10\tv\tann\n u 2 \t7 \t20\tl\t\n",
    "jsonl": b'{"user":"u1","item":"007","timestamp":10,"domain":"v","member":"ann"}\n'
    b'{"member":null,"timestamp":"20","item":"7 ","domain":"l","user":" u 2 "}\n',
}


@pytest.mark.parametrize("form", SAME)
def test_the_same_events_in_each_format(tmp_path: Path, form: str) -> None:
    expected = [("u1", "007", 10_000_000, "v", "ann"), (" u 2 ", "7 ", 20_000_000, "l", None)]
    for data in (
        SAME[form],
        SAME[form].replace(b"\n", b"\r\n"),
        SAME[form].rstrip(b"\n"),
        b"\xef\xbb\xbf" + SAME[form],
    ):
        with only_the_fast_way():
            assert read_bytes(tmp_path, data, form) == expected
        with only_the_slow_way():
            assert read_bytes(tmp_path, data, form) == expected


@pytest.mark.parametrize("form", SAME)
def test_empty_lines_are_no_rows(tmp_path: Path, form: str) -> None:
    padded = b"\n\r\n" + SAME[form].replace(b"\n", b"\n\n\r\n") + b"\n\n"
    for size in (1, 5, 64, 1000):
        with blocks_of(size):
            assert read_bytes(tmp_path, padded, form) == read_bytes(tmp_path, SAME[form], form)


def test_movietweetings(tmp_path: Path) -> None:
    with only_the_fast_way():
        rows = read_bytes(tmp_path, b"1::0120735::9::1362062307\n1::0068646::10::1362062624\n", "movietweetings")
    assert rows == [("1", "0120735", 1362062307000000), ("1", "0068646", 1362062624000000)]


def test_csv_quotes(tmp_path: Path) -> None:
    data = HEADER + b'"a,b","say ""hi""",1\n"u","many\r\nlines",2\n'
    with pytest.raises(DataError, match=r"log:3: column item: expected an id without control characters"):
        read_bytes(tmp_path, data)
    assert read_bytes(tmp_path, data.replace(b"many\r\nlines", b"one line")) == [
        ("a,b", 'say "hi"', 1_000_000),
        ("u", "one line", 2_000_000),
    ]


def test_a_quoted_line_break_in_an_unused_column(tmp_path: Path) -> None:
    data = b'user,comment,item\nu1,"one\ntwo, ""three""\r\n\n",i1\nu2,none,i2\n'
    expected = [("u1", "i1"), ("u2", "i2")]
    for size in (*range(1, 30), 1000):
        with blocks_of(size):
            assert read_bytes(tmp_path, data) == expected
    with pytest.raises(DataError, match=r"log:6: column item"):
        read_bytes(tmp_path, data.replace(b"i2", b""))


def test_a_tsv_has_no_quotes(tmp_path: Path) -> None:
    data = b'user\titem\n"u\ti"1\n"u"\t"i"\n'
    for way in (only_the_fast_way, only_the_slow_way):
        with way():
            assert read_bytes(tmp_path, data, "tsv") == [('"u', 'i"1'), ('"u"', '"i"')]


def test_a_stray_quote_loses_no_row_in_silence(tmp_path: Path) -> None:
    data = HEADER + b'u1,5" disk,1\nu2,i2,2\nu3,3" disk,3\nu4,i4,4\n'
    rows, listed = read_leniently(tmp_path, data, "csv")
    names = [("u1", '5" disk'), ("u2", "i2"), ("u3", '3" disk'), ("u4", "i4")]
    assert rows == [(*name, (place + 1) * 1_000_000) for place, name in enumerate(names)]
    assert listed == ""


def test_a_quote_that_is_never_closed_costs_its_own_row_alone(tmp_path: Path) -> None:
    data = HEADER + b'u1,i1,1\n"u2,i2,2\nu3,i3,3\n"u4",i4,4\nu5,i5,5\n'
    rows, listed = read_leniently(tmp_path, data, "csv")
    assert [row[0] for row in rows] == ["u1", "u3", "u4", "u5"]
    assert listed.count("\n") == 2  # the header and one row
    assert "log\t3\t\texpected" in listed


def test_quotes_within_a_field_stay(tmp_path: Path) -> None:
    for way in (pytest.MonkeyPatch.context, only_the_slow_way):
        with way():
            assert read_bytes(tmp_path, HEADER + b'u1,the "big" one,1\n') == [("u1", 'the "big" one', 1_000_000)]


def test_json_numbers_stay_as_written(tmp_path: Path) -> None:
    written = ["1", "1.10", "1e3", "-0", "12345678901234567890123", "true", "0.5E-3", "-7"]
    data = "".join(f'{{"user": {one}, "item" : {one}, "timestamp": 1.5}}\n' for one in written).encode()
    assert read_bytes(tmp_path, data, "jsonl") == [(one, one, 1_500_000) for one in written]
    for one in written:
        data = f'{{"user":"u","item":{one}}}\n'.encode()
        assert read_bytes(tmp_path, data, "jsonl") == [("u", one)]


def test_json_rows_may_lack_names_and_have_others(tmp_path: Path) -> None:
    data = b'{"user":"a","item":"b","tags":["x"]}\n{"item":"d","user":"c","member":"m","more":{"y":1}}\n'
    assert read_bytes(tmp_path, data, "jsonl") == [("a", "b", None), ("c", "d", "m")]
    with only_the_slow_way():
        assert read_bytes(tmp_path, data, "jsonl") == [("a", "b", None), ("c", "d", "m")]


def test_a_json_name_that_is_no_text_names_no_column(tmp_path: Path) -> None:
    data = b'{"user":"a","\\ud800item":"b"}\n{"user":"c","item":"d"}\n'
    rows, listed = read_leniently(tmp_path, data, "jsonl")
    assert rows == [("c", "d")]
    assert "log\t1\titem\texpected an id, found nothing" in listed


def test_a_bad_first_json_row_is_a_bad_row(tmp_path: Path) -> None:
    data = b'{"user":\n{"user":"c","item":"d"}\n'
    rows, listed = read_leniently(tmp_path, data, "jsonl")
    assert rows == [("c", "d")]
    assert "log\t1\t\texpected a JSON object" in listed


def test_columns_can_be_named(tmp_path: Path) -> None:
    data = b"a,b,c\n1,2,3\n"
    assert read_bytes(tmp_path, data, columns={"account": "c", "item": "a"}) == [("3", "1")]
    assert read_bytes(tmp_path, data, header=("item", "x", "user")) == [("c", "a"), ("3", "1")]


def test_many_blocks_give_what_one_gives(tmp_path: Path) -> None:
    for form, data in SAME.items():
        whole = read_bytes(tmp_path, data, form)
        for size in (1, 2, 3, 10, 50):
            with blocks_of(size):
                assert read_bytes(tmp_path, data, form) == whole


BAD = [
    # form, bytes, line, column, part of the reason, the text that is listed
    ("csv", HEADER + b"u1,i1,1\nu2,,2\n", 3, "item", "expected an id, found nothing", "u2,,2"),
    ("csv", HEADER + b"u1,i1,1\nu2\n", 3, "item", "expected an id, found nothing", "u2"),
    ("csv", HEADER + b",i1,1\n", 2, "user", "expected an id, found nothing", ",i1,1"),
    ("csv", HEADER + b"u1,i1,1\nu2,i2\n", 3, "timestamp", "expected a number of s since 1970", "u2,i2"),
    ("csv", HEADER + b"u1,i1,1\n\nu2,i2,soon\n", 4, "timestamp", "found 'soon'", "u2,i2,soon"),
    ("csv", HEADER + b"u1,i1,1\nu2,i2,3,4\n", 3, "", "expected 3 fields, found 4", "u2,i2,3,4"),
    ("csv", b"user,title,item,x\nu,t,i,x\nu2,one, two,i,x\n", 3, "", "expected 4 fields, found 5", "u2,one, two,i,x"),
    (
        "csv",
        HEADER + b"u1,i1,1\nu2,i\x002,3\n",
        3,
        "",
        "expected UTF-8, found a NUL byte, as in UTF-16 or a binary file",
        "u2,i\\x002,3",
    ),
    (
        "csv",
        HEADER + b"u1,i1,1\nu2,i\xff,3\n",
        3,
        "",
        "expected UTF-8, found the byte 0xff at position 5",
        "u2,i\N{REPLACEMENT CHARACTER},3",
    ),
    ("csv", HEADER + b"u1,i\x1b1,1\n", 2, "item", "without control characters", "u1,i\\x1b1,1"),
    ("csv", HEADER + b"u1,i\rx,1\n", 2, "", "a line break outside of quotes", "u1,i\\rx,1"),
    ("csv", HEADER + b'u1,"i"x,1\n', 2, "", "expected fields separated by ','", 'u1,"i"x,1'),
    ("csv", HEADER + b'u1,i1,1\n"u2,i2,2\n', 3, "", "unexpected end of data", '"u2,i2,2'),
    ("csv", HEADER + b"u1," + b"i" * 1025 + b",1\n", 2, "item", "at most 1,024 bytes", "u1," + "i" * 57 + "…"),
    ("csv", HEADER + b"u1," + b"i" * 2**20 + b",1\n", 2, "", "at most 1,048,576 bytes", "u1," + "i" * 57 + "…"),
    ("csv", HEADER + b"u1,i1,2024-01-01\nu2,i2,2024-01-32\n", 3, "timestamp", "an ISO date", "u2,i2,2024-01-32"),
    ("tsv", b"user\titem\nu1\ti1\nu2\t\n", 3, "item", "expected an id, found nothing", "u2\\t"),
    ("tsv", b"user\titem\nu1\ti1\n \t\n", 3, "item", "expected an id, found nothing", " \\t"),
    ("tsv", b"user\titem\nu1\ti1\textra\n", 2, "", "expected 2 fields, found 3", "u1\\ti1\\textra"),
    ("recbole", b"user_id:token\titem_id:token\nu1\n", 2, "item_id", "expected an id, found nothing", "u1"),
    ("movietweetings", b"1::2::3::4\n1::2::3\n", 2, "timestamp", "found ''", "1::2::3"),
    ("movietweetings", b"1::2::3::4::5\n", 1, "", "expected 4 fields, found 5", "1::2::3::4::5"),
    ("jsonl", b'{"user":1,"item":2}\n{"user":1}\n', 2, "item", "found nothing", '{"user":1}'),
    ("jsonl", b'{"user":1,"item":2}\n[1]\n', 2, "", "expected a JSON object, found list", "[1]"),
    ("jsonl", b'{"user":1,"item":2}\n{"user":1,\n', 2, "", "expected a JSON object", '{"user":1,'),
    ("jsonl", b'{"user":1,"item":2}\n{"user":1,"item":[2]}\n', 2, "item", "found list", '{"user":1,"item":[2]}'),
    ("jsonl", b'{"user":1,"item":"\\ud800"}\n', 1, "item", "half of a surrogate pair", '{"user":1,"item":"\\ud800"}'),
    ("jsonl", b'{"user":1,"item":"a\\u0000"}\n', 1, "item", "control characters", '{"user":1,"item":"a\\u0000"}'),
    ("jsonl", b'{"user":1,"item":' + b"[" * 5000 + b"}\n", 1, "", "expected a JSON object", ""),
]


@pytest.mark.parametrize(("form", "data", "line", "column", "reason", "text"), BAD)
def test_bad_rows(tmp_path: Path, form: str, data: bytes, line: int, column: str, reason: str, text: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(data)
    with pytest.raises(DataError) as caught:
        read(path, form)
    message = str(caught.value)
    assert message.startswith(f"{path}:{line}: ")
    assert reason in message
    assert not column or f": column {column}: " in message

    good, listed = read_leniently(tmp_path, data, form)
    lines = listed.split("\n")
    if lines[0].startswith("file\t"):
        file, at, where, why, what = lines[1].split("\t")
        assert (file, at, where) == ("log", str(line), column)
        assert reason in why
        assert what.startswith(text)
        assert len(lines) == 3  # and nothing else was rejected
    else:  # no row names any column
        assert not good


@pytest.mark.parametrize(
    ("form", "data", "message"),
    [
        ("csv", b"user,item,user\n1,2,3\n", r"log:1: the header names the column 'user' more than once"),
        ("csv", b"user;item\n1;2\n", r"log:1: no column looks like the account or the item. Found: 'user;item'"),
        ("csv", b"\n\nuser;item\n1;2\n", r"log:3: no column looks like the account"),
        ("csv", b"us\xffer,item\n1,2\n", r"log:1: expected UTF-8, found the byte 0xff at position 3"),
        (
            "csv",
            "user,item\n1,2\n".encode("utf-16"),
            r"log:1: expected UTF-8, found a NUL byte, as in UTF-16 or a binary file",
        ),
        ("csv", b'user,"item\n1,2\n', r"log:1: no header: expected fields separated by ','"),
        (
            "csv",
            b'user,item,"x\n1,2,3\n4,5,6"\n7,8,9\n',
            r"log:1: the header has an unbalanced quote.*found 'x\\n1,2,3\\n4,5,6'",
        ),
        ("csv", b"x" * 2**21, r"log:1: no header: expected a row of at most 1,048,576 bytes"),
        ("jsonl", b"nonsense\n", r"log:1: expected a JSON object"),
        ("jsonl", b"{}\n", r"log:1: no column looks like the account"),
    ],
)
def test_bad_headers(tmp_path: Path, form: str, data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_bytes(tmp_path, data, form)


def test_a_column_name_with_a_line_break(tmp_path: Path) -> None:
    assert read_bytes(tmp_path, b'user,"bought\non",item\nu,1,i\n') == [("u", "i")]


def test_an_empty_table_has_no_rows(tmp_path: Path) -> None:
    for data in (b"", b"\n\n", b"\xef\xbb\xbf"):
        assert read_bytes(tmp_path, data) == []
    assert read_bytes(tmp_path, b"user,item") == []


def test_a_long_unused_field_is_no_fault(tmp_path: Path) -> None:
    data = b"user,item,story\nu,i," + b"s" * 500_000 + b"\nu,,short\n"
    rows, listed = read_leniently(tmp_path, data, "csv")
    assert rows == [("u", "i")]
    assert listed.count("\n") == 2


def as_csv(rows: Rows) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([("user", "item", "domain", "member"), *rows])
    return text.getvalue().encode()


def as_tsv(rows: Rows) -> bytes:
    return "".join("\t".join(row) + "\n" for row in [("user", "item", "domain", "member"), *rows]).encode()


def as_json(rows: Rows) -> bytes:
    names = ("user", "item", "domain", "member")
    return "".join(
        json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=len(row[0]) % 2 == 0) + "\n" for row in rows
    ).encode()


@pytest.mark.parametrize(("form", "write"), [("csv", as_csv), ("tsv", as_tsv), ("jsonl", as_json)])
@settings(deadline=None, max_examples=40)
@given(rows=st.lists(st.tuples(IDS, IDS, IDS, IDS), min_size=1, max_size=12), size=st.integers(1, 200))
def test_any_ids_come_back(
    tmp_path_factory: pytest.TempPathFactory, form: str, write: Any, rows: Rows, size: int
) -> None:
    folder, data = tmp_path_factory.mktemp("ids"), write(rows)
    assert read_bytes(folder, data, form) == rows
    with only_the_slow_way():
        assert read_bytes(folder, data, form) == rows
    with blocks_of(size):
        assert read_bytes(folder, data, form) == rows


def ways_agree(folder: Path, data: bytes, form: str) -> None:
    fast = read_leniently(folder, data, form)
    with only_the_slow_way():
        slow = read_leniently(folder, data, form)
    assert fast == slow, data


PIECES = ["u", "i", ",", ",", '"', '""', "\n", "\r\n", "\r", " ", "1", "\t", "::", ":", "é", "\x1f"]


@pytest.mark.parametrize("form", ["csv", "tsv", "movietweetings"])
@settings(deadline=None, max_examples=150)
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=25))
def test_the_fast_and_the_slow_way_agree(
    tmp_path_factory: pytest.TempPathFactory, form: str, pieces: list[str]
) -> None:
    separator = {"csv": ",", "tsv": "\t", "movietweetings": "::"}[form]
    rows = f"user,item,x\nu,i,{''.join(pieces)}\nv,j,1\n"
    ways_agree(tmp_path_factory.mktemp("ways"), rows.replace(",", separator).encode(), form)


FIELDS = [
    "u",
    "i",
    "7",
    "",
    '5"',
    '"5',
    '"q"',
    '"a,b"',
    '"a\nb"',
    '"a""b"',
    '"x,1,2\ny,3,4"',
    '"',
    '""',
    '"""',
    "\ufeff",
    "\r",
]


@pytest.mark.parametrize("separator", [",", ";"])
@pytest.mark.parametrize("names", [("user", "item"), ("user", "title", "item"), ("title", "user", "item", "ts")])
@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(st.lists(st.sampled_from(FIELDS), min_size=2, max_size=5), max_size=8),
    end=st.sampled_from(["\n", "\r\n", "\n\n"]),
    size=st.integers(1, 60),
    last=st.booleans(),
)
def test_rows_read_and_rejected_are_the_rows_of_the_file(
    tmp_path_factory: pytest.TempPathFactory,
    names: tuple[str, ...],
    separator: str,
    rows: list[list[str]],
    end: str,
    size: int,
    last: bool,
) -> None:
    """Against a loop over bytes that knows neither blocks nor polars nor the csv module."""
    folder = tmp_path_factory.mktemp("rows")
    text = end.join(separator.join(row) for row in [list(names), ["t", "u", "1", "7"][-len(names) :], *rows])
    data = (text + (end if last else "")).encode()
    (folder / "log").write_bytes(data)
    places = {name: names.index(name) for name in names}
    count, good = slow_rows(data, separator.encode(), places["user"], places["item"], places.get("ts"))
    expected = [tuple(record.fields[places[name]].decode() for name in ("user", "item")) for record in good]
    for block_bytes in (size, 2**20):
        tally = Tally(folder)
        with blocks_of(block_bytes):
            reader = TableReader(folder / "log", Separated(separator, quoted=True), tally, {}, "s")
            actual = [row[:2] for frame in reader.frames() for row in frame.rows()]
        assert (tally.rows, len(actual), tally.rejected) == (count, len(good), count - len(good)), data
        assert actual == expected


VALUES = [
    "1",
    "1.0",
    "1e3",
    "-0",
    "01",
    '"x"',
    '""',
    "null",
    "true",
    "[1]",
    "{}",
    '"[1]"',
    '"\\ud800"',
    '"é\\u00e9"',
    "NaN",
]
VALUES += ['"a\tb"', '"\\n"', "123456789012345678901234567890", '"\\/"', "1 2", "tru", "'x'", '"\\x"']


@settings(deadline=None, max_examples=150)
@given(
    rows=st.lists(
        st.tuples(
            st.lists(st.tuples(st.sampled_from(["user", "item", "item", "x"]), st.sampled_from(VALUES)), max_size=4),
            st.sampled_from(["", " ", ",", "x", "{}", "\t", "//"]),
            st.sampled_from(["", " ", "\ufeff"]),
        ),
        max_size=3,
    )
)
def test_the_fast_and_the_slow_way_agree_on_json(tmp_path_factory: pytest.TempPathFactory, rows: Any) -> None:
    data = '{"user":"u","item":"i","x":1}\n'
    for pairs, after, before in rows:
        data += before + "{" + ",".join(f'"{name}":{value}' for name, value in pairs) + "}" + after + "\n"
    ways_agree(tmp_path_factory.mktemp("ways"), data.encode(), "jsonl")


def test_a_panic_of_the_parser_leads_to_the_slow_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(*_: Any, **__: Any) -> None:
        raise pl.exceptions.PanicException("index out of bounds")

    monkeypatch.setattr(pl, "read_csv", panic)
    assert read_bytes(tmp_path, HEADER + b"u,i,1\n") == [("u", "i", 1_000_000)]

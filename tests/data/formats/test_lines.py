import functools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightgc2n.data.formats import lines
from lightgc2n.data.formats.blocks import read_blocks
from lightgc2n.data.formats.lines import LOGS, SESSIONS, WINDOWS, LineFormat, read_dictionary, read_lines
from lightgc2n.data.formats.rows import Tally
from lightgc2n.errors import DataError

Lines = list[tuple[str, list[str]]]


def read(path: Path, form: LineFormat, tally: Tally | None = None) -> Lines:
    return [row for frame in read_lines(path, form, tally or Tally()) for row in frame.rows()]


def read_slowly(path: Path, form: LineFormat, tally: Tally | None = None) -> Lines:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "_fast", lambda *_: None)
        return read(path, form, tally)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("block_bytes", [1, 3, 10, 1000])
@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        (LOGS, "a 1\t007 7 é\n\nb\tx", [("a 1", ["007", "7", "é"]), ("b", ["x"])]),
        (WINDOWS, "a\t1\t2\t\nb\tx y\t3\n", [("a", ["1", "2"]), ("b", ["x y", "3"])]),
        (SESSIONS, "a\tE1\tV2\tE3\tV4\n", [("a", ["E1", "V2", "E3", "V4"])]),
    ],
)
def test_lines(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: LineFormat,
    text: str,
    expected: Lines,
    block_bytes: int,
    end: str,
) -> None:
    monkeypatch.setattr(lines, "read_blocks", functools.partial(read_blocks, block_bytes=block_bytes))
    path = tmp_path / "log"
    path.write_bytes(text.replace("\n", end).encode())
    assert read(path, form) == expected
    assert read_slowly(path, form) == expected


@pytest.mark.parametrize(
    ("form", "line", "column", "reason"),
    [
        (LOGS, b"b", "items", "expected an account, a tab and at least one item"),
        (LOGS, b"\tx y", "account", "expected an id, found nothing"),
        (LOGS, b"b\tx  y", "items", "expected an id, found nothing"),
        (LOGS, b"b\tx y ", "items", "expected an id, found nothing"),
        (LOGS, b"b\tx\ty", "items", "without control characters"),
        (LOGS, b"b\tx\r\r", "items", "without control characters"),
        (LOGS, b"b\tx\0", "", "expected UTF-8, found a NUL byte, as in UTF-16 or a binary file"),
        (LOGS, b"b\tx\xff", "", "expected UTF-8, found the byte 0xff at position 4"),
        (LOGS, b"b\t" + b"x" * 2**20, "", "at most 1,048,576 bytes"),
        (LOGS, b"b\t" + b"x" * 1025, "items", "at most 1,024 bytes"),
        (WINDOWS, b"b\tx", "items", "at least one item and the target"),
        (WINDOWS, b"b\tx\t\ty", "items", "expected an id, found nothing"),
        (SESSIONS, b"b\tE1\tV1", "items", "at least one item and two targets"),
        (SESSIONS, b"b\tE1\tV1\tE1", "items", "expected items of two domains"),
        (SESSIONS, b"b\tX1\tE1\tV1", "items", "expected items of two domains"),
        (SESSIONS, b"b\tE1\tE1\tE1", "items", "expected items of two domains"),
    ],
)
def test_bad_lines(tmp_path: Path, form: LineFormat, line: bytes, column: str, reason: str) -> None:
    good = b"a\t" + form.separator.encode().join([b"E1", b"E2", b"V1"])
    path = tmp_path / "log"
    path.write_bytes(good + b"\n" + line + b"\n" + good + b"\n")
    with pytest.raises(DataError) as caught:
        read(path, form)
    assert str(caught.value).startswith(f"{path}:2: {f'column {column}: ' if column else ''}expected ")
    assert reason in str(caught.value)
    assert read(path, form, Tally(tmp_path)) == [("a", ["E1", "E2", "V1"])] * 2
    listed = (tmp_path / "rejected.tsv").read_text(encoding="utf-8").split("\n")
    assert listed[1].startswith(f"log\t2\t{column}\t")
    assert reason in listed[1]
    assert len(listed) == 3


ACCOUNTS = st.text(st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="\ufeff"), min_size=1, max_size=6)
ITEMS = st.text(st.characters(exclude_categories=["Cc", "Cs"], exclude_characters=" "), min_size=1, max_size=6)


@pytest.mark.parametrize("form", [LOGS, WINDOWS])
@settings(deadline=None, max_examples=40)
@given(logs=st.lists(st.tuples(ACCOUNTS, st.lists(ITEMS, min_size=2, max_size=5)), min_size=1, max_size=6))
def test_any_ids_come_back(tmp_path_factory: pytest.TempPathFactory, form: LineFormat, logs: Lines) -> None:
    path = tmp_path_factory.mktemp("lines") / "log"
    path.write_bytes("".join(f"{account}\t{form.separator.join(items)}\n" for account, items in logs).encode())
    assert read(path, form) == logs
    assert read_slowly(path, form) == logs


@settings(deadline=None, max_examples=100)
@given(
    pieces=st.lists(
        st.sampled_from(["E", "V", "1", "\t", "\t", " ", "\n", "\r", "\r\n", "\ufeff", "\x1f"]), max_size=25
    )
)
def test_the_fast_and_the_slow_way_agree(tmp_path_factory: pytest.TempPathFactory, pieces: list[str]) -> None:
    folder = tmp_path_factory.mktemp("ways")
    (folder / "log").write_bytes("".join(pieces).encode())
    for form in (LOGS, WINDOWS, SESSIONS):
        results: list[Any] = []
        for way in (read, read_slowly):
            tally = Tally(folder)
            results.append((way(folder / "log", form, tally), tally.rejected))
        assert results[0] == results[1]


def test_a_dictionary(tmp_path: Path) -> None:
    path = tmp_path / "dict.txt"
    path.write_bytes(b"1\tb c\r\n0\t007\t5858\n\n2\t\xc3\xa9")
    assert read_dictionary(path) == ["007", "b c", "é"]
    path.write_bytes(b"")
    assert read_dictionary(path) == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"0\ta\n1\n", r"dict\.txt:2: expected a new index, a tab and an id, found '1'"),
        (b"0\ta\nx\tb\n", r"dict\.txt:2: expected a new index"),
        (b"0\ta\n0\tb\n", r"dict\.txt:2: expected a new index"),
        (b"0\t\n", r"dict\.txt:1: expected a new index"),
        (b"9" * 5000 + b"\ta\n", r"dict\.txt:1: expected a new index"),
        ("٣\ta\n".encode(), r"dict\.txt:1: expected a new index"),
        (b"0\ta\x1bb\n", r"dict\.txt:1: expected a new index"),
        (b"0\t\xff\n", r"dict\.txt:1: expected UTF-8"),
        (b"0\ta\n2\tb\n", r"dict\.txt: expected the indices 0, 1, 2\.\.\."),
        (b"0\ta\n1\ta\n", r"dict\.txt: .*each id once"),
    ],
)
def test_a_bad_dictionary(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "dict.txt").write_bytes(data)
    with pytest.raises(DataError, match=message):
        read_dictionary(tmp_path / "dict.txt")

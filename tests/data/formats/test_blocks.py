import gzip
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_records import slow_records

from lightgc2n.data.formats import blocks
from lightgc2n.data.formats.blocks import LONGEST_RECORD, Block, Record, plain_suffix, read_blocks, record_ends
from lightgc2n.errors import DataError


def records(path: Path, separator: str = "", block_bytes: int = 8 * 2**20) -> list[Record]:
    return [record for block in read_blocks(path, separator, block_bytes) for record in block.records()]


def rows_by_hand(data: bytes, separator: str) -> list[Record]:
    return [Record(one.line, one.data) for one in slow_records(data, separator.encode()) if one.data]


TRICKY = b'a,b\r\n"x\ny",1\n\n\r\nplain,2\n"q""q\n\n",3\n5" disk,4\n"5" disk,5\n"a\nb,6\n"c",7\r\nlast,"8\n9'


@pytest.mark.parametrize("separator", ["", ",", ";"])
@pytest.mark.parametrize("block_bytes", range(1, len(TRICKY) + 2))
def test_any_block_size_gives_the_same_records(tmp_path: Path, block_bytes: int, separator: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(TRICKY)
    assert records(path, separator, block_bytes) == rows_by_hand(TRICKY, separator)


@settings(deadline=None, max_examples=150)
@given(data=st.lists(st.sampled_from([b"a", b"\n", b"\r", b'"', b'"', b",", "é".encode()]), max_size=40).map(b"".join))
def test_records_of_any_bytes(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("blocks") / "log"
    path.write_bytes(data)
    for separator in (",", ""):
        for block_bytes in (1, 3, 7, 1000):
            assert records(path, separator, block_bytes) == rows_by_hand(data, separator)
            for block in read_blocks(path, separator, block_bytes):
                parts = [list(piece.records()) for piece in block.pieces(block_bytes)]
                assert [record for part in parts for record in part] == list(block.records())
                assert block.rows == len(list(block.records()))


def test_empty_lines_are_no_records(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\n" * 70_000 + b"a\r\n\r\n\r\nb\n" + b"\r\n" * 70_000 + b"c")
    for block_bytes in (1000, 2**16, 2**23):
        assert records(path, "", block_bytes) == [Record(70_001, b"a"), Record(70_004, b"b"), Record(140_005, b"c")]
    data = b"".join(block.without_empty_lines() for block in read_blocks(path))
    assert data == b"a\r\nb\nc\n"


def test_many_short_lines_make_small_blocks(tmp_path: Path) -> None:
    """Places of lines take eight bytes each, so that a block of empty lines would take many times its size."""
    path = tmp_path / "log"
    path.write_bytes(b"\n" * 2**22 + b"a\n")
    assert max(len(block.ends) for block in read_blocks(path)) <= 2**18
    assert records(path) == [Record(2**22 + 1, b"a")]


def test_a_byte_order_mark_is_no_data(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\xef\xbb\xbfa\nb\n")
    assert records(path) == [Record(1, b"a"), Record(2, b"b")]


def test_short_files(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for data, expected in [(b"", []), (b"a", [b"a"]), (b"\n", []), (b"\xef\xbb\xbf", []), (b"ab\n", [b"ab"])]:
        path.write_bytes(data)
        assert [record.data for record in records(path)] == expected


def test_packed_files_hold_the_same(tmp_path: Path) -> None:
    data = b"".join(b"row %d\r\n" % number for number in range(20_000)) + b"bytes \xff and \0 stay"
    half = len(data) // 2
    packed = {
        "log": data,
        "log.gz": gzip.compress(data[:half]) + gzip.compress(data[half:]),
        "log.zst": zstandard.compress(data[:half]) + zstandard.compress(data[half:]),
        "LOG.ZST": zstandard.ZstdCompressor(level=19, write_checksum=True).compress(data),
    }
    for name, content in packed.items():
        (tmp_path / name).write_bytes(content)
        assert b"".join(block.data for block in read_blocks(tmp_path / name, "", 1000)) == data + b"\n"


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_broken_packed_file_is_refused(tmp_path: Path, suffix: str) -> None:
    data = b"".join(b"%d %d\n" % (number, number * number) for number in range(5000))
    whole = gzip.compress(data) if suffix == ".gz" else zstandard.ZstdCompressor(write_checksum=True).compress(data)
    path = tmp_path / f"log{suffix}"
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 0xFF]) + whole[middle + 1 :]
    for broken in (whole[:1], whole[:middle], whole[:-1], flipped, whole + b"garbage", b"not packed at all"):
        path.write_bytes(broken)
        with pytest.raises(DataError, match=r"log.*cannot be decompressed"):
            records(path)


def test_a_packed_file_of_nothing_is_empty(tmp_path: Path) -> None:
    for name, content in [
        ("a.gz", b""),
        ("b.gz", gzip.compress(b"")),
        ("c.zst", b""),
        ("d.zst", zstandard.compress(b"")),
    ]:
        (tmp_path / name).write_bytes(content)
        assert records(tmp_path / name) == []


def test_zstandard_is_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log.zst").write_bytes(zstandard.compress(b"a\n"))
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    with pytest.raises(blocks.MissingExtraError, match=r"zstandard is not installed.*lightgc2n\[train\]"):
        records(tmp_path / "log.zst")


def test_an_endless_record_is_cut_and_the_next_line_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"first\n" + b"x" * (3 * LONGEST_RECORD) + b"\nnext\nlast")
    actual = records(path, block_bytes=2**18)
    assert [(record.line, record.data[:5]) for record in actual] == [
        (1, b"first"),
        (2, b"xxxxx"),
        (3, b"next"),
        (4, b"last"),
    ]
    assert len(actual[1].data) > LONGEST_RECORD


def test_a_quote_never_closed_costs_its_own_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "log"
    lines = [b"row %07d" % number for number in range(3 * LONGEST_RECORD // 12)]
    lines[10], lines[-5] = b'"row 000010', b'"row 000011'
    path.write_bytes(b"\n".join(lines))
    for block_bytes in (2**18, 2**21, 2**23):
        actual = records(path, ",", block_bytes)
        assert [record.line for record in actual] == list(range(1, len(lines) + 1))
        assert [record.data for record in actual] == lines


@pytest.mark.parametrize(("size", "count"), [(LONGEST_RECORD, 1), (LONGEST_RECORD + 1, 2)])
def test_the_longest_record_that_may_span_lines(tmp_path: Path, size: int, count: int) -> None:
    path = tmp_path / "log"
    path.write_bytes(b'first\n"' + b"x" * (size - 4) + b'\ny"\nlast\n')
    for block_bytes in (2**18, 2**20, 2**20 + 8, 2**23):
        actual = records(path, ",", block_bytes)
        assert [record.data[-2:] for record in actual] == [b"st", *([b'y"'] if count == 1 else [b"xx", b'y"']), b"st"]


def test_what_a_fast_parser_may_have() -> None:
    def block(data: bytes) -> Block:
        return Block(1, data, record_ends(data)[0])

    assert block("a\té\n".encode()).is_clean()
    assert not block(b"a\tb\0\n").is_clean()
    assert not block(b"a\t\xff\n").is_clean()
    assert not block(b"a" * LONGEST_RECORD + b"aa\n").is_clean()


def test_a_record_can_be_divided_into_its_lines() -> None:
    data = b'a\n"b\nc"\n"d\ne\nf"\ng\n'
    block = Block(1, data, record_ends(data, ",")[0])
    assert block.spans_lines().tolist() == [False, True, True, False]
    assert [one.data for one in block.divided([2]).records()] == [b"a", b'"b\nc"', b'"d', b"e", b'f"', b"g"]
    assert [one.line for one in block.divided([1]).records()] == [1, 2, 3, 4, 7]


def test_the_suffix_without_compression() -> None:
    names = {
        "a.csv": ".csv",
        "a.CSV.gz": ".csv",
        "a.b.tsv.zst": ".tsv",
        "a": "",
        "a.gz": "",
        "x.gz.parquet": ".parquet",
    }
    assert {name: plain_suffix(Path(name)) for name in names} == names

import gzip
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from lightgc2n.data.reading import blocks
from lightgc2n.data.reading.blocks import LONGEST_RECORD, Block, Record, plain_suffix, read_blocks
from lightgc2n.errors import DataError


def records(path: Path, quoted: bool, block_bytes: int = 8 * 2**20) -> list[Record]:
    return [record for block in read_blocks(path, quoted, block_bytes) for record in block.records()]


def records_by_hand(data: bytes, quoted: bool) -> list[Record]:
    """Byte by byte: a newline ends a record, unless an odd number of quotes stands before it."""
    found, start, line, first_line, inside = [], 0, 1, 1, False
    for place, octet in enumerate(data):
        inside ^= quoted and octet == ord('"')
        line += octet == ord("\n")
        if octet == ord("\n") and not inside:
            found.append(Record(first_line, data[start:place].removesuffix(b"\r")))
            start, first_line = place + 1, line
    if start < len(data):
        found.append(Record(first_line, data[start:].removesuffix(b"\n").removesuffix(b"\r")))
    return found


TRICKY = b'a,b\r\n"x\ny",1\n\n\r\nplain,2\n"q""q\n\n",3\nlast,4'


@pytest.mark.parametrize("quoted", [True, False])
@pytest.mark.parametrize("block_bytes", range(1, 45))
def test_any_block_size_gives_the_same_records(tmp_path: Path, block_bytes: int, quoted: bool) -> None:
    path = tmp_path / "log"
    path.write_bytes(TRICKY)
    assert records(path, quoted, block_bytes) == records_by_hand(TRICKY, quoted)


@settings(deadline=None, max_examples=60)
@given(data=st.lists(st.sampled_from([b"a", b"\n", b"\r", b'"', b",", "é".encode()]), max_size=40).map(b"".join))
def test_records_of_any_bytes(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("blocks") / "log"
    path.write_bytes(data)
    for quoted in (True, False):
        for block_bytes in (1, 3, 7, 1000):
            assert records(path, quoted, block_bytes) == records_by_hand(data, quoted)


def test_a_byte_order_mark_is_no_data(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\xef\xbb\xbfa\nb\n")
    assert records(path, quoted=False) == [Record(1, b"a"), Record(2, b"b")]


def test_short_files(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for data, expected in [(b"", []), (b"a", [b"a"]), (b"\n", [b""]), (b"\xef\xbb\xbf", []), (b"ab\n", [b"ab"])]:
        path.write_bytes(data)
        assert [record.data for record in records(path, quoted=False)] == expected


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
        assert b"".join(block.data for block in read_blocks(tmp_path / name, False, 1000)) == data + b"\n"


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_broken_packed_file_is_refused(tmp_path: Path, suffix: str) -> None:
    data = b"".join(b"%d %d\n" % (number, number * number) for number in range(5000))
    whole = gzip.compress(data) if suffix == ".gz" else zstandard.ZstdCompressor(write_checksum=True).compress(data)
    path = tmp_path / f"log{suffix}"
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 0xFF]) + whole[middle + 1 :]
    for broken in (whole[:1], whole[:middle], whole[:-1], flipped, whole + b"garbage", b"not packed at all"):
        path.write_bytes(broken)
        with pytest.raises(DataError, match=r"log.*cannot be unpacked"):
            records(path, quoted=False)


def test_a_packed_file_of_nothing_is_empty(tmp_path: Path) -> None:
    for name, content in [
        ("a.gz", b""),
        ("b.gz", gzip.compress(b"")),
        ("c.zst", b""),
        ("d.zst", zstandard.compress(b"")),
    ]:
        (tmp_path / name).write_bytes(content)
        assert records(tmp_path / name, quoted=False) == []


def test_zstandard_is_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log.zst").write_bytes(zstandard.compress(b"a\n"))
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    with pytest.raises(blocks.MissingExtraError, match=r"zstandard is not installed.*lightgc2n\[train\]"):
        records(tmp_path / "log.zst", quoted=False)


def test_an_endless_record_is_cut_and_the_next_line_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"first\n" + b"x" * (3 * LONGEST_RECORD) + b"\nnext\nlast")
    found = records(path, quoted=False, block_bytes=2**18)
    assert [(record.line, record.data[:5]) for record in found] == [
        (1, b"first"),
        (2, b"xxxxx"),
        (3, b"next"),
        (4, b"last"),
    ]
    assert len(found[1].data) > LONGEST_RECORD


def test_a_quote_never_closed_costs_no_more_than_the_longest_record(tmp_path: Path) -> None:
    path = tmp_path / "log"
    lines = [b"row %07d" % number for number in range(3 * LONGEST_RECORD // 12)]
    lines[10] = b'row "000010'
    path.write_bytes(b"\n".join(lines))
    found = records(path, quoted=True, block_bytes=2**18)
    assert [record.line for record in found[:11]] == list(range(1, 12))
    assert len(found[10].data) > LONGEST_RECORD
    after = found[11]
    assert after.data == lines[after.line - 1]
    assert found[-1] == Record(len(lines), lines[-1])
    assert after.line - 11 < LONGEST_RECORD / len(lines[0])


def test_what_a_fast_parser_may_have() -> None:
    assert Block(1, "a\té\n".encode(), quoted=False).is_clean()
    assert not Block(1, b"a\tb\0\n", quoted=False).is_clean()
    assert not Block(1, b"a\t\xff\n", quoted=False).is_clean()
    assert not Block(1, b"a" * LONGEST_RECORD + b"aa\n", quoted=False).is_clean()


def test_the_ending_that_tells_the_format() -> None:
    names = {
        "a.csv": ".csv",
        "a.CSV.gz": ".csv",
        "a.b.tsv.zst": ".tsv",
        "a": "",
        "a.gz": "",
        "x.gz.parquet": ".parquet",
    }
    assert {name: plain_suffix(Path(name)) for name in names} == names

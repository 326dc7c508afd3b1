"""A file as blocks of whole records, so that any size is read in the same memory and every record keeps its line."""

import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from lightgc2n.errors import DataError, MissingExtraError

BLOCK_BYTES = 8 * 2**20
LONGEST_RECORD = 2**20
PACKED_BYTES = 4096  # small, since a few bytes may unpack to very many
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Record:
    """One row as it stands in the file, without its line end."""

    line: int
    data: bytes


@dataclass(frozen=True)
class Block:
    """Whole records, each with its newline; the first stands on `first_line` of the file."""

    first_line: int
    data: bytes
    quoted: bool  # a newline between double quotes does not end a record

    def is_clean(self) -> bool:
        """Whether all of it is text of reasonable length, so that a fast parser may have it."""
        if b"\0" in self.data or (not self.data.isascii() and not _is_utf8(self.data)):
            return False
        ends = _record_ends(self.data, self.quoted)
        return bool(np.diff(ends, prepend=0).max(initial=0) <= LONGEST_RECORD)

    def records(self) -> Iterator[Record]:
        """The records one by one, for the slow search after a bad one."""
        start, line = 0, self.first_line
        for end in _record_ends(self.data, self.quoted).tolist():
            data = self.data[start:end]
            yield Record(line, data.removesuffix(b"\n").removesuffix(b"\r"))
            start, line = end, line + data.count(b"\n")


def read_blocks(path: Path, quoted: bool, block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """The file, plain or packed (.gz, .zst), as blocks of about `block_bytes`."""
    try:
        with _open(path) as stream:
            yield from _blocks(stream, quoted, block_bytes)
    except (gzip.BadGzipFile, EOFError, zlib.error) as problem:
        raise DataError(f"{path}: cannot be unpacked: {problem}. Is the file whole?") from None


def plain_suffix(path: Path) -> str:
    """The ending that tells the format, with .gz or .zst taken off."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in (".gz", ".zst"):
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def _blocks(stream: BinaryIO, quoted: bool, block_bytes: int) -> Iterator[Block]:
    line, carry = 1, stream.read(len(BYTE_ORDER_MARK)).removeprefix(BYTE_ORDER_MARK)
    while chunk := stream.read(block_bytes):
        data = carry + chunk
        ends = _record_ends(data, quoted, closed=False)
        if len(ends) == 0 and len(data) > LONGEST_RECORD:
            # One endless record: hand on its beginning, which is refused for its length, and go on at a later newline.
            yield Block(line, data[: LONGEST_RECORD + 1].replace(b"\n", b" ") + b"\n", quoted=False)
            dropped, carry = _skip_line(stream, data, block_bytes)
            line += dropped
            continue
        end = int(ends[-1]) if len(ends) else 0
        if end:
            yield Block(line, data[:end], quoted)
            line += data.count(b"\n", 0, end)
        carry = data[end:]
    if carry:
        yield Block(line, carry if carry.endswith(b"\n") else carry + b"\n", quoted)


def _skip_line(stream: BinaryIO, data: bytes, block_bytes: int) -> tuple[int, bytes]:
    """How many lines were passed over, and what follows them."""
    lines, rest = data.count(b"\n", 0, LONGEST_RECORD), data[LONGEST_RECORD:]
    while rest and (end := rest.find(b"\n")) < 0:
        rest = stream.read(block_bytes)
    return (lines + 1, rest[end + 1 :]) if rest else (lines, b"")


def _record_ends(data: bytes, quoted: bool, closed: bool = True) -> npt.NDArray[np.int64]:
    """Where each record ends, newline included.

    Args:
        closed: whether the data ends here, so that a quote still open ends with it.
    """
    octets = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(octets == ord("\n"))
    if quoted and b'"' in data:
        quotes = np.flatnonzero(octets == ord('"'))
        ends = ends[np.searchsorted(quotes, ends) % 2 == 0]
    ends = ends + 1
    if closed and (len(ends) == 0 or ends[-1] != len(data)):
        ends = np.append(ends, len(data))
    return ends


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _open(path: Path) -> BinaryIO:
    packing = path.suffix.lower()
    if packing == ".gz":
        return gzip.open(path, "rb")  # type: ignore[return-value]
    if packing == ".zst":
        return io.BufferedReader(_Zstandard(path))
    return path.open("rb")


class _Zstandard(io.RawIOBase):
    """The unpacked bytes of a .zst file; one that stops within a frame is an `EOFError`, as with gzip."""

    def __init__(self, path: Path) -> None:
        try:
            import zstandard
        except ModuleNotFoundError:
            raise MissingExtraError("zstandard", "train") from None
        self._path, self._error = path, zstandard.ZstdError
        self._new_frame = zstandard.ZstdDecompressor().decompressobj
        self._file, self._frame = path.open("rb"), self._new_frame()
        self._packed, self._rest, self._in_frame = b"", memoryview(b""), False

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            self._packed = self._packed or self._file.read(PACKED_BYTES)
            if not self._packed:
                if self._in_frame:
                    raise EOFError("the file ends too early")
                return 0
            self._unpack()
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def _unpack(self) -> None:
        try:
            self._rest = memoryview(self._frame.decompress(self._packed))
        except self._error as problem:
            raise DataError(f"{self._path}: cannot be unpacked: {problem}. Is the file whole?") from None
        self._in_frame, self._packed = not self._frame.eof, self._frame.unused_data
        if not self._in_frame:
            self._frame = self._new_frame()  # a file may hold several frames

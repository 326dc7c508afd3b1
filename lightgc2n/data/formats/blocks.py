"""Read a file in blocks of whole records, with constant memory and a line number for every record.

Except in CSV, every line is a record. A well-formed CSV record may span lines: a field that starts with a quote ends
with one, quotes inside it are doubled, and a separator or the line end follows. In other fields a quote is an ordinary
character. Of a malformed record, only the first line becomes a (bad) record, and parsing restarts at the next line. An
unbalanced quote therefore costs one line.
"""

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from lightgc2n.errors import DataError, MissingExtraError, SettingError, option

LONGEST_RECORD = 2**20
NEWLINE, RETURN, QUOTE = b"\n"[0], b"\r"[0], b'"'[0]

Places = npt.NDArray[np.int64]


def record_ends(data: bytes, separator: str = "", whole: bool = True) -> tuple[Places, bool]:
    """Return the end of each record, newline included, and whether every quote is known to be correct.

    A record that is not complete yet has no end.

    Args:
        data: starts with a record; if it is the whole rest of the file, it ends with a newline.
        separator: the field separator of a CSV file; empty if every line is a record.
        whole: true if no data follows, so that an open quote will never be closed.
    """
    octets = np.frombuffer(data, dtype=np.uint8)
    newlines = np.flatnonzero(octets == NEWLINE)
    if not separator or b'"' not in data:
        return newlines + 1, True
    quotes = np.flatnonzero(octets == QUOTE)
    if (whole and len(quotes) % 2) or not quotes_enclose_fields(data, quotes, separator):
        return _careful_ends(data, newlines, quotes, separator, whole), False
    ends = newlines[np.searchsorted(quotes, newlines) % 2 == 0] + 1
    open_bytes = len(data) - (int(ends[-1]) if len(ends) else 0)
    if max(np.diff(ends, prepend=0).max(initial=0), open_bytes) > LONGEST_RECORD:
        return _careful_ends(data, newlines, quotes, separator, whole), False
    return ends, True


def quotes_enclose_fields(data: bytes, quotes: Places, separator: str) -> bool:
    """Return whether every quote opens or closes a field, or is part of a doubled quote in a quoted field.

    A closing quote at the very end of the data, or before a carriage return there, counts as correct.
    """
    octets = np.frombuffer(b"\n" + data + b"\n\n", dtype=np.uint8)
    opening, closing, sign = quotes[::2] + 1, quotes[1::2] + 1, separator.encode()
    if len(sign) > 1 or not _ends_field(octets[opening - 1], sign[0]).all():
        return False  # the careful search handles separators of several bytes
    others = closing[~_ends_field(octets[closing + 1], sign[0])]
    return bool(((octets[others + 1] == RETURN) & (octets[others + 2] == NEWLINE)).all())


def _ends_field(octets: npt.NDArray[np.uint8], separator: int) -> npt.NDArray[np.bool_]:
    return (octets == separator) | (octets == NEWLINE) | (octets == QUOTE)


def _careful_ends(data: bytes, newlines: Places, quotes: Places, separator: str, whole: bool) -> Places:
    """Search the lines that contain quotes one by one.

    From an open quote the search continues at the next quote that is not doubled. No line in between can open another,
    so this takes at most two passes over the data, however many quotes are unbalanced.
    """
    record, beginning = _patterns(separator)
    starts = np.concatenate([[0], newlines + 1])
    ends_record = np.ones(len(newlines), dtype=bool)
    done = 0
    for line in np.unique(np.searchsorted(newlines, quotes)).tolist():
        start = int(starts[line])
        if start < done:
            continue
        if match := record.match(data, start, start + LONGEST_RECORD + 1):
            done = match.end()
            ends_record[line : np.searchsorted(newlines, done - 1)] = False
        elif not whole and len(data) - start <= LONGEST_RECORD and beginning.match(data, start):
            return newlines[:line][ends_record[:line]] + 1
    return newlines[ends_record] + 1


@lru_cache
def _patterns(separator: str) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Return patterns of a complete record and of a record cut off by the end of the data; neither backtracks."""
    sign = separator.encode()
    cut = re.escape(sign)
    broken_cut = b"|".join(re.escape(sign[:size]) for size in range(len(sign)))
    open_quoted = b'"[^"]*+(?:""[^"]*+)*+'
    plain = b'(?!"|%b)[^\\n](?:(?!%b)[^\\n])*+' % (cut, cut)
    if len(sign) == 1:  # an equivalent, faster pattern
        plain = b'[^"\\n%b][^\\n%b]*+' % (cut, cut)
    one_field = b'(?>%b"|%b|)' % (open_quoted, plain)
    record = b"%b(?:%b%b)*+\\r?+\\n" % (one_field, cut, one_field)
    beginning = b'(?:%b%b)*+(?:%b"?+|%b|)(?:%b|\\r)\\Z' % (one_field, cut, open_quoted, plain, broken_cut)
    return re.compile(record), re.compile(beginning)


BLOCK_BYTES = 8 * 2**20
PIECE_BYTES = 2**18
SHORT_LINE = 8  # bytes
PACKED_BYTES = 4096  # small, because a few compressed bytes may expand to very many
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
ENCODING = option("--encoding", "encoding=")


@dataclass(frozen=True)
class Record:
    """One record of the file, without its line end."""

    line: int
    data: bytes


@dataclass(frozen=True, eq=False)
class Block:
    """Whole records, each with its newline; the first begins at line `first_line` of the file."""

    first_line: int
    data: bytes
    ends: Places  # the end of each record, newline included
    well_formed: bool = False  # every quote is known to be correct, so that it need not be checked again

    @cached_property
    def starts(self) -> Places:
        return np.concatenate([[0], self.ends])[:-1]

    @cached_property
    def _is_row(self) -> npt.NDArray[np.bool_]:
        """Whether each record is a row; empty lines are not."""
        sizes = self.ends - self.starts
        first = np.frombuffer(self.data, dtype=np.uint8)[self.starts]
        return (sizes > 2) | ((sizes == 2) & (first != RETURN))

    @cached_property
    def rows(self) -> int:
        """The number of rows, without empty lines."""
        return int(np.count_nonzero(self._is_row))

    @cached_property
    def lines(self) -> int:
        """The number of lines; a record without quotes is one line."""
        return self.data.count(b"\n") if b'"' in self.data else len(self.ends)

    def is_clean(self) -> bool:
        """Return whether the block is valid text of reasonable length, so that the fast parser can read it."""
        if b"\0" in self.data or (not self.data.isascii() and not _is_utf8(self.data)):
            return False
        return bool((self.ends - self.starts).max(initial=0) <= LONGEST_RECORD)

    def spans_lines(self) -> npt.NDArray[np.bool_]:
        """Return for each record whether it has line breaks inside quotes."""
        newlines = np.flatnonzero(np.frombuffer(self.data, dtype=np.uint8) == NEWLINE)
        return np.diff(np.searchsorted(newlines, self.ends), prepend=0) > 1

    def divided(self, records: Sequence[int]) -> "Block":
        """Return the block with these records split into their lines."""
        starts = [int(self.starts[one]) for one in records]
        more = [
            record_ends(self.data[start : self.ends[one]])[0] + start
            for one, start in zip(records, starts, strict=True)
        ]
        return Block(self.first_line, self.data, np.unique(np.concatenate([self.ends, *more])))

    def without_empty_lines(self) -> bytes:
        """Return the bytes of the rows, without empty lines."""
        if self.rows == len(self.ends):
            return self.data
        in_row = np.repeat(self._is_row, self.ends - self.starts)
        return np.frombuffer(self.data, dtype=np.uint8)[in_row].tobytes()

    def records(self) -> Iterator[Record]:
        """Yield the rows one by one, for the slow parser that locates bad rows."""
        for piece in self.pieces():
            rows = np.flatnonzero(piece._is_row)
            newlines = np.flatnonzero(np.frombuffer(piece.data, dtype=np.uint8) == NEWLINE)
            starts, ends = piece.starts[rows], piece.ends[rows]
            lines = piece.first_line + np.searchsorted(newlines, starts)
            for line, start, end in zip(lines.tolist(), starts.tolist(), ends.tolist(), strict=True):
                yield Record(line, piece.data[start:end].removesuffix(b"\n").removesuffix(b"\r"))

    def pieces(self, size: int = PIECE_BYTES) -> Iterator["Block"]:
        """Yield the same records in blocks of about `size` bytes."""
        first, start, line = 0, 0, self.first_line
        while first < len(self.ends):
            stop = max(first + 1, int(np.searchsorted(self.ends, start + size, side="right")))
            end = int(self.ends[stop - 1])
            piece = Block(line, self.data[start:end], self.ends[first:stop] - start, self.well_formed)
            yield piece
            first, start, line = stop, end, line + piece.lines

    def after_header(self) -> tuple[Record, "Block"]:
        """Return the first row, and a block of the remaining rows."""
        header, end = next(self.records()), int(self.ends[np.argmax(self._is_row)])
        line = self.first_line + self.data.count(b"\n", 0, end)
        return header, Block(line, self.data[end:], self.ends[self.ends > end] - end, self.well_formed)


def read_blocks(path: Path, separator: str = "", block_bytes: int = BLOCK_BYTES, encoding: str = "") -> Iterator[Block]:
    """Yield the file, plain or compressed (.gz, .zst), as blocks of about `block_bytes`.

    Args:
        separator: the field separator of a CSV file; empty if every line is a record.
        encoding: the file's encoding; blocks are always UTF-8.
    """
    try:
        with _open(path) as opened:
            stream = io.BufferedReader(_Recoded(path, opened, encoding)) if encoding else opened
            yield from _blocks(stream, separator, block_bytes)
    except (gzip.BadGzipFile, EOFError, zlib.error) as problem:
        raise DataError(f"{path}: cannot be decompressed: {problem}. Is the file complete?") from None


def check_encoding(encoding: str) -> None:
    """Raise an error if Python knows no text encoding of this name."""
    try:
        "a".encode(encoding or "utf-8").decode(encoding or "utf-8")
    except (LookupError, UnicodeError, ValueError):
        raise SettingError(
            f"{ENCODING}: expected the name of an encoding, such as latin-1, cp1252 or utf-16, found {encoding!r}."
        ) from None


def plain_suffix(path: Path) -> str:
    """Return the file suffix without .gz or .zst."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in (".gz", ".zst"):
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def _blocks(stream: BinaryIO, separator: str, block_bytes: int) -> Iterator[Block]:
    line, remainder, whole = 1, stream.read(len(BYTE_ORDER_MARK)).removeprefix(BYTE_ORDER_MARK), False
    chunks = _chunks(stream, block_bytes)
    while not whole or remainder:
        chunk, whole = next(chunks, (b"", True))
        data = remainder + chunk
        if whole and data and not data.endswith(b"\n"):
            data += b"\n"
        ends, well_formed = record_ends(data, separator, whole)
        if len(ends) == 0 and len(data) > LONGEST_RECORD:
            # A line over the limit: pass on its beginning, which is rejected for its length, and skip to its newline.
            ends, data = np.array([LONGEST_RECORD + 2]), data[: LONGEST_RECORD + 1] + b"\n"
            remainder, whole = _after_newline(chunks)
        else:
            remainder = data[int(ends[-1]) :] if len(ends) else data
        if len(ends):
            block = Block(line, data[: int(ends[-1])], ends, well_formed)
            line += block.lines
            # Very short lines are so many that their offsets would need far more memory than the data.
            yield from block.pieces() if len(ends) * SHORT_LINE > len(data) else [block]


def _chunks(stream: BinaryIO, size: int) -> Iterator[tuple[bytes, bool]]:
    """Yield the file in parts of `size`, with a flag that marks the last one."""
    last = False
    while not last:
        chunk = stream.read(size)
        last = len(chunk) < size
        yield chunk, last


def _after_newline(chunks: Iterator[tuple[bytes, bool]]) -> tuple[bytes, bool]:
    """Skip to the next newline; return the bytes after it, and whether the file ends there."""
    for chunk, whole in chunks:
        if (end := chunk.find(b"\n")) >= 0:
            return chunk[end + 1 :], whole
    return b"", True


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


class _Recoded(io.RawIOBase):
    """The text of a file in any encoding, as UTF-8 bytes."""

    def __init__(self, path: Path, stream: BinaryIO, encoding: str) -> None:
        self._path, self._stream, self._encoding = path, stream, encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._rest, self._line, self._ended = memoryview(b""), 1, False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest and not self._ended:
            chunk = self._stream.read(PIECE_BYTES)
            self._ended = not chunk
            self._rest = memoryview(self._decoded(chunk).encode("utf-8", "surrogatepass"))
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def _decoded(self, chunk: bytes) -> str:
        try:
            text = self._decoder.decode(chunk, final=self._ended)
        except UnicodeError as problem:
            raise DataError(
                f"{self._path}: near line {self._line:,}: cannot be read as {self._encoding}: {problem}. "
                f"Give the right {ENCODING}."
            ) from None
        self._line += text.count("\n")
        return text


class _Zstandard(io.RawIOBase):
    """The decompressed bytes of a .zst file; a truncated file raises `EOFError`, as with gzip."""

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
            raise DataError(f"{self._path}: cannot be decompressed: {problem}. Is the file complete?") from None
        self._in_frame, self._packed = not self._frame.eof, self._frame.unused_data
        if not self._in_frame:
            self._frame = self._new_frame()  # a file may hold several frames

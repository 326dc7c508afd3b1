"""Writes tables to CSV, JSON Lines or Parquet files, such as one row for each entry of each list.

Rows and lists are written as they come, so memory does not grow with their number.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from lightgc2n.errors import OUT, OutputError
from lightgc2n.files.atomic_writes import new_file, refuse_existing
from lightgc2n.recommending.list_blocks import ListBlock
from lightgc2n.recommending.people_report import Example
from lightgc2n.recommending.queries import Floats
from lightgc2n.recommending.results import Recommendations

if TYPE_CHECKING:
    import polars as pl

COLUMNS = {"account_id": str, "item_id": str, "score": float, "rank": int}
COUNT_COLUMNS = {"account_id": str, "people": int, "confidence": float, "events": int}
DIGITS = 4  # of a confidence
ROWS_PER_FRAME = 100_000
DECIMAL = (1e-4, 1e16)  # between these, Python and polars write a float as the same digits, without an exponent

PLAIN = re.compile(r"[\w.:-]*")  # text that CSV never quotes

Columns = Mapping[str, type]
Rows = Iterable[tuple[Any, ...]]
Blocks = Iterable[ListBlock]


def refuse_output(path: Path, force: bool) -> None:
    """Raise an error if the file cannot be written."""
    if path.suffix not in WRITERS:
        raise OutputError(f"{path}: expected a name that ends in {', '.join(WRITERS)}.")
    if path.is_dir():
        raise OutputError(f"{path} is a folder. Choose another {OUT}.")
    refuse_existing(path, force)


def write_recommendations(path: Path, lists: Iterable[Recommendations], force: bool = False) -> None:
    """Write the lists to `path` in the format of its suffix; the file is written atomically."""
    write_rows(path, COLUMNS, _rows(lists), force)


def write_counts(path: Path, counted: Iterable[Example], force: bool = False) -> None:
    """Write the number of people of each account to `path` in the format of its suffix."""
    rows = ((one.account, one.count, round(one.confidence, DIGITS), one.events) for one in counted)
    write_rows(path, COUNT_COLUMNS, rows, force)


def write_list_blocks(path: Path, blocks: Blocks, items: Sequence[str], force: bool = False) -> None:
    """Write lists to `path` as `write_recommendations` does, byte for byte, but without an object for each entry.

    Args:
        items: the item ids that the blocks refer to.
    """
    refuse_output(path, force)
    with new_file(path, force) as temporary:
        if path.suffix in LINES:
            _write_lines(temporary, blocks, items, LINES[path.suffix])
        else:
            _stream_parquet(temporary, COLUMNS, _frames_of_blocks(blocks, items))


def write_rows(path: Path, columns: Columns, rows: Rows, force: bool = False) -> None:
    """Write rows to `path` in the format of its suffix; the file is written atomically.

    Args:
        columns: names and types; a value may be None.
    """
    refuse_output(path, force)
    with new_file(path, force) as temporary:
        WRITERS[path.suffix](temporary, columns, rows)


def _rows(lists: Iterable[Recommendations]) -> Iterator[tuple[str, str, float, int]]:
    for one in lists:
        name = one.account_id or ""
        for item_id, score, rank in one:
            yield name, item_id, score, rank


def _write_csv(path: Path, columns: Columns, rows: Rows) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def _write_jsonl(path: Path, columns: Columns, rows: Rows) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) + "\n")


def _write_parquet(path: Path, columns: Columns, rows: Rows) -> None:
    import polars as pl

    def frames() -> Iterator["pl.DataFrame"]:
        given = iter(rows)
        while part := list(islice(given, ROWS_PER_FRAME)):
            values = zip(*part, strict=True)
            yield pl.DataFrame(dict(zip(columns, map(list, values), strict=True)), schema=_schema(columns))

    _stream_parquet(path, columns, frames())


def _stream_parquet(path: Path, columns: Columns, frames: Iterator["pl.DataFrame"]) -> None:
    """Write frames as row groups while they are computed."""
    from polars.io.plugins import register_io_source

    def source(*_: object) -> Iterator["pl.DataFrame"]:
        return frames

    with path.open("wb") as file:
        output = _ParquetOutput(file)
        rows = register_io_source(source, schema=_schema(columns))
        target: Any = output  # polars takes any object with write(); its annotation names open files
        try:
            rows.sink_parquet(target, row_group_size=ROWS_PER_FRAME, maintain_order=True)
        except Exception:
            if output.problem is not None:
                raise output.problem from None
            raise


class _ParquetOutput(io.RawIOBase):
    """A file that keeps the system's error, such as that of a full disk: polars raises another in its place."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.problem: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return self._file.write(data)
        except OSError as problem:
            self.problem = problem
            raise

    def flush(self) -> None:
        try:
            self._file.flush()
        except OSError as problem:
            self.problem = problem
            raise

    def writable(self) -> bool:
        return True


def _schema(columns: Columns) -> dict[str, "type[pl.DataType]"]:
    import polars as pl

    kinds = {str: pl.String, float: pl.Float64, int: pl.Int32}
    return {name: kinds[kind] for name, kind in columns.items()}


def _frames_of_blocks(blocks: Blocks, items: Sequence[str]) -> Iterator["pl.DataFrame"]:
    import polars as pl

    catalogue = pl.Series(items, dtype=pl.String)
    for block in blocks:
        listed = np.arange(block.items.shape[1]) < block.counts[:, None]
        list_of_row, place = np.nonzero(listed)
        account = pl.Series(block.accounts, dtype=pl.String).gather(list_of_row)
        entries = (account, catalogue.gather(block.items[listed]), block.scores[listed], place + 1)
        yield pl.DataFrame(dict(zip(COLUMNS, entries, strict=True)), schema_overrides=_schema(COLUMNS))


@dataclass(frozen=True)
class LineFormat:
    """The parts of a line around the score, made from accounts, from item ids and from a rank."""

    header: str
    accounts: Callable[[Sequence[str]], list[str]]
    items: Callable[[Sequence[str]], list[str]]
    rank: Callable[[int], str]


class _Lines(list[str]):
    """Collects the lines of a writer, one for each row."""

    def write(self, line: str) -> None:
        self.append(line)


def _csv_fields(texts: Sequence[str]) -> list[str]:
    """The texts as first fields of a line, quoted where needed, with the comma behind them."""
    if PLAIN.fullmatch("".join(texts)):
        return [f"{text}," for text in texts]
    lines = _Lines()
    csv.writer(lines, lineterminator="\n").writerows([text, ""] for text in texts)
    return [line[:-1] for line in lines]


def _json_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


LINES = {
    ".csv": LineFormat(",".join(COLUMNS) + "\n", _csv_fields, _csv_fields, ",{}\n".format),
    ".jsonl": LineFormat(
        "",
        lambda accounts: [f'{{"account_id": {_json_text(account)}, ' for account in accounts],
        lambda items: [f'"item_id": {_json_text(item)}, "score": ' for item in items],
        ', "rank": {}}}\n'.format,
    ),
}


def _write_lines(path: Path, blocks: Blocks, items: Sequence[str], form: LineFormat) -> None:
    """Write a line for each entry; what does not differ between lists is formatted once."""
    middles = form.items(items)
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(form.header)
        for block in blocks:
            ends = [form.rank(rank) for rank in range(1, block.items.shape[1] + 1)]
            listed = np.arange(block.items.shape[1]) < block.counts[:, None]
            numbers, scores = iter(block.items[listed].tolist()), iter(_texts(block.scores[listed]))
            for start, count in zip(form.accounts(block.accounts), block.counts.tolist(), strict=True):
                entries = zip(ends[:count], numbers, scores, strict=False)  # the shortest first: it ends the others
                file.write("".join([f"{start}{middles[item]}{score}{end}" for end, item, score in entries]))


def _texts(scores: Floats) -> list[str]:
    """`repr` of each score; with polars, which a bundle does not need, in a fifth of the time."""
    values = scores.astype(np.float64)
    if find_spec("polars") is None:
        return list(map(repr, values.tolist()))
    import polars as pl

    texts = pl.Series(values).cast(pl.String).to_list()
    size = np.abs(values)
    for place in np.flatnonzero((size < DECIMAL[0]) | (size >= DECIMAL[1])).tolist():
        texts[place] = repr(values[place].item())
    return texts


WRITERS: dict[str, Callable[[Path, Columns, Rows], None]] = {
    ".csv": _write_csv,
    ".jsonl": _write_jsonl,
    ".parquet": _write_parquet,
}

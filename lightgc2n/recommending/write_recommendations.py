"""Writes tables to CSV, JSON Lines or Parquet files, such as one row for each entry of each list."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from lightgc2n.errors import OUT, OutputError
from lightgc2n.files.atomic_writes import new_file, refuse_existing
from lightgc2n.recommending.people_report import Example
from lightgc2n.recommending.results import Recommendations

COLUMNS = {"account_id": str, "item_id": str, "score": float, "rank": int}
COUNT_COLUMNS = {"account_id": str, "people": int, "confidence": float, "events": int}
DIGITS = 4  # of a confidence
ROWS_PER_FRAME = 100_000

Columns = Mapping[str, type]
Rows = Iterable[tuple[Any, ...]]


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

    kinds = {str: pl.String, float: pl.Float64, int: pl.Int32}
    schema = {name: kinds[kind] for name, kind in columns.items()}
    # In chunks: the columns of a frame take far less memory than the rows.
    frames, given = [pl.DataFrame(schema=schema)], iter(rows)
    while part := list(islice(given, ROWS_PER_FRAME)):
        values = zip(*part, strict=True)
        frames.append(pl.DataFrame(dict(zip(columns, map(list, values), strict=True)), schema=schema))
    # polars hides the system's error when it writes a file, so a full disk could not be recognised.
    content = io.BytesIO()
    pl.concat(frames).write_parquet(content)
    path.write_bytes(content.getbuffer())


WRITERS: dict[str, Callable[[Path, Columns, Rows], None]] = {
    ".csv": _write_csv,
    ".jsonl": _write_jsonl,
    ".parquet": _write_parquet,
}

"""Writes recommendations to a CSV, JSON Lines or Parquet file, one row for each entry of each list."""

import csv
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

from lightgc2n.errors import OUT, OutputError
from lightgc2n.files.atomic_writes import new_file, refuse_existing
from lightgc2n.recommending.results import Recommendations

COLUMNS = ("account_id", "item_id", "score", "rank")
LISTS_PER_FRAME = 4096

Row = tuple[str, str, float, int]


def refuse_output(path: Path, force: bool) -> None:
    """Raise an error if the file cannot be written."""
    if path.suffix not in WRITERS:
        raise OutputError(f"{path}: expected a name that ends in {', '.join(WRITERS)}.")
    if path.is_dir():
        raise OutputError(f"{path} is a folder. Choose another {OUT}.")
    refuse_existing(path, force)


def write_recommendations(path: Path, lists: Iterable[Recommendations], force: bool = False) -> None:
    """Write the lists to `path` in the format of its suffix; the file is written atomically."""
    refuse_output(path, force)
    with new_file(path, force) as temporary:
        WRITERS[path.suffix](temporary, lists)


def _rows(lists: Iterable[Recommendations]) -> Iterator[Row]:
    for one in lists:
        name = one.account_id or ""
        for item_id, score, rank in one:
            yield name, item_id, score, rank


def _write_csv(path: Path, lists: Iterable[Recommendations]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(_rows(lists))


def _write_jsonl(path: Path, lists: Iterable[Recommendations]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in _rows(lists):
            file.write(json.dumps(dict(zip(COLUMNS, row, strict=True)), ensure_ascii=False) + "\n")


def _write_parquet(path: Path, lists: Iterable[Recommendations]) -> None:
    import polars as pl

    schema = dict(zip(COLUMNS, (pl.String, pl.String, pl.Float64, pl.Int32), strict=True))
    # In chunks: the columns of a frame take far less memory than the lists.
    frames, given = [pl.DataFrame(schema=schema)], iter(lists)
    while part := list(islice(given, LISTS_PER_FRAME)):
        columns = zip(*_rows(part), strict=True)
        frames.append(pl.DataFrame(dict(zip(COLUMNS, map(list, columns), strict=False)), schema=schema))
    try:
        pl.concat(frames).write_parquet(path)
    except pl.exceptions.PolarsError as problem:  # polars wraps the OSError
        number = re.search(r"\(os error (\d+)\)", str(problem))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from None


WRITERS: dict[str, Callable[[Path, Iterable[Recommendations]], None]] = {
    ".csv": _write_csv,
    ".jsonl": _write_jsonl,
    ".parquet": _write_parquet,
}

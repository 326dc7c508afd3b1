"""What an import would read, without writing anything."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from lightgc2n.data.formats.file_formats import LINES
from lightgc2n.data.formats.rows import FILTER, BadRow, Tally, likely_encoding
from lightgc2n.data.importing import ImportOptions, check_options, detect_source, read_source, table_reader
from lightgc2n.progress import step

SHOWN_ROWS = 5


@dataclass(frozen=True)
class Preview:
    """How a log would be read: its first rows by role, which column has which role, and what would be skipped."""

    format: str
    columns: dict[str, str]  # role -> column
    unused: list[str]
    notes: list[str]
    first: list[dict[str, str]]
    counts: dict[str, int]
    bad: list[str] = field(default_factory=list)  # the first bad rows, with place and reason


class _Collected(Tally):
    """Collects the first bad rows instead of stopping at one or writing them to a file."""

    def __init__(self) -> None:
        super().__init__()
        self.examples: list[str] = []
        self.encoding = ""  # what the file may be instead of UTF-8

    def reject(self, path: Path, bad: Sequence[BadRow], place: str = "{path}:{line}") -> None:
        self.rejected += len(bad)
        self.encoding = self.encoding or next(filter(None, (likely_encoding(reason) for _, _, reason, _ in bad)), "")
        for line, column, reason, _ in bad[: SHOWN_ROWS - len(self.examples)]:
            what = f"column {column}: {reason}" if column else reason
            self.examples.append(f"{place.format(path=path, line=line)}: {what}")


def preview_import(path: Path, options: ImportOptions) -> Preview:
    """Read the whole log and return what an import with these options would do."""
    source = detect_source(path, options)
    check_options(options, source.format)
    tally = _Collected()
    if source.format in LINES:
        content = read_source(source, options, tally)
        return Preview(
            source.format, {}, [], content["notes"], _first_sequences(content), tally.counts(), tally.examples
        )
    reader, first = table_reader(source, options, tally), pl.DataFrame()
    with step(f"reading {source.format}, events") as progress:
        for frame in reader.frames():
            if len(first) < SHOWN_ROWS and len(frame):
                first = (
                    pl.concat([first, frame.head(SHOWN_ROWS - len(first))]) if len(first) else frame.head(SHOWN_ROWS)
                )
            progress.advance(len(frame))
    columns = {role: name for role, name in reader.columns.items() if role != FILTER}
    unused = [name for name in reader.names if name not in columns.values()]
    notes = [reader.times.describe()] if reader.times else ["no time column: events keep the order of the file"]
    if source.format == "csv":
        notes = [f"fields separated by {options.delimiter or source.delimiter!r}", *notes]
    notes += reader.hints
    if tally.filtered and not len(first):
        row = "good row" if tally.rejected else "row"  # a bad row may pass
        notes.append(f"no {row} passes {options.where!r}{tally.found_instead()}")
    if tally.encoding:
        notes.append(
            f"some rows are not UTF-8: give the file's --encoding (in Python: encoding=), such as {tally.encoding}"
        )
    rows = [{role: _text(role, value) for role, value in row.items()} for row in first.to_dicts()]
    return Preview(source.format, columns, unused, notes, rows, tally.counts(), tally.examples)


def _text(role: str, value: Any) -> str:
    if role == "time":
        return str(np.datetime64(int(value), "us").astype("datetime64[s]")).replace("T", " ")
    return "" if value is None else str(value)


def _first_sequences(content: dict[str, Any]) -> list[dict[str, str]]:
    rows = []
    for sequence in range(min(SHOWN_ROWS, len(content["sequence_accounts"]))):
        start, stop = content["offsets"][sequence : sequence + 2]
        items = [content["items"][item] for item in content["events"][start : min(stop, start + SHOWN_ROWS)]]
        account = content["accounts"][content["sequence_accounts"][sequence]]
        rows.append({"account": account, "items": " ".join(items) + (" …" if stop - start > SHOWN_ROWS else "")})
    return rows

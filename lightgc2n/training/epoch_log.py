"""The log of a run's epochs: a line in metrics.jsonl and, where TensorBoard is installed, scalars in tensorboard/.

metrics.jsonl is authoritative: when a run resumes, the TensorBoard files are rewritten from it.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightgc2n.errors import DataError
from lightgc2n.files.atomic_writes import new_file

METRICS, BOARD = "metrics.jsonl", "tensorboard"
Row = dict[str, Any]


@contextmanager
def epoch_log(folder: Path | None, epochs: int) -> Iterator[Callable[[Row], None]]:
    """Yield a function that appends the row of an epoch; without a folder it does nothing.

    Args:
        epochs: the number of epochs in the run's checkpoint; later rows are of interrupted epochs and are removed.
    """
    if folder is None:
        yield lambda row: None
        return
    rows = [row for row in read_rows(folder) if row["epoch"] < epochs]
    with new_file(folder / METRICS, force=True) as temporary:
        temporary.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with _board(folder / BOARD) as show:
        for row in rows:
            show(row)

        def add(row: Row) -> None:
            with (folder / METRICS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            show(row)

        yield add


def read_rows(folder: Path) -> list[Row]:
    """Return the rows of a run; an incomplete last line is ignored."""
    try:
        lines = (folder / METRICS).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    return [_row(line, f"{folder / METRICS}:{number}") for number, line in enumerate(lines, 1) if line.endswith("}")]


def _row(line: str, where: str) -> Row:
    try:
        row = dict(json.loads(line))
        return row | {"epoch": int(row["epoch"])}
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{where}: expected the JSON of an epoch, found {line[:40]!r}. Remove the line.") from None


def epochs_of(run: Path) -> int:
    """Return the number of epochs that a run has logged."""
    return 1 + max((row["epoch"] for row in read_rows(run)), default=-1)


@contextmanager
def _board(folder: Path) -> Iterator[Callable[[Row], None]]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        yield lambda row: None
        return
    for path in folder.glob("events.out.tfevents.*"):
        path.unlink()
    # purge_step makes an open TensorBoard drop what it has read of the run.
    with SummaryWriter(str(folder), purge_step=0) as writer:

        def show(row: Row) -> None:
            for name, value in row.items():
                if name != "epoch":
                    writer.add_scalar(name, value, row["epoch"])
            writer.flush()

        yield show

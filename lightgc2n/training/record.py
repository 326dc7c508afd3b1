"""What every epoch said: a line in metrics.jsonl and, where TensorBoard is installed, its scalars in tensorboard/.

The lines are the truth. TensorBoard's files are made from them anew when a run goes on, so no epoch stands there twice.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightgc2n.data.files import new_file
from lightgc2n.errors import DataError

METRICS, BOARD = "metrics.jsonl", "tensorboard"
Row = dict[str, Any]


@contextmanager
def recording(folder: Path | None, epochs: int) -> Iterator[Callable[[Row], None]]:
    """A function that writes down one epoch's row; without a folder it does nothing.

    Args:
        epochs: how many epochs the run's checkpoint has; later rows are those of an epoch that was cut off.
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
    """The rows of a run; a line that was cut off while it was written does not count."""
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
        raise DataError(f"{where}: expected an epoch of a run, found {line[:40]!r}. Take the line out.") from None


def epochs_of(run: Path) -> int:
    """How many epochs a run has written down so far."""
    return 1 + max((row["epoch"] for row in read_rows(run)), default=-1)


@contextmanager
def _board(folder: Path) -> Iterator[Callable[[Row], None]]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        yield lambda row: None
        return
    shutil.rmtree(folder, ignore_errors=True)
    # What a TensorBoard that is open already has read of the run is dropped too.
    with SummaryWriter(str(folder), purge_step=0) as writer:

        def show(row: Row) -> None:
            for name, value in row.items():
                if name != "epoch":
                    writer.add_scalar(name, value, row["epoch"])
            writer.flush()

        yield show

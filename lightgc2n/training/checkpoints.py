"""The progress of a run on disk: checkpoints, the log of its epochs, and warm starts from its best checkpoint.

A checkpoint holds the tensors of model and optimizer in one safetensors file, with the progress as JSON metadata. All
random numbers of an epoch follow from the seed and the number of the epoch, so no generator state is saved.
The log is a line per epoch in metrics.jsonl and, where TensorBoard is installed, scalars in tensorboard/. metrics.jsonl
is authoritative: when a run resumes, its own TensorBoard files are rewritten from it.

Warm start: a model on newer data starts from the weights of a run; rows of accounts and items are remapped by id.

The row of a new account or item is the mean of all rows of the run, as in the fold-in of unseen accounts. New items
then rank in the middle; with random rows, which training has not pushed down, they would rank first.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.optim import Adam

from lightgc2n.data.dataset import Dataset, Longs, read_ids
from lightgc2n.errors import DataError, OutputError, SettingError, option
from lightgc2n.files.atomic_writes import new_file
from lightgc2n.models.contract import Model

BEST, LAST = "best.safetensors", "last.safetensors"
OPTIMIZER = "optimizer."  # prefix of the optimizer's tensors
SCHEMA = 1  # raise it when older code could not read a new checkpoint; checkpoints without a number have schema 0
METRICS, BOARD = "metrics.jsonl", "tensorboard"
OWN_EVENTS = ".lightgc2n"  # end of the names of our event files; those of other programs stay
EVENTS = f"events.out.tfevents.*{OWN_EVENTS}"
Row = dict[str, Any]
VOCABULARIES = ("accounts", "items")
WHOLE = "whole"


@dataclass
class Progress:
    """How far a run has been trained, and its best validation value."""

    epochs: int = 0  # finished epochs
    best_epoch: int = -1
    best_value: float = -1.0  # best value of the validation metric
    seconds: float = 0.0  # spent on training, without evaluation
    ended_by: str = ""  # patience, budget, forget or counted; empty while it is unfinished
    peak_bytes: int = 0  # the largest peak memory of all processes that trained it


def save_checkpoint(path: Path, model: nn.Module, optimizer: Adam | None, progress: Progress) -> None:
    """Write model, optimizer and progress to one file, atomically."""
    write_checkpoint(path, checkpoint_tensors(model, optimizer), progress)


def checkpoint_tensors(model: nn.Module, optimizer: Adam | None) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint by name."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    return tensors if optimizer is None else tensors | _optimizer_tensors(model, optimizer)


def write_checkpoint(path: Path, tensors: dict[str, Tensor], progress: Progress) -> None:
    """Write the tensors of a checkpoint and the progress to one file, atomically."""
    try:
        with new_file(path, force=True) as temporary:
            metadata = {"schema": str(SCHEMA), "progress": json.dumps(asdict(progress))}
            temporary.write_bytes(save(tensors, metadata))  # save_file would replace the locked file by its own
    except (OSError, SafetensorError, OutputError) as problem:
        again = option("rerun the command", "call train again")
        raise OutputError(f"{path}: cannot be written: {problem}. Free disk space, then {again} to resume.") from None


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Tensor], Progress]:
    """Return the tensors of the model, the tensors of the optimizer, and the progress.

    Raises:
        DataError: the file is missing, is not a checkpoint, or was written by a newer version.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            _refuse_newer(path, int(metadata.get("schema", 0)))
            progress = Progress(**json.loads(metadata["progress"]))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise DataError(f"{path}: no such checkpoint. A run writes it at the end of its first epoch.") from None
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as problem:
        raise DataError(f"{path}: not a checkpoint of a run: {problem}. Train the run again.") from None
    own = {name: tensor for name, tensor in tensors.items() if not name.startswith(OPTIMIZER)}
    moments = {name.removeprefix(OPTIMIZER): tensor for name, tensor in tensors.items() if name.startswith(OPTIMIZER)}
    return own, moments, progress


def _refuse_newer(path: Path, schema: int) -> None:
    if schema > SCHEMA:
        raise DataError(
            f"{path}: checkpoint schema {schema}, written by a newer lightgc2n; this version reads up to {SCHEMA}. "
            f"Upgrade lightgc2n, or train the run again."
        )


def restore_optimizer(model: nn.Module, optimizer: Adam, tensors: dict[str, Tensor]) -> None:
    """Restore the saved moments of the optimizer."""
    on_device = optimizer.defaults["capturable"]  # a captured step counts on the GPU
    for name, parameter in model.named_parameters():
        saved = {
            part: tensors[f"{part}.{name}"] for part in ("step", "exp_avg", "exp_avg_sq") if f"{part}.{name}" in tensors
        }
        if saved:
            optimizer.state[parameter] = {
                part: tensor if part == "step" and not on_device else tensor.to(parameter.device)
                for part, tensor in saved.items()
            }


def _optimizer_tensors(model: nn.Module, optimizer: Adam) -> dict[str, Tensor]:
    tensors = {}
    for name, parameter in model.named_parameters():
        for part, value in optimizer.state.get(parameter, {}).items():
            tensor = value if isinstance(value, Tensor) else torch.tensor(float(value))
            tensors[f"{OPTIMIZER}{part}.{name}"] = tensor.detach().cpu().contiguous()
    return tensors


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
    for path in folder.glob(EVENTS):
        path.unlink()
    # purge_step makes an open TensorBoard drop what it has read of the run.
    with SummaryWriter(str(folder), purge_step=0, filename_suffix=OWN_EVENTS) as writer:

        def show(row: Row) -> None:
            for name, value in row.items():
                if name != "epoch":
                    writer.add_scalar(name, value, row["epoch"])
            writer.flush()

        yield show


def vocabulary_files() -> list[str]:
    """Return the names of the files with the ids of a run."""
    return [f"{kind}.txt" for kind in VOCABULARIES]


def write_vocabularies(run: Path, dataset: Dataset) -> None:
    """Write the ids of accounts and items into the run, so that it does not need its dataset for a warm start."""
    for kind, file in zip(VOCABULARIES, vocabulary_files(), strict=True):
        if not (run / file).exists():
            with new_file(run / file, force=True) as temporary:
                temporary.write_bytes("".join(f"{one}\n" for one in getattr(dataset, kind)).encode("utf-8"))


@torch.no_grad()
def warm_start(model: Model, dataset: Dataset, run: Path) -> None:
    """Copy the best weights of a run into a new model; graphs and counts stay those of the new data."""
    learned = load_checkpoint(run / BEST)[0]
    places = {kind: places_in_run(run, kind, getattr(dataset, kind)) for kind in VOCABULARIES}
    if bool((places["items"] < 0).all()):
        raise DataError(f"{run}: has no item in common with {dataset.name}. Train without a warm start.")
    tensors, kinds = (
        model.state_dict(),
        {name: WHOLE for name, _ in model.named_parameters()} | model.warm_start_tensors(),
    )
    for name, kind in kinds.items():
        own, by_rows = tensors[name], int(kind != WHOLE)
        if name not in learned or learned[name].shape[by_rows:] != own.shape[by_rows:]:
            shape = tuple(learned[name].shape) if name in learned else "missing"
            raise SettingError(
                f"{run}: its {name} is {shape}, this model needs {tuple(own.shape)}. Use the settings of the run."
            )
        own.copy_(_remapped(learned[name], own, places[kind]) if by_rows else learned[name])


def places_in_run(run: Path, kind: str, wanted: Sequence[str]) -> Longs:
    """The row of each id in the run; -1 for a new id."""
    path = run / f"{kind}.txt"
    if not path.is_file():
        raise DataError(f"{path}: missing. Rerun the command that trained {run} to write it.")
    known = {one: place for place, one in enumerate(read_ids(path))}
    return np.array([known.get(one, -1) for one in wanted], dtype=np.int64)


def _remapped(learned: Tensor, own: Tensor, places: Longs) -> Tensor:
    """The rows of the run in the order of the new data; new rows are the mean, or unchanged in integer tensors."""
    place = torch.from_numpy(places)
    known = (place >= 0).view(-1, *[1] * (learned.dim() - 1))
    new: Any = learned.mean(dim=0) if learned.is_floating_point() else own.cpu()
    return torch.where(known, learned[place.clamp(min=0)], new)

"""Checkpoints: the tensors of model and optimizer in one safetensors file, with the progress as JSON metadata.

All random numbers of an epoch follow from the seed and the number of the epoch, so no generator state is saved.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.optim import Adam

from lightgc2n.errors import DataError, OutputError, option
from lightgc2n.files.atomic_writes import new_file

OPTIMIZER = "optimizer."  # prefix of the optimizer's tensors
SCHEMA = 1  # raise it when older code could not read a new checkpoint; checkpoints without a number have schema 0


@dataclass
class Progress:
    """How far a run has been trained, and its best validation value."""

    epochs: int = 0  # finished epochs
    best_epoch: int = -1
    best_value: float = -1.0  # of the validation metric
    seconds: float = 0.0  # spent on training, without evaluation
    ended_by: str = ""  # patience or budget; empty while it is unfinished
    peak_bytes: int = 0  # the largest peak memory of all processes that trained it


def save_checkpoint(path: Path, model: nn.Module, optimizer: Adam | None, progress: Progress) -> None:
    """Write model, optimizer and progress to one file, atomically."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    if optimizer is not None:
        tensors |= _optimizer_tensors(model, optimizer)
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

"""All that a stopped run needs to go on as if it had not stopped: tensors in safetensors, the rest in JSON.

What is random in an epoch is drawn anew from the seed and the epoch's number, so no generator's state is kept.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Adam

from lightgc2n.errors import DataError, OutputError

OPTIMIZER = "optimizer."


@dataclass
class Progress:
    """How far a run has come."""

    epochs: int = 0  # finished
    best_epoch: int = -1
    best_value: float = -1.0  # of the validation metric
    seconds: float = 0.0  # of training alone
    ended_by: str = ""  # patience, budget, or nothing while it runs
    peak_bytes: int = 0  # the most memory of any process that trained it


def save_checkpoint(path: Path, model: nn.Module, optimizer: Adam | None, progress: Progress) -> None:
    """Writes model, optimizer and progress to one file, which appears whole or not at all."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    if optimizer is not None:
        tensors |= _optimizer_tensors(model, optimizer)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save_file(tensors, temporary, metadata={"progress": json.dumps(asdict(progress))})
        os.replace(temporary, path)
    except (OSError, SafetensorError) as problem:
        raise OutputError(
            f"{path}: cannot be written: {problem}. Make room there; the same command goes on from the last epoch kept."
        ) from None
    finally:
        temporary.unlink(missing_ok=True)


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Tensor], Progress]:
    """The tensors of the model, those of the optimizer, and the progress."""
    try:
        with safe_open(path, framework="pt") as file:
            progress = Progress(**json.loads(file.metadata()["progress"]))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise DataError(f"{path}: no such checkpoint. Has the run finished its first epoch?") from None
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as problem:
        raise DataError(f"{path}: not a checkpoint of a run: {problem}. Train it again.") from None
    own = {name: tensor for name, tensor in tensors.items() if not name.startswith(OPTIMIZER)}
    steps = {name.removeprefix(OPTIMIZER): tensor for name, tensor in tensors.items() if name.startswith(OPTIMIZER)}
    return own, steps, progress


def restore_optimizer(model: nn.Module, optimizer: Adam, tensors: dict[str, Tensor]) -> None:
    """Puts saved moments back into the optimizer, parameter by parameter."""
    on_device = optimizer.defaults["capturable"]  # a recorded step counts its steps on the GPU
    for name, parameter in model.named_parameters():
        kept = {
            part: tensors[f"{part}.{name}"] for part in ("step", "exp_avg", "exp_avg_sq") if f"{part}.{name}" in tensors
        }
        if kept:
            optimizer.state[parameter] = {
                part: tensor if part == "step" and not on_device else tensor.to(parameter.device)
                for part, tensor in kept.items()
            }


def _optimizer_tensors(model: nn.Module, optimizer: Adam) -> dict[str, Tensor]:
    tensors = {}
    for name, parameter in model.named_parameters():
        for part, value in optimizer.state.get(parameter, {}).items():
            tensor = value if isinstance(value, Tensor) else torch.tensor(float(value))
            tensors[f"{OPTIMIZER}{part}.{name}"] = tensor.detach().cpu().contiguous()
    return tensors

"""The training loop: it adds the terms of a model's loss and never asks which model it trains."""

import math
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.optim import Adam

from lightgc2n.data.splits import Split
from lightgc2n.devices import peak_bytes
from lightgc2n.errors import ScoreError
from lightgc2n.models.contract import Model
from lightgc2n.progress import SECONDS_BETWEEN_LINES, say, step
from lightgc2n.training.checkpoints import Progress, load_checkpoint, restore_optimizer, save_checkpoint
from lightgc2n.training.record import Row, recording
from lightgc2n.training.steps import Steps, TrainingConfig

BEST, LAST = "best.safetensors", "last.safetensors"
BUDGET = "budget"  # what ended a run that had all its epochs


def train(
    model: Model,
    split: Split,
    config: TrainingConfig,
    evaluate: Callable[[Model], float] | None,
    folder: Path | None = None,
    device: str = "cpu",
    seconds: float = math.inf,
    epochs_before: int = 0,
    stop_after: float = math.inf,
) -> Progress:
    """Trains until patience or budget ends it, and leaves the best weights in the model.

    Args:
        evaluate: the validation metric, higher is better; test events never choose anything. Without it the last
            weights of the budget are taken.
        folder: where checkpoints and metrics go; a run that is there already goes on.
        seconds: the first epoch that ends later than this is the last for now; the run has then not ended.
        epochs_before: how many epochs the model has seen in another run; what it then knows is the first to be beaten.
        stop_after: so many epochs are enough for now; the run goes on when it is given more.
    """
    until = time.monotonic() + seconds
    model.to(device)
    steps = Steps(model, split.train, config, device)
    progress = _resume(model, steps.optimizer, folder)
    if progress.ended_by == BUDGET and progress.epochs < config.epochs:
        progress.ended_by = ""  # it was given more since
    best = _weights(model) if folder is None else None
    if epochs_before and not progress.epochs and evaluate is not None:
        progress.best_value = evaluate(model.eval())
        best = _keep_best(model, progress, folder)
        say(f"the weights it starts from: validation MRR@20 {100 * progress.best_value:.2f} %")
    spoke = -SECONDS_BETWEEN_LINES
    with recording(folder, progress.epochs) as record:
        while not progress.ended_by and progress.epochs < stop_after:
            epoch = progress.epochs
            started = time.perf_counter()
            losses = _epoch(model, steps, config, epochs_before + epoch)
            progress.epochs += 1
            progress.seconds += time.perf_counter() - started
            row: Row = {"epoch": epoch, **losses, "seconds": time.perf_counter() - started}
            last = progress.epochs == config.epochs
            if evaluate is None and last:
                progress.best_epoch = epoch
                best = _keep_best(model, progress, folder)
            elif evaluate is not None and (last or progress.epochs % config.evaluate_every == 0):
                model.eval()
                row["validation"] = evaluate(model)
                if row["validation"] > progress.best_value:
                    progress.best_value, progress.best_epoch = row["validation"], epoch
                    best = _keep_best(model, progress, folder)
            progress.ended_by = _end(progress, config, chosen=evaluate is not None)
            progress.peak_bytes = max(progress.peak_bytes, peak_bytes(device))
            record(row)  # before the checkpoint: a row without its checkpoint is dropped when the run goes on
            if folder is not None:
                save_checkpoint(folder / LAST, model, steps.optimizer, progress)
            if time.monotonic() - spoke > SECONDS_BETWEEN_LINES or progress.ended_by:
                spoke = time.monotonic()
                say(_sentence(row, progress, config, split))
            if time.monotonic() > until and not progress.ended_by:
                return progress
    if not progress.ended_by:
        return progress
    model.load_state_dict(best if best is not None else load_checkpoint(_path(folder, BEST))[0])
    model.eval()
    return progress


def _epoch(model: Model, steps: Steps, config: TrainingConfig, epoch: int) -> dict[str, float]:
    """One pass over the training sequences; everything random in it follows from the seed and the epoch."""
    torch.manual_seed(config.seed * 1_000_003 + epoch)
    model.train()
    model.start_epoch(epoch)
    totals: dict[str, Tensor] = {}
    count = 0
    with step(f"epoch {epoch}", total=len(steps)) as shown:
        for batch in steps.batches(epoch):
            for name, term in steps(batch).items():
                totals[name] = totals[name] + term if name in totals else term.clone()
            count += 1
            shown.advance()
    means = {name: float(total) / max(count, 1) for name, total in totals.items()}
    for name, mean in means.items():
        if not np.isfinite(mean):
            raise ScoreError(f"epoch {epoch}: the loss {name} is {mean}. Choose a smaller learning rate.")
    return means


def _end(progress: Progress, config: TrainingConfig, chosen: bool) -> str:
    if chosen and progress.epochs - 1 - progress.best_epoch >= config.patience * config.evaluate_every:
        return "patience"
    return BUDGET if progress.epochs >= config.epochs else ""


def _sentence(row: Row, progress: Progress, config: TrainingConfig, split: Split) -> str:
    """One epoch for the person who waits: losses, validation, speed, the longest it may still take, and memory."""
    steps = -(-split.train.sequences // config.batch_size)
    terms = [f"{name} {value:.3f}" for name, value in row.items() if name not in ("epoch", "seconds", "validation")]
    if "validation" in row:
        terms.append(f"validation MRR@20 {100 * row['validation']:.2f} % (best {100 * progress.best_value:.2f} %)")
    left = (config.epochs - progress.epochs) * progress.seconds / max(1, progress.epochs)
    memory = progress.peak_bytes / 1e6
    speed = f"{steps / max(row['seconds'], 1e-9):.1f} steps/s, at most {left:.0f} s left, {memory:.0f} MB"
    return f"epoch {row['epoch'] + 1}/{config.epochs}: {', '.join(terms)}; {speed}"


def _weights(model: Model) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def _keep_best(model: Model, progress: Progress, folder: Path | None) -> dict[str, Tensor] | None:
    if folder is None:
        return _weights(model)
    save_checkpoint(folder / BEST, model, None, progress)
    return None


def _resume(model: Model, optimizer: Adam, folder: Path | None) -> Progress:
    if folder is None or not (folder / LAST).is_file():
        return Progress()
    tensors, moments, progress = load_checkpoint(folder / LAST)
    model.load_state_dict(tensors)
    restore_optimizer(model, optimizer, moments)
    return progress


def _path(folder: Path | None, name: str) -> Path:
    assert folder is not None
    return folder / name

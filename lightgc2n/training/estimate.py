"""What a run will take, told before it starts: a few real steps and one evaluation of a copy, measured."""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from lightgc2n.data.splits import Split
from lightgc2n.devices import peak_bytes
from lightgc2n.models.contract import Model
from lightgc2n.training.captured import WARM_UP
from lightgc2n.training.steps import Steps, TrainingConfig

FEWEST_STEPS = 500  # a run with fewer in all is over before an estimate is of use
MOST_MEASURED, SECONDS_MEASURED = 20, 1.0


@dataclass(frozen=True)
class Estimate:
    """What training with evaluations takes, roughly: the copy meets few batches, and other work slows both."""

    epoch_seconds: float
    most_epochs: int
    bytes: int

    def __str__(self) -> str:
        most = _duration(self.epoch_seconds * self.most_epochs)
        epoch = f"about {_duration(self.epoch_seconds)} an epoch, at most {most} for {self.most_epochs} epochs"
        return f"estimate: {epoch}, about {self.bytes / 1e6:.0f} MB"


def estimate(
    model: Model, split: Split, config: TrainingConfig, evaluate: Callable[[Model], float] | None, device: str = "cpu"
) -> Estimate | None:
    """What the run will take; nothing for a tiny one. Neither the model nor what is random changes."""
    steps = -(-int((np.diff(split.train.offsets) >= 2).sum()) // config.batch_size)
    if steps * config.epochs < FEWEST_STEPS:
        return None
    on_gpu = device == "cuda"
    with torch.random.fork_rng(devices=[torch.cuda.current_device()] if on_gpu else []):
        trial = copy.deepcopy(model).to(device)
        step_seconds = _seconds_of_a_step(trial, split, config, device)
        trial.eval()
        started = time.perf_counter()
        if evaluate is not None:
            evaluate(trial)
        seconds = steps * step_seconds + (time.perf_counter() - started) / config.evaluate_every
    held = peak_bytes(device)
    if on_gpu:
        held -= sum(tensor.nbytes for tensor in trial.state_dict().values())  # the run itself has no copy
        torch.cuda.reset_peak_memory_stats()
    return Estimate(seconds, config.epochs, held)


def _seconds_of_a_step(model: Model, split: Split, config: TrainingConfig, device: str) -> float:
    """The mean over some batches of the first epoch, less the first ones, which set up what later ones reuse."""
    steps = Steps(model, split.train, config, device)
    model.train()
    model.start_epoch(0)
    moments = [_now(device)]
    for batch in steps.batches(0):
        steps(batch)
        moments.append(_now(device))
        if len(moments) > MOST_MEASURED or (moments[-1] - moments[0] > SECONDS_MEASURED and len(moments) > 3):
            break
    idle = 1 if device == "cpu" else WARM_UP + 2
    later = moments[idle:] if len(moments) > idle + 1 else moments
    return (later[-1] - later[0]) / (len(later) - 1)


def _now(device: str) -> float:
    """The time at which all steps so far are done."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def _duration(seconds: float) -> str:
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:.0f} {unit}" if seconds >= 10 * length else f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"

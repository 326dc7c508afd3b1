"""An estimate of a run's time and memory: measured on a few steps and one evaluation of a copy of the model."""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from lightgc2n.data.splits import Split
from lightgc2n.devices import device_of
from lightgc2n.models.contract import Model
from lightgc2n.progress import duration
from lightgc2n.training.cuda_graph import WARM_UP
from lightgc2n.training.loop import Steps, TrainingConfig

FEWEST_STEPS = 500  # shorter runs get no estimate
MOST_MEASURED, SECONDS_MEASURED = 20, 1.0


@dataclass(frozen=True)
class Estimate:
    """A rough estimate: it is measured on few batches, and other load on the machine slows it."""

    epoch_seconds: float
    most_epochs: int
    bytes: int

    def __str__(self) -> str:
        most = duration(self.epoch_seconds * self.most_epochs)
        epoch = f"about {duration(self.epoch_seconds)} an epoch, at most {most} for {self.most_epochs} epochs"
        return f"estimate: {epoch}, about {self.bytes / 1e6:.0f} MB"


def estimate(
    model: Model, split: Split, config: TrainingConfig, evaluate: Callable[[Model], float] | None, device: str = "cpu"
) -> Estimate | None:
    """Return the estimate; None for a tiny run. The model and the random state are not changed."""
    steps = -(-int((np.diff(split.train.offsets) >= 2).sum()) // config.batch_size)
    if steps * config.epochs < FEWEST_STEPS:
        return None
    unit = device_of(device)
    with torch.random.fork_rng(devices=unit.random_devices()):
        trial = copy.deepcopy(model).to(device)
        step_seconds = _seconds_of_a_step(trial, split, config, device)
        trial.eval()
        started = time.perf_counter()
        if evaluate is not None:
            evaluate(trial)
        seconds = steps * step_seconds + (time.perf_counter() - started) / config.evaluate_every
    peak = unit.peak_bytes()
    if unit.is_gpu:
        peak -= sum(
            tensor.nbytes for tensor in trial.state_dict().values()
        )  # without the copy, which the run does not make
        unit.reset_peak()
    return Estimate(seconds, config.epochs, peak)


def _seconds_of_a_step(model: Model, split: Split, config: TrainingConfig, device: str) -> float:
    """The mean over some batches of the first epoch, without the warm-up steps."""
    steps = Steps(model, split.train, config, device)
    model.train()
    model.start_epoch(0)
    moments = [_now(device)]
    for batch in steps.batches(0):
        steps(batch)
        moments.append(_now(device))
        if len(moments) > MOST_MEASURED or (moments[-1] - moments[0] > SECONDS_MEASURED and len(moments) > 3):
            break
    warm_up = WARM_UP + 2 if device_of(device).is_gpu else 1
    later = moments[warm_up:] if len(moments) > warm_up + 1 else moments
    return (later[-1] - later[0]) / (len(later) - 1)


def _now(device: str) -> float:
    """The time when all queued steps are done."""
    device_of(device).synchronize()
    return time.perf_counter()

"""A trial of a search: the folder of a run that goes on as far as it is allowed to."""

import json
import math
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from lightgc2n.errors import ScoreError
from lightgc2n.experiments.single import train_run
from lightgc2n.training.checkpoints import Progress, load_checkpoint
from lightgc2n.training.loop import LAST
from lightgc2n.training.record import METRICS
from lightgc2n.training.runs import plan_of

FAILED = "failed.txt"


@dataclass
class Slice:
    """The time that a call may take. It runs from the first question on, so that even a short one trains an epoch."""

    seconds: float = math.inf
    until: float | None = None

    def left(self) -> float:
        if self.until is None:
            self.until = time.monotonic() + self.seconds
        return self.until - time.monotonic()


@dataclass(frozen=True)
class Trial:
    """The run of one proposal."""

    number: int
    folder: Path

    @property
    def progress(self) -> Progress:
        return load_checkpoint(self.folder / LAST)[2] if (self.folder / LAST).is_file() else Progress()

    @property
    def failed(self) -> str:
        """Why the trial can never end well; nothing where it can."""
        path = self.folder / FAILED
        return path.read_text(encoding="utf-8").strip() if path.is_file() else ""

    def reached(self, epochs: int) -> bool:
        """Whether the trial has no more to do to be judged after so many epochs."""
        progress = self.progress
        return bool(self.failed or progress.ended_by or progress.epochs >= epochs)

    def value_after(self, epochs: int) -> float:
        """The best validation value of the first epochs; later ones, if there are any, do not count."""
        if self.failed or not (self.folder / METRICS).is_file():
            return -1.0
        lines = (self.folder / METRICS).read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines if line.endswith("}")]
        return max((row["validation"] for row in rows if row["epoch"] < epochs and "validation" in row), default=-1.0)


def take_on(trial: Trial, epochs: int, device: str, seconds: float = math.inf) -> None:
    """Trains the trial until it has so many epochs, has ended, or this has taken so long."""
    try:
        train_run(plan_of(trial.folder), trial.folder, device, seconds, stop_after=epochs)
    except (ScoreError, torch.OutOfMemoryError) as problem:
        # Settings that cannot be trained lose; they do not end the search.
        (trial.folder / FAILED).write_text(f"{problem}\n", encoding="utf-8")

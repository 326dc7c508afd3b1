"""A trial of a search: the folder of a run that goes on as far as it is allowed to.

`python -m lightgc2n.experiments.trials FOLDER EPOCHS DEVICE SECONDS` takes one trial on; a search starts this itself.
"""

import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from lightgc2n.errors import LightGC2NError, ScoreError
from lightgc2n.experiments.children import Child, Slice, as_child, run_children
from lightgc2n.experiments.single import train_run
from lightgc2n.training.checkpoints import Progress, load_checkpoint
from lightgc2n.training.loop import LAST
from lightgc2n.training.record import METRICS
from lightgc2n.training.runs import plan_of

FAILED, LOG = "failed.txt", "log.txt"


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


def take_all_on(
    trials: Sequence[Trial],
    epochs: int,
    device: str,
    at_once: int,
    time_slice: Slice,
    tell: Callable[[Trial], None],
) -> bool:
    """Whether all trials have come so far in the time they have.

    Args:
        tell: called with each trial when it has.
    """
    waiting = [trial for trial in trials if not trial.reached(epochs)]
    children = {_child(trial, epochs, device): trial for trial in waiting}

    def ended(child: Child, code: int) -> None:
        if code:
            raise LightGC2NError(f"{child.name} ended with code {code}: {child.last_word()} ({child.log})")
        if children[child].reached(epochs):
            tell(children[child])

    if at_once > 1 and len(waiting) > 1:
        run_children(children, at_once, time_slice, ended)
    else:
        for child, trial in children.items():
            if (left := time_slice.left()) > 0:
                take_on(trial, epochs, device, left)
                ended(child, 0)
    return all(trial.reached(epochs) for trial in trials)


def _child(trial: Trial, epochs: int, device: str) -> Child:
    words = (trial.folder, epochs, device)
    return Child(f"trial {trial.number}", trial.folder, trial.folder / LOG, "lightgc2n.experiments.trials", words)


if __name__ == "__main__":
    folder, epochs, device, seconds = sys.argv[1:]
    as_child(lambda: take_on(Trial(-1, Path(folder)), int(epochs), device, float(seconds)))

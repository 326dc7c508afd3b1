"""A trial of a search: a run that trains up to the epoch its rung allows, then pauses.

`python -m lightgc2n.experiments.trials FOLDER EPOCHS DEVICE SECONDS` trains one trial; a search starts this itself.
"""

import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from lightgc2n.errors import LightGC2NError, ScoreError
from lightgc2n.experiments.subprocesses import Child, Runner, TimeBudget, as_child, last_line, run_children
from lightgc2n.training.checkpoints import LAST, METRICS, Progress, load_checkpoint
from lightgc2n.training.run import OpenData, train_run
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
        """Why the trial failed; empty if it did not."""
        path = self.folder / FAILED
        return path.read_text(encoding="utf-8").strip() if path.is_file() else ""

    def reached(self, epochs: int) -> bool:
        """Return whether the trial can be judged after `epochs` epochs without more training."""
        progress = self.progress
        return bool(self.failed or progress.ended_by or progress.epochs >= epochs)

    def value_after(self, epochs: int) -> float:
        """Return the best validation value of the first `epochs` epochs."""
        if self.failed or not (self.folder / METRICS).is_file():
            return -1.0
        lines = (self.folder / METRICS).read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines if line.endswith("}")]
        return max((row["validation"] for row in rows if row["epoch"] < epochs and "validation" in row), default=-1.0)


def train_trial(
    trial: Trial, epochs: int, device: str, seconds: float = math.inf, data: OpenData | None = None
) -> None:
    """Train the trial until it has `epochs` epochs, has ended, or the time is up."""
    try:
        train_run(plan_of(trial.folder), trial.folder, device, seconds, stop_after=epochs, data=data)
    except (ScoreError, torch.OutOfMemoryError) as problem:
        # Settings that cannot be trained lose the search, but do not end it.
        (trial.folder / FAILED).write_text(f"{problem}\n", encoding="utf-8")


def train_trials(
    trials: Sequence[Trial],
    epochs: int,
    device: str,
    at_once: int,
    budget: TimeBudget,
    report: Callable[[Trial], None],
    data: OpenData,
    runner: Runner | None = None,
) -> bool:
    """Train all trials to this epoch; return whether they reached it within the time budget.

    Args:
        report: called with each trial that has reached it.
        data: the dataset and split of all trials.
        runner: trains them elsewhere; none: on this machine.
    """
    waiting = [trial for trial in trials if not trial.reached(epochs)]
    children = {_child(trial, epochs, device): trial for trial in waiting}

    def ended(child: Child, code: int) -> None:
        if code:
            raise LightGC2NError(f"{child.name} ended with code {code}: {last_line(child.log)} ({child.log})")
        if children[child].reached(epochs):
            report(children[child])

    if runner is not None and waiting:
        runner(children, at_once, budget, ended)
    elif at_once > 1 and len(waiting) > 1:
        run_children(children, at_once, budget, ended)
    else:
        for child, trial in children.items():
            if (left := budget.left()) > 0:
                train_trial(trial, epochs, device, left, data)
                ended(child, 0)
    return all(trial.reached(epochs) for trial in trials)


def _child(trial: Trial, epochs: int, device: str) -> Child:
    arguments = (trial.folder, epochs, device)
    return Child(f"trial {trial.number}", trial.folder, trial.folder / LOG, "lightgc2n.experiments.trials", arguments)


if __name__ == "__main__":
    folder, epochs, device, seconds = sys.argv[1:]
    as_child(lambda: train_trial(Trial(-1, Path(folder)), int(epochs), device, float(seconds)))

"""Trains a run in processes that are killed one after the other: `python -m tests.training.killing DATA RUN MOMENTS`.

MOMENTS is a JSON list. A number is a moment of the run in epochs: 2.5 kills in the midst of the third epoch. Words like
"rename last.safetensors" kill right before that file appears, "half last.safetensors" while it is written. After
the last moment the run may end. Forks of one process start at once, where each new Python would first import torch.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import torch

from lightgc2n.training.checkpoints import read_rows
from lightgc2n.training.loop import TrainingConfig
from lightgc2n.training.run import train_run
from lightgc2n.training.runs import RunPlan

EPOCHS = 12
TRAINING = TrainingConfig(epochs=EPOCHS, batch_size=32, patience=EPOCHS)


def plan_on(data: Path) -> RunPlan:
    return RunPlan(data, "lightgc2n", training=TRAINING)


def _die(*_: object) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def _arm(moment: str) -> None:
    """Makes this process kill itself at a file."""
    how, file = moment.split()
    replace, write = os.replace, Path.write_bytes

    def replace_or_die(source: Any, target: Any) -> None:
        (_die if Path(target).name == file else replace)(source, target)

    def write_half(path: Path, data: bytes) -> int:
        if file in path.name:
            write(path, data[: len(data) // 2])
            _die()
        return write(path, data)

    if how == "rename":
        os.replace = replace_or_die  # type: ignore[assignment]
    else:
        Path.write_bytes = write_half  # type: ignore[assignment,method-assign]


def _wait_until(epochs: float, run: Path) -> None:
    """Returns within the epoch, as far in it as the last one's length tells."""
    while len(rows := read_rows(run)) < int(epochs):
        time.sleep(0.002)
    time.sleep(epochs % 1 * (rows[-1]["seconds"] if rows else 0.1))


def killed(plan: RunPlan, run: Path, moment: float | str) -> bool:
    """Whether the run was killed at the moment, not over before."""
    child = os.fork()
    if child == 0:
        if isinstance(moment, str):
            _arm(moment)
        train_run(plan, run)
        os._exit(0)
    if not isinstance(moment, str):
        _wait_until(moment, run)
        os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    torch.set_num_threads(1)
    plan, run = plan_on(Path(sys.argv[1])), Path(sys.argv[2])
    died = sum(killed(plan, run, moment) for moment in json.loads(sys.argv[3]))
    ended = train_run(plan, run)
    print(json.dumps({"killed": died, "epochs": ended.epochs}))

"""Time of a training step of several models, taken in turn in one process.

    python benchmarks/steps.py DIR... [--models lightgc2n,lightgc2n-plus] [--device cpu|cuda] [--steps 54] [--rounds 5]

DIR is a prepared dataset of logs, read under protocol `last`; models have their first settings. A step is taken as
training takes it, making and copying of batches included: wall time on a GPU, CPU time of one thread on a CPU. Shown is
the median over the rounds, the lowest and the highest, and how many times the first model's median that is.
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from lightgc2n import zoo
from lightgc2n.data.batches import TrainingBatch
from lightgc2n.data.dataset import load_dataset
from lightgc2n.data.splits import SplitConfig, Training, split_dataset
from lightgc2n.training.loop import Steps, TrainingConfig

WARM_UP = 20  # steps: kernels are compiled, the step is recorded


def prepared(name: str, train: Training, device: str) -> tuple[Steps, Iterator[TrainingBatch]]:
    """The steps of a model and the batches of one epoch after another, the first steps taken."""
    torch.manual_seed(0)
    model = zoo.build(name, train, {}).to(device).train()
    taken = Steps(model, train, TrainingConfig(), device)
    batches = (batch for epoch in itertools.count() for batch in taken.batches(epoch))
    model.start_epoch(0)
    for batch in itertools.islice(batches, WARM_UP):
        taken(batch)
    model.start_epoch(1)
    return taken, batches


def seconds(taken: Steps, batches: Iterator[TrainingBatch], steps: int, now: Callable[[], float]) -> float:
    """Of one step, the mean of so many."""
    started = now()
    for batch in itertools.islice(batches, steps):
        taken(batch)
    return (now() - started) / steps


def waited() -> float:
    """The time when the GPU has done all it was asked for."""
    torch.cuda.synchronize()
    return time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--models", default="lightgc2n,lightgc2n-plus")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--steps", type=int, default=54)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    now = waited if given.device == "cuda" else time.process_time
    print("| data | model | ms a step | lowest - highest | times the first |\n|---|---|---:|---:|---:|")
    for folder in given.folders:
        train = split_dataset(load_dataset(folder), SplitConfig()).train
        ready = {name: prepared(name, train, given.device) for name in given.models.split(",")}
        found: dict[str, list[float]] = {name: [] for name in ready}
        for _ in range(given.rounds):
            for name, (taken, batches) in ready.items():
                found[name].append(1000 * seconds(taken, batches, given.steps, now))
        first = statistics.median(next(iter(found.values())))
        for name, times in found.items():
            middle = statistics.median(times)
            spread = f"{min(times):.2f} - {max(times):.2f}"
            print(f"| {folder.name} | {name} | {middle:.2f} | {spread} | {middle / first:.2f} |", flush=True)


if __name__ == "__main__":
    main()

"""Seconds and memory of a training step, fast layers beside plain ones.

    python benchmarks/training.py DIR [--device cpu|cuda] [--threads 1] [--steps 10]

DIR is a prepared dataset of windows. For this timing alone the graph holds all windows with their targets, so that its
size does not depend on a split. Every row is measured in a process of its own. On a CPU it is the median CPU seconds of
a step; on a GPU the time of many steps as training takes them, making and copying of batches included.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from lightgc2n.devices import peak_bytes

if TYPE_CHECKING:
    from lightgc2n.data.batches import TrainingBatch
    from lightgc2n.data.splits import Training
    from lightgc2n.models.lightgc2n.lightgc2n import LightGC2N
    from lightgc2n.training.loop import Steps

# On a GPU `layers` are the fast layers without Triton, `kernels` with it, `recorded` those replayed as a CUDA graph.
WAYS = {"cpu": ("plain", "fast"), "cuda": ("plain", "layers", "kernels", "recorded")}


def open_windows(folder: Path) -> "Training":
    """All windows of a dataset as training sequences, their last events as targets."""
    import numpy as np

    from lightgc2n.data.dataset import load_dataset
    from lightgc2n.data.splits import Training

    data = load_dataset(folder)
    return Training(
        accounts=len(data.accounts),
        items=len(data.items),
        domains=data.domains,
        sequence_accounts=np.asarray(data.sequence_accounts),
        offsets=np.asarray(data.offsets),
        events=np.asarray(data.events),
        times=None,
        targets="last",
    )


def measure(folder: Path, way: str, negatives: str, threads: int, steps: int, device: str) -> dict[str, float]:
    """One way of doing the same step, in this process."""
    if way == "layers":
        os.environ["LIGHTGC2N_KERNELS"] = "plain"
    import torch

    from lightgc2n.models.lightgc2n.ablations import build_variant
    from lightgc2n.models.lightgc2n.lightgc2n import LightGC2NConfig
    from lightgc2n.training.loop import Steps, TrainingConfig

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    train = open_windows(folder)
    model = build_variant("lightgc2n", LightGC2NConfig(negatives=negatives, dropout=0.0), train).to(device).train()
    taken = Steps(model, train, TrainingConfig(), device)
    if way == "plain":
        _replace_losses(model)
    if way in ("plain", "layers", "kernels") and device == "cuda":
        taken.run, taken.device = taken._step, "cuda"
    seconds = _on_cpu(taken, steps) if device == "cpu" else _on_gpu(taken, steps)
    peak = peak_bytes(device) / 2**20
    edges = len(model.graph.held_items), len(model.graph.step_items)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {
        "seconds": seconds,
        "peak": peak,
        "held": edges[0],
        "steps": edges[1],
        "parameters": parameters,
    }


def _replace_losses(model: "LightGC2N") -> None:
    """The equations edge by edge in place of the fast layers."""
    from plain_model import plain_losses

    model.encode = lambda: None
    model.losses = lambda _, batch: plain_losses(model, batch)


def _batches(taken: "Steps") -> "Iterator[TrainingBatch]":
    return (batch for epoch in itertools.count() for batch in taken.batches(epoch))


def _on_cpu(taken: "Steps", steps: int) -> float:
    found = []
    for batch in itertools.islice(_batches(taken), steps + 1):
        started = time.process_time()
        taken(batch)
        found.append(time.process_time() - started)
    return statistics.median(found[1:])


def _on_gpu(taken: "Steps", steps: int) -> float:
    import torch

    batches = _batches(taken)
    for batch in itertools.islice(batches, 20):  # kernels are compiled, the step is recorded
        taken(batch)
    torch.cuda.synchronize()
    started = time.perf_counter()
    for batch in itertools.islice(batches, steps):
        taken(batch)
    torch.cuda.synchronize()
    return (time.perf_counter() - started) / steps


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--device", choices=list(WAYS), default="cpu")
    parser.add_argument("--only", nargs=2)
    given = parser.parse_args()
    if given.only:
        print(json.dumps(measure(given.folder, *given.only, given.threads, given.steps, given.device)))
        return
    unit, ways = ("CPU s" if given.device == "cpu" else "ms"), WAYS[given.device]
    print(f"| negatives of Eq. 17 | layers | {unit} a step | times faster | peak MiB |\n|---|---|---|---|---|")
    for negatives in ("batch", "all"):
        found = {}
        for way in ways:
            command = [sys.executable, __file__, str(given.folder), "--threads", str(given.threads)]
            command += ["--steps", str(given.steps), "--device", given.device, "--only", way, negatives]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found[way] = json.loads(done.stdout)
        for way in ways:
            ratio = found["plain"]["seconds"] / found[way]["seconds"]
            taken = f"{found[way]['seconds']:.3f}" if given.device == "cpu" else f"{1000 * found[way]['seconds']:.2f}"
            row = [negatives, way, taken, f"{ratio:.1f}", f"{found[way]['peak']:.0f}"]
            print("| " + " | ".join(row) + " |")
    facts = found[ways[-1]]
    print(
        f"\n{facts['held']:,} account-item and {facts['steps']:,} item-item edges, {facts['parameters']:,} parameters"
    )


if __name__ == "__main__":
    main()

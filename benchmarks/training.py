"""Seconds and memory of a training step, fast layers beside plain ones: python benchmarks/training.py DIR [--threads 1]

DIR is a prepared dataset of windows. For this timing alone the graph holds all windows with their targets, so that its
size does not depend on a split. Every row is measured in a process of its own: the median CPU seconds of several steps.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

WAYS = ("fast", "plain")


def measure(folder: Path, way: str, negatives: str, threads: int, steps: int) -> dict[str, float]:
    """One way of doing the same step, in this process."""
    import numpy as np
    import torch

    from lightgc2n.data.batches import training_batches
    from lightgc2n.data.dataset import load_dataset
    from lightgc2n.data.splits import Training
    from lightgc2n.models.lightgc2n import LightGC2NConfig
    from lightgc2n.models.plain import plain_losses
    from lightgc2n.models.variants import build_variant

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    data = load_dataset(folder)
    train = Training(
        accounts=len(data.accounts),
        items=len(data.items),
        domains=data.domains,
        sequence_accounts=np.asarray(data.sequence_accounts),
        offsets=np.asarray(data.offsets),
        events=np.asarray(data.events),
        times=None,
        targets="last",
    )
    model = build_variant("lightgc2n", LightGC2NConfig(negatives=negatives, dropout=0.0), train)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    taken = []
    for number, batch in enumerate(training_batches(train, 256, np.random.default_rng(0))):
        started = time.process_time()
        optimizer.zero_grad(set_to_none=True)
        terms = plain_losses(model, batch) if way == "plain" else model.losses(model.encode(), batch)
        torch.stack(list(terms.values())).sum().backward()
        optimizer.step()
        taken.append(time.process_time() - started)
        if number == steps:
            break
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    edges = len(model.graph.held_items), len(model.graph.step_items)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {
        "seconds": statistics.median(taken[1:]),
        "peak": peak,
        "held": edges[0],
        "steps": edges[1],
        "parameters": parameters,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--only", nargs=2)
    given = parser.parse_args()
    if given.only:
        print(json.dumps(measure(given.folder, *given.only, given.threads, given.steps)))
        return
    print("| negatives of Eq. 17 | layers | CPU s a step | times faster | peak MiB |\n|---|---|---|---|---|")
    for negatives in ("batch", "all"):
        found = {}
        for way in reversed(WAYS):
            command = [sys.executable, __file__, str(given.folder), "--threads", str(given.threads)]
            command += ["--steps", str(given.steps), "--only", way, negatives]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found[way] = json.loads(done.stdout)
        for way in reversed(WAYS):
            ratio = found["plain"]["seconds"] / found[way]["seconds"]
            row = [negatives, way, f"{found[way]['seconds']:.3f}", f"{ratio:.1f}", f"{found[way]['peak']:.0f}"]
            print("| " + " | ".join(row) + " |")
    print(
        f"\n{found['fast']['held']:,} account-item and {found['fast']['steps']:,} item-item edges, "
        f"{found['fast']['parameters']:,} parameters"
    )


if __name__ == "__main__":
    main()

"""What a bundle of a trained run takes on a device, and what accuracy it keeps.

    python benchmarks/edge.py RUN... --out OUT/edge/cpu.json [--accounts 2000]

Each run is exported as floats and as bytes. The device part alone answers for a history; with the account's row of the
server part it answers as the run does. Times are of `recommend(history=..., k=20)`, one request at a time on one
thread. MRR@20 is that of test accounts; the interval of the loss resamples them. The report reads OUT/edge.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightgc2n.data.splits import split_dataset
from lightgc2n.export.write_bundle import ExportOptions, write_bundle
from lightgc2n.files.atomic_writes import new_file
from lightgc2n.metrics.intervals import interval, resampled_means
from lightgc2n.metrics.ranking import Floats, reciprocal_rank
from lightgc2n.recommending.bundle_files import part_sizes
from lightgc2n.recommending.load_bundle import load_bundle
from lightgc2n.recommending.load_run import load_run
from lightgc2n.recommending.recommender import Recommender
from lightgc2n.training.checkpoints import epochs_of
from lightgc2n.training.run import evaluate_run
from lightgc2n.training.runs import plan_of, read_run

QUESTIONS = 256


def gains(recommender: Recommender, test: Any, known: bool) -> Floats:
    """What each test target adds to MRR@20; `known`: asked with the account's id beside the history."""
    data, found = recommender.dataset, []
    for first in range(0, len(test), QUESTIONS):
        part = test.select(np.arange(first, min(first + QUESTIONS, len(test))))
        batches = []
        for account, start, stop in zip(part.account, part.start, part.stop, strict=True):
            history = [data.items[event] for event in part.events[start:stop]]
            name = data.accounts[int(account)] if known else None
            batches.append(recommender.prepare(account=name, history=history).batch)
        scores = recommender.scorer.unfiltered_scores(batches)
        rank = 1 + (scores > np.take_along_axis(scores, part.target[:, None].astype(np.int64), 1)).sum(axis=1)
        found.append(np.where(rank <= 20, 1 / rank, 0))
    return np.concatenate(found)


def milliseconds(bundle: Recommender, rounds: int) -> float:
    """The median time of an answer to a history of 20 events."""
    history = [bundle.dataset.items[item] for item in range(20)]
    times = []
    for number in range(rounds + 10):
        started = time.perf_counter()
        bundle.recommend(history=history, k=20)
        times += [1e3 * (time.perf_counter() - started)] if number >= 10 else []
    return statistics.median(times)


def rows(run: Path, accounts: int, rounds: int) -> Iterator[dict[str, Any]]:
    recommender, plan = load_run(run), plan_of(run)
    split = split_dataset(recommender.dataset, plan.split)
    chosen = np.random.default_rng(0).permutation(len(split.test))[:accounts]
    test = split.test.select(np.sort(chosen))
    (ranks,) = evaluate_run(run).ranks.values()
    of_run = reciprocal_rank(ranks[np.sort(chosen)], 20)
    width = int(plan.settings.get("capsule_width", 16))
    with tempfile.TemporaryDirectory() as folder:
        for int8 in (False, True):
            out = Path(folder) / ("int8" if int8 else "float")
            write_bundle(recommender, split, plan, out, ExportOptions(int8, people=False))
            bundle, sizes = load_bundle(out), part_sizes(out)
            took = milliseconds(bundle, rounds)
            device = sizes["device part without vocabularies"] + sizes["vocabularies"]
            for known in (False, True):
                kept = gains(bundle, test, known)
                drawn = resampled_means(np.column_stack([kept, of_run]), np.arange(len(kept)))
                low, high = interval(1 - drawn[:, 0] / drawn[:, 1])
                yield {
                    "data": recommender.dataset.name,
                    "model": plan.model,
                    "form": f"{out.name}, {'with the tables of accounts' if known else 'the history alone'}",
                    "width": width,
                    "epochs": epochs_of(run),
                    "device_mb": round(1e-6 * (device + sizes["server part"] * known), 3),
                    "milliseconds": round(took, 3),
                    "mrr": round(100 * float(kept.mean()), 3),
                    "of_run": round(100 * float(of_run.mean()), 3),
                    "loss_low": round(float(low), 5),
                    "loss_high": round(float(high), 5),
                }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--accounts", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = [row for run in given.runs for row in rows(run, given.accounts, given.rounds)]
    names = " ".join(f"runs/{run.name}" for run in given.runs)
    command = f"python benchmarks/edge.py {names} --accounts {given.accounts} --rounds {given.rounds}"
    record = {"command": command, "commit": str(read_run(given.runs[0])["commit"]), "rows": found}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with new_file(given.out, force=True) as temporary:
        temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for row in found:
        print(row, flush=True)


if __name__ == "__main__":
    main()

"""How large bundles are, how fast they answer one request, and what bytes cost in quality.

python benchmarks/serving.py RUN... [--items 126547]

Times are of `recommend(history=..., k=20)` on one thread, a raw history of 20 events in, a list of ids out; torch,
floats and bytes take turns in one process. `graph` is onnxruntime alone, with its inputs. The device part is all of a
bundle but `server/` and vocabularies, people with it where models are trained. --items adds untrained
models on a catalogue of that size, whose quality means nothing.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from lightgc2n import zoo
from lightgc2n.data.dataset import Domain, load_dataset, write_dataset
from lightgc2n.data.splits import SplitConfig, split_dataset
from lightgc2n.export.write_bundle import ExportOptions, write_bundle
from lightgc2n.models.plus.blend import Blend
from lightgc2n.models.plus.plus import LightGC2NPlus
from lightgc2n.recommending.bundle_files import part_sizes
from lightgc2n.recommending.load_bundle import load_bundle
from lightgc2n.recommending.load_run import load_run as load
from lightgc2n.recommending.load_run import run_recommender
from lightgc2n.recommending.recommender import Recommender
from lightgc2n.training.runs import RunPlan, plan_of

HISTORY, ACCOUNTS, QUESTIONS = 20, 300, 512
UNTRAINED = ("lightgc2n", "lightgc2n-plus", "lightgc2n-plus-wo-blend", "sasrec")


def untrained(name: str, items: int, folder: Path) -> tuple[Recommender, RunPlan]:
    """A model with its first weights, on random logs over a catalogue of this size."""
    random, folder = np.random.default_rng(0), folder / f"{name} {items}"
    events = np.minimum(random.zipf(1.2, size=ACCOUNTS * 40) - 1, items - 1).astype(np.int32)
    folder.mkdir()
    write_dataset(
        folder,
        name=f"{items:,} items",
        kind="logs",
        accounts=[f"a{number}" for number in range(ACCOUNTS)],
        items=[f"i{number}" for number in range(items)],
        domains=[Domain("all", 0, items)],
        offsets=np.arange(0, len(events) + 1, 40),
        sequence_accounts=np.arange(ACCOUNTS, dtype=np.int32),
        events=events,
    )
    dataset = load_dataset(folder)
    split = split_dataset(dataset, SplitConfig())
    torch.manual_seed(0)
    model = zoo.build(name, split.train)
    if isinstance(model, LightGC2NPlus):
        model.memory.balance.copy_(torch.tensor([0.0, 1.0, 10.0]))  # all that a trained one does
        if isinstance(model.blend, Blend):
            model.blend.weights.fill_(0.1)
            model.blend.mixture.fill_(1 / len(model.blend.mixture))
    return run_recommender(name, model, dataset, split.train), RunPlan(folder, name)


def milliseconds(ways: list[Callable[[], object]], rounds: int) -> list[float]:
    """The median time of each, all of them taking turns."""
    times: list[list[float]] = [[] for _ in ways]
    for number in range(rounds + 10):
        for way, found in zip(ways, times, strict=True):
            started = time.perf_counter()
            way()
            if number >= 10:
                found.append(1e3 * (time.perf_counter() - started))
    return [statistics.median(found) for found in times]


def reciprocal_rank(bundle: Recommender, plan: RunPlan, recommender: Recommender) -> float:
    """MRR@20 of the test, histories alone; training had the accounts too."""
    test, items, gains = split_dataset(recommender.dataset, plan.split).test, recommender.dataset.items, []
    for first in range(0, len(test), QUESTIONS):
        part = test.select(np.arange(first, min(first + QUESTIONS, len(test))))
        bounds = zip(part.start, part.stop, strict=True)
        histories = [[items[event] for event in part.events[start:stop]] for start, stop in bounds]
        scores = bundle.scorer.unfiltered_scores([bundle.prepare(history=history).batch for history in histories])
        rank = 1 + (scores > np.take_along_axis(scores, part.target[:, None].astype(np.int64), 1)).sum(axis=1)
        gains.append(np.where(rank <= 20, 1 / rank, 0))
    return float(np.concatenate(gains).mean())


def rows(recommender: Recommender, plan: RunPlan, rounds: int, folder: Path, trained: bool) -> Iterator[str]:
    items = len(recommender.dataset.items)
    event = recommender.dataset.events[: 20 * HISTORY : 20]
    history = [recommender.dataset.items[item] for item in event]
    bundles = []
    for int8 in (False, True):
        out = folder / ("int8" if int8 else "float")
        write_bundle(
            recommender,
            split_dataset(recommender.dataset, plan.split),
            plan,
            out,
            ExportOptions(int8, people=trained),
            force=True,
        )
        bundles.append((load_bundle(out), part_sizes(out)))
    graphs = [lambda bundle=bundle: next(bundle.scorer.top_items([bundle.prepare(history=history).batch]))
              for bundle, _ in bundles]  # fmt: skip
    ways = [recommender, *(bundle for bundle, _ in bundles)]
    asked = [lambda way=way: way.recommend(history=history, k=20) for way in ways]
    torch_ms, *bundle_ms = milliseconds([*asked, *graphs], rounds)
    yield f"| {recommender.name} | {items:,} | torch | | | | | {torch_ms:.2f} | | 1.0 | |"
    quality = ["", ""]
    if trained:
        found = [reciprocal_rank(bundle, plan, recommender) for bundle, _ in bundles]
        quality = [f"{100 * one:.2f} % ({100 * one / found[0]:.1f} %)" for one in found]
    for number, (form, (_, sizes)) in enumerate(zip(("float", "int8"), bundles, strict=True)):
        size = " | ".join(f"{1e-6 * count:.3f}" for count in sizes.values())
        times = f"{bundle_ms[number]:.3f} | {bundle_ms[number + 2]:.3f} | {bundle_ms[number] / torch_ms:.2f}"
        yield f"| {recommender.name} | {items:,} | {form} | {size} | {times} | {quality[number]} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--items", type=int, nargs="*", default=[])
    parser.add_argument("--rounds", type=int, default=300)
    given = parser.parse_args()
    torch.set_num_threads(1)
    sizes = "device MB | of it people | vocabulary MB | server MB"
    print(f"| model | items | form | {sizes} | ms p50 | graph ms | of torch | MRR@20 |")
    print("|---" * 11 + "|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for run in given.runs:
            for row in rows(load(run), plan_of(run), given.rounds, Path(folder), trained=True):
                print(row, flush=True)
        for items in given.items:
            for name in UNTRAINED:
                for row in rows(*untrained(name, items, Path(folder)), given.rounds, Path(folder), trained=False):
                    print(row, flush=True)


if __name__ == "__main__":
    main()

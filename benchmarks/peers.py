"""Models of this project beside those of RecTools: seconds an epoch, memory, and how good their lists are.

    python benchmarks/peers.py DIR --peer-env ENV [--rounds 3] [--epochs 6] [--threads 2]

DIR is a prepared dataset of logs. ENV is an environment for RecTools alone; where there is none, it is made, with pip.
Both sides learn from the same events, all but the last two of each account, and list items for the same histories, all
but the last event, nothing left out of a list. Every model is fitted in a process of its own, the two sides take turns,
and the seed is the number of the round. What RecTools may see goes to it as one .npz without any target; lists of items
come back, and one function finds the targets in the lists of both sides.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import load_dataset
from lightgc2n.data.splits import Split, SplitConfig, ranges, split_dataset
from lightgc2n.devices import peak_bytes
from lightgc2n.metrics.ranking import gains

if TYPE_CHECKING:
    from lightgc2n.models.contract import Model

RECTOOLS = ("rectools[torch]==0.19.0", "torch==2.13.0", "numpy<2")
RECTOOLS_SIDE = Path(__file__).parent / "rectools_side.py"
CUTOFFS, LIST_LENGTH = (5, 20), 20
HEADINGS = ("s an epoch", "lowest - highest", "RecTools' / ours", "s to fit", "CPU s to fit", "peak MiB")
SHOWN = ("RC@5", "RC@20", "MRR@5", "MRR@20")
OURS, THEIRS = "lightgc2n", "RecTools"
# In the order of the table; in a round the sides take turns.
CONTESTANTS = ((OURS, "sasrec"), (THEIRS, "sasrec"), (OURS, "item-knn"), (THEIRS, "item-knn"), (THEIRS, "ease"))
NAMES = {(THEIRS, "sasrec"): "SASRec", (THEIRS, "item-knn"): "ItemKNN (TF-IDF)", (THEIRS, "ease"): "EASE"}

Lists = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Settings:
    """What both sides are told; where a side has more to set, it keeps its own defaults."""

    width: int = 64
    blocks: int = 2
    heads: int = 2
    max_length: int = 30
    dropout: float = 0.2
    batch_size: int = 128
    learning_rate: float = 0.001
    epochs: int = 6
    threads: int = 2
    list_length: int = LIST_LENGTH
    seed: int = 0


@dataclass
class Found:
    """What the rounds of one model have found."""

    epochs: list[float] = field(default_factory=list)
    fits: list[float] = field(default_factory=list)
    works: list[float] = field(default_factory=list)  # CPU seconds of a fit
    peaks: list[float] = field(default_factory=list)
    metrics: list[dict[str, float]] = field(default_factory=list)

    @property
    def epoch(self) -> float | None:
        """The median over all epochs of all rounds."""
        return statistics.median(self.epochs) if self.epochs else None

    def add(self, cost: dict[str, Any], metrics: dict[str, float]) -> None:
        """One round more."""
        self.epochs += cost["epochs"]
        self.fits.append(cost["fit"])
        self.works.append(cost["work"])
        self.peaks.append(cost["peak"])
        self.metrics.append(metrics)

    def mean(self, metric: str) -> float:
        return statistics.mean(found[metric] for found in self.metrics)


def open_split(folder: Path) -> Split:
    return split_dataset(load_dataset(folder), SplitConfig(protocol="last"))


def task_of(split: Split) -> dict[str, npt.NDArray[Any]]:
    """What RecTools may see: the training events, and the histories of the accounts that are asked; never a target."""
    train, test = split.train, split.test
    places, _ = ranges(test.start, test.stop)
    return {
        "train_account": np.repeat(train.sequence_accounts, np.diff(train.offsets)),
        "train_item": train.events,
        "history_account": np.repeat(test.owner, test.stop - test.start),
        "history_item": np.asarray(test.events[places]),
        "asked": test.owner,
    }


def ranks_in(lists: Lists, target: npt.NDArray[Any], learned: npt.NDArray[np.bool_]) -> Floats:
    """At which place of its list each target stands, infinite if at none.

    Args:
        learned: which items have training events. Another target is a miss: nothing but luck would have listed it.
    """
    hit = (lists == target[:, None]) & learned[target][:, None]
    return np.where(hit.any(axis=1), hit.argmax(axis=1) + 1.0, np.inf)


def metrics_of(lists: Lists, split: Split) -> dict[str, float]:
    """The metrics of the lists of either side."""
    assert lists.shape == (len(split.test), LIST_LENGTH)
    ranks = ranks_in(lists, split.test.target, split.train.popularity > 0)
    return {name: float(column.mean()) for name, column in gains(ranks, CUTOFFS).items()}


def fit_ours(folder: Path, way: str, settings: Settings, lists: Path) -> dict[str, Any]:
    """Our side, in this process: what fitting costs; the lists are written."""
    import torch

    from lightgc2n.data.batches import query_batches
    from lightgc2n.training.run import new_model
    from lightgc2n.training.runs import versions

    torch.set_num_threads(settings.threads)
    split = open_split(folder)
    started, worked = time.perf_counter(), time.process_time()
    if way == "sasrec":
        model, epochs = _trained(split, settings)
    else:
        model, epochs = new_model(way, split, {}, settings.seed), []
        model.calibrate(lambda: query_batches(split.validation, 512))
    cost = {"fit": time.perf_counter() - started, "work": time.process_time() - worked}
    np.save(lists, _lists(model, split), allow_pickle=False)
    return cost | {"epochs": epochs, "peak": peak_bytes("cpu"), "versions": versions()}


def _trained(split: Split, settings: Settings) -> "tuple[Model, list[float]]":
    """SASRec after all epochs, none of them chosen, and the seconds of each."""
    from lightgc2n.training.checkpoints import read_rows
    from lightgc2n.training.loop import TrainingConfig, train
    from lightgc2n.training.run import new_model

    told, names = asdict(settings), ("width", "blocks", "heads", "max_length", "dropout")
    same = {"loss": "softmax", "tied": True}  # RecTools too scores items with the table that it reads
    model = new_model("sasrec", split, same | {name: told[name] for name in names}, settings.seed)
    training = TrainingConfig(**{name: told[name] for name in ("epochs", "batch_size", "learning_rate", "seed")})
    with tempfile.TemporaryDirectory() as run:
        train(model, split, training, evaluate=None, folder=Path(run))
        return model, [row["seconds"] for row in read_rows(Path(run))]


def _lists(model: "Model", split: Split) -> Lists:
    import torch

    from lightgc2n.data.batches import query_batches
    from lightgc2n.data.dataset import Domain
    from lightgc2n.metrics.ranks import rows_per_tile
    from lightgc2n.recommending.load_run import best_items

    items = split.train.items
    lists = np.full((len(split.test), LIST_LENGTH), -1, dtype=np.int64)
    first = 0
    with torch.no_grad():
        encoded, catalogue = model.encode(), Domain("all", 0, items)
        for asked in query_batches(split.test, rows_per_tile(items)):
            best = best_items(model.scores(encoded, asked.batch, catalogue), LIST_LENGTH)[1]
            lists[first : first + len(best), : best.shape[1]] = best.numpy()
            first += len(best)
    return lists


def peer_python(environment: Path) -> Path:
    """The Python of RecTools' environment, which is made where it is not there."""
    python = environment / "bin" / "python"
    asked = [str(python), "-c", "from importlib.metadata import version; print(version('rectools'))"]
    if python.exists() and subprocess.run(asked, capture_output=True, check=False).returncode == 0:
        return python
    print(f"making {environment} with {', '.join(RECTOOLS)}", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", *RECTOOLS], check=True, stdout=sys.stderr)
    return python


def run_once(
    side: str, way: str, given: argparse.Namespace, settings: Settings, task: Path
) -> tuple[dict[str, Any], Lists]:
    """One model in a process of its own: what it costs, and its lists."""
    lists, told = task.with_name("lists.npy"), json.dumps(asdict(settings))
    if side == OURS:
        command = [sys.executable, __file__, str(given.folder), "--only", way, str(lists), told]
    else:
        command = [str(peer_python(given.peer_env)), str(RECTOOLS_SIDE), way, str(task), str(lists), told]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(settings.threads))
    environment = os.environ | threads | {"CUDA_VISIBLE_DEVICES": ""}
    if side == THEIRS:
        environment.pop("PYTHONPATH", None)
    done = subprocess.run(command, env=environment, cwd=task.parent, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return found, np.load(lists, allow_pickle=False)


def report(found: dict[tuple[str, str], Found]) -> str:
    """All models as a table, the speed of ours beside that of the same model of RecTools."""
    lines = ["| " + " | ".join(["", *HEADINGS, *SHOWN]) + " |", "|---" + "|---:" * len([*HEADINGS, *SHOWN]) + "|"]
    for (side, way), model in found.items():
        theirs = found.get((THEIRS, way))
        epoch, spread, ratio = "", "", ""
        if model.epoch:
            epoch, spread = f"{model.epoch:.2f}", f"{min(model.epochs):.2f} - {max(model.epochs):.2f}"
        if side == OURS and model.epoch and theirs and theirs.epoch:
            ratio = f"{theirs.epoch / model.epoch:.1f}"
        cells = [f"{side}: {NAMES.get((side, way), way)}", epoch, spread, ratio]
        cells += [f"{statistics.median(model.fits):.1f}", f"{statistics.median(model.works):.1f}"]
        cells += [f"{max(model.peaks) / 2**20:.0f}"]
        lines.append("| " + " | ".join([*cells, *(f"{100 * model.mean(name):.2f}" for name in SHOWN)]) + " |")
    return "\n".join(lines)


def compare(given: argparse.Namespace) -> None:
    split, python = open_split(given.folder), peer_python(given.peer_env)
    print(f"RecTools in {python.parents[1]}; load before: {os.getloadavg()[0]:.2f}", file=sys.stderr)
    found = {contestant: Found() for contestant in CONTESTANTS}
    versions: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        task = Path(folder) / "task.npz"
        np.savez(task, **task_of(split))
        for number in range(given.rounds):
            for side, way in CONTESTANTS:
                settings = Settings(epochs=given.epochs, threads=given.threads, seed=number)
                cost, lists = run_once(side, way, given, settings, task)
                metrics, versions[side] = metrics_of(lists, split), cost["versions"]
                found[side, way].add(cost, metrics)
                values = ", ".join(f"{name} {100 * metrics[name]:.2f}" for name in SHOWN)
                after = f"load {os.getloadavg()[0]:.2f}"
                print(f"round {number}, {side} {way}: {cost['fit']:.1f} s, {values}; {after}", file=sys.stderr)
    print(report(found))
    print(f"\n{len(split.test):,} targets, {split.train.items:,} items, {len(split.train.events):,} training events,")
    print(f"{given.epochs} epochs, {given.threads} threads, {given.rounds} rounds, load after {os.getloadavg()[0]:.2f}")
    for side, names in versions.items():
        print(f"{side}: " + ", ".join(f"{name} {number}" for name, number in names.items()))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=lambda path: Path(path).resolve())
    # Not resolved: the Python of an environment is a link to another one.
    parser.add_argument("--peer-env", type=lambda path: Path(path).absolute())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        way, lists, settings = given.only
        print(json.dumps(fit_ours(given.folder, way, Settings(**json.loads(settings)), Path(lists))))
    elif given.peer_env is None:
        parser.error("--peer-env DIR: say where RecTools is, or where it should be installed")
    else:
        compare(given)


if __name__ == "__main__":
    main()

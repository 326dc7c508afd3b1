"""Training one run, from its data to trained weights, and evaluating it."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from lightgc2n import zoo
from lightgc2n.data.batches import Batch
from lightgc2n.data.dataset import Dataset, Domain, load_dataset, verify_dataset
from lightgc2n.data.rolling_origins import rolling_origins
from lightgc2n.data.splits import Split, SplitConfig, split_dataset
from lightgc2n.errors import DataError
from lightgc2n.metrics.ranking import SELECTION_CUTOFF, Floats, reciprocal_rank
from lightgc2n.metrics.ranks import Scorer, batches_in_domains, ranks_in_domains
from lightgc2n.models.contract import Model, Origin
from lightgc2n.progress import say
from lightgc2n.training.checkpoints import BEST, LAST, Progress, load_checkpoint, save_checkpoint, warm_start
from lightgc2n.training.loop import COUNTED, TrainingConfig, estimate, resume_from, train
from lightgc2n.training.runs import (
    TESTED,
    RunPlan,
    epochs_before,
    is_refreshed,
    load_run,
    plan_of,
    read_run,
    refuse_other_data,
    sole_trainer,
    start_run,
)

OpenData = tuple[Dataset, Split]  # loaded, verified against its checksums, and split


class DataCache:
    """The datasets of one command, each loaded and hashed once, and the last split, for the runs that share it."""

    def __init__(self) -> None:
        self._datasets: dict[Path, Dataset] = {}
        self._verified: set[Path] = set()
        self._last: tuple[tuple[Path, str, SplitConfig], OpenData] | None = None

    def load(self, folder: Path) -> Dataset:
        """The dataset in `folder`, its files not yet hashed."""
        if folder not in self._datasets:
            self._datasets[folder] = load_dataset(folder)
        return self._datasets[folder]

    def open(self, plan: RunPlan) -> OpenData:
        """Return the plan's dataset, or one domain of it, and its split."""
        key = (plan.data, plan.domain, plan.split)
        if self._last is None or self._last[0] != key:
            dataset = self.load(plan.data)
            if plan.data not in self._verified:
                verify_dataset(plan.data)
                self._verified.add(plan.data)
            dataset = dataset.only(plan.domain) if plan.domain else dataset
            self._last = (key, (dataset, split_dataset(dataset, plan.split)))
        return self._last[1]


def open_data(plan: RunPlan) -> OpenData:
    """Return the plan's dataset, or one domain of it, and its split."""
    return DataCache().open(plan)


def train_run(
    plan: RunPlan,
    folder: Path,
    device: str = "cpu",
    seconds: float = math.inf,
    stop_after: float = math.inf,
    data: OpenData | None = None,
) -> Progress:
    """Train the planned model in `folder`, or resume an interrupted run there.

    Args:
        seconds: time budget; the run pauses at the end of the epoch that exceeds it, and can resume.
        stop_after: the run pauses when it has this many epochs.
        data: the plan's dataset and split, if they are loaded already.
    """
    started = time.monotonic()
    dataset, split = data or open_data(plan)
    evaluate = None if zoo.entry_of(plan.model).is_simple else validation(split, device)
    start_run(folder, plan, dataset)
    with sole_trainer(folder):
        model = new_model(plan.model, split, plan.settings, plan.training.seed)
        if zoo.entry_of(plan.model).is_simple:
            return _count(folder, model, split, device, started)
        checkpoint = resume_from(folder)
        if checkpoint.name == BEST:
            say(f"{folder}: training has ended, and accounts were removed since; the weights stay as they are")
        if plan.from_run is not None and not checkpoint.exists():
            warm_start(model, dataset, plan.from_run)
        if not checkpoint.exists() and (cost := estimate(model, split, plan.training, evaluate, device)):
            say(str(cost))
        left = seconds - (time.monotonic() - started)
        progress = train(model, split, plan.training, evaluate, folder, device, left, epochs_before(folder), stop_after)
        finish_run(folder, model, split, progress, device)
        return progress


def _count(folder: Path, model: Model, split: Split, device: str, started: float) -> Progress:
    """Store a simple baseline, which has counted all that it needs, in its run; one that is there stays."""
    if (folder / BEST).is_file():
        return load_checkpoint(folder / BEST)[2]
    progress = Progress(ended_by=COUNTED)
    if len(split.validation):
        mrr = validation(split, device)
        progress.best_value = mrr(model.to(device).eval()) if mrr is not None else -1.0
    progress.seconds = time.monotonic() - started
    for name in (BEST, LAST):
        save_checkpoint(folder / name, model, None, progress)
    return progress


def finish_run(folder: Path, model: Model, split: Split, progress: Progress, device: str) -> None:
    """Fit what is left to fit in the model of a run whose training has ended, and store it in the run.

    A run that has been tested stays as it is: an earlier version, which fitted less, made it.
    """
    if (folder / TESTED).exists():
        return
    if progress.ended_by and finish(model, split, device):
        save_checkpoint(folder / BEST, model, None, load_checkpoint(folder / BEST)[2])


def train_in_memory(
    name: str, split: Split, settings: dict[str, Any], training: TrainingConfig, device: str = "cpu"
) -> tuple[Model, Progress]:
    """A trained model without a run folder."""
    model = new_model(name, split, settings, training.seed)
    progress = train(model, split, training, validation(split, device), None, device)
    finish(model, split, device)
    return model, progress


def finish(model: Model, split: Split, device: str) -> bool:
    """Fit the parts that are fitted once after training; return whether that changed anything."""
    before = model.fitted()
    if not len(split.validation) or model.is_finished:
        return False
    model.finish(partial(_origins, split, device))
    return model.fitted() != before


def _origins(split: Split, device: str) -> Iterator[Origin]:
    """The validation queries; under a split by time at several times, each with the events known then."""
    if split.known is None:
        yield Origin(None, partial(batches_in_domains, split.validation, split.catalogues, device))
        return
    for known, queries in rolling_origins(split):
        yield Origin(known, partial(batches_in_domains, queries, split.catalogues, device))


def new_model(name: str, split: Split, settings: dict[str, Any], seed: int) -> Model:
    """An untrained model, its weights drawn from the seed."""
    torch.manual_seed(seed)
    return zoo.build(name, split.train, settings)


def validation(split: Split, device: str) -> Callable[[Model], float] | None:
    """A function that returns a model's validation MRR; None if the split was made without validation targets."""
    if not split.config.validation:
        return None
    if len(split.validation) == 0:
        raise DataError("no validation targets: the logs are too short to train on. Use a simple baseline.")

    def mrr(model: Model) -> float:
        model.calibrate(lambda: batches_in_domains(split.validation, split.catalogues, device))
        learned = (split.train.popularity > 0) | model.scores_unseen_items
        name = type(model).__name__
        ranks = ranks_in_domains(name, model, split.validation, split.catalogues, learned=learned, device=device)
        return float(reciprocal_rank(ranks, SELECTION_CUTOFF).mean())

    return mrr


def ready_for_test(model: Model, split: Split) -> npt.NDArray[np.bool_]:
    """Update the model's counts to the events known at test time; return which items the model can score."""
    learned = (split.train.popularity > 0) | model.scores_unseen_items
    if split.known is not None and model.refresh(split.known):
        learned |= split.known.popularity > 0
    return learned


@dataclass(frozen=True)
class Tested:
    """Test results of a run: for each scorer the ranks of the targets and the facts for tables."""

    dataset: Dataset
    split: Split
    ranks: dict[str, Floats]
    facts: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class _FoldedIn:
    """A model that folds in each account from its history, with or without its id."""

    model: Model
    nameless: bool

    def encode(self) -> Any:
        return self.model.encode()

    def scores(self, encoded: Any, batch: Batch, domain: Domain) -> Float[Tensor, "B M"]:
        return self.model.fold_in_scores(encoded, batch.without_account if self.nameless else batch, domain)


def evaluate_run(
    folder: Path,
    moved_to: Path | None = None,
    device: str = "cpu",
    fold_in: bool = False,
    data: OpenData | None = None,
) -> Tested:
    """Evaluate a run on its test targets; with `fold_in` also with accounts folded in from their histories.

    Args:
        moved_to: the folder of the run's dataset, if it has moved since training.
        data: the run's dataset and split, if they are loaded already.
    """
    plan = plan_of(folder)
    if is_refreshed(folder):
        raise DataError(
            f"{folder}: its counts include all events of its data, so no test target is left. "
            f"Evaluate the run that it was made from: {(read_run(folder)['from'] or {}).get('run')}."
        )
    dataset, split = data or open_data(plan if moved_to is None else replace(plan, data=moved_to))
    refuse_other_data(folder, dataset)
    name, model, progress = load_run(folder)
    model.to(device)
    scorers: dict[str, Scorer] = {name: model}
    if fold_in:
        scorers |= {f"{name}, folded in": _FoldedIn(model, False), f"{name}, history alone": _FoldedIn(model, True)}
    is_simple = progress.ended_by == COUNTED
    training = {
        "epochs": progress.epochs,
        "best_epoch": progress.best_epoch,
        "ended_by": progress.ended_by,
        "training_seconds": round(progress.seconds, 1),
        "validation": progress.best_value if plan.split.validation else None,
        "peak_memory_mb": round(progress.peak_bytes / 1e6, 1),
    }
    shared = {
        "settings": plan.settings,
        "fitted": model.fitted(),
        "parameters": sum(tensor.numel() for tensor in model.parameters()),
        "stored_numbers": sum(one.numel() for one in model.buffers()) if is_simple else model.stored_numbers,
        **({} if is_simple else training),
    }
    ranks, facts, learned = {}, {}, ready_for_test(model, split)
    for title, scorer in scorers.items():
        started = time.perf_counter()
        ranks[title] = ranks_in_domains(title, scorer, split.test, split.catalogues, learned=learned, device=device)
        facts[title] = {**shared, "seconds": round(time.perf_counter() - started, 2)}
    return Tested(dataset, split, ranks, facts)

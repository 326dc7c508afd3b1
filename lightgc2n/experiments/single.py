"""One run from data to trained weights, and its test."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
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
from lightgc2n.data.splits import UNSEEN, Split, split_dataset
from lightgc2n.errors import DataError
from lightgc2n.evaluation.metrics import Floats
from lightgc2n.evaluation.ranks import Scorer, asked_in_domains, ranks_in_domains
from lightgc2n.models.contract import Model
from lightgc2n.progress import say
from lightgc2n.training.carrying import carry_over
from lightgc2n.training.checkpoints import Progress
from lightgc2n.training.estimate import estimate
from lightgc2n.training.loop import LAST, train
from lightgc2n.training.runs import (
    RunPlan,
    epochs_before,
    load_run,
    plan_of,
    refuse_other_data,
    sole_trainer,
    start_run,
)
from lightgc2n.training.steps import TrainingConfig

CHOOSING_CUTOFF = 20  # checkpoints are chosen by validation MRR at this


def open_data(plan: RunPlan) -> tuple[Dataset, Split]:
    """The plan's dataset, or one domain of it, and its split."""
    dataset = load_dataset(plan.data)
    verify_dataset(plan.data)
    if plan.domain:
        dataset = dataset.only(plan.domain)
    return dataset, split_dataset(dataset, plan.split)


def train_run(
    plan: RunPlan, folder: Path, device: str = "cpu", seconds: float = math.inf, stop_after: float = math.inf
) -> Progress:
    """Trains the planned model in `folder`; a run that was stopped goes on.

    Args:
        seconds: stop for now at the end of the first epoch that ends later than this.
        stop_after: stop for now when the run has so many epochs.
    """
    started = time.monotonic()
    dataset, split = open_data(plan)
    evaluate = validation(split, device)
    start_run(folder, plan, dataset)
    with sole_trainer(folder):
        model = new_model(plan.model, split, plan.settings, plan.training.seed)
        if plan.from_run is not None and not (folder / LAST).exists():
            carry_over(model, dataset, plan.from_run)
        if not (folder / LAST).exists() and (taking := estimate(model, split, plan.training, evaluate, device)):
            say(str(taking))
        left = seconds - (time.monotonic() - started)
        return train(model, split, plan.training, evaluate, folder, device, left, epochs_before(folder), stop_after)


def train_in_memory(
    name: str, split: Split, settings: dict[str, Any], training: TrainingConfig, device: str = "cpu"
) -> tuple[Model, Progress]:
    """A trained model without a folder."""
    model = new_model(name, split, settings, training.seed)
    return model, train(model, split, training, validation(split, device), None, device)


def new_model(name: str, split: Split, settings: dict[str, Any], seed: int) -> Model:
    """The model with its first weights, drawn from the seed."""
    torch.manual_seed(seed)
    return zoo.build(name, split.train, settings)


def validation(split: Split, device: str) -> Callable[[Model], float] | None:
    """The function that gives a model's validation MRR; none where the split holds no validation targets out."""
    if not split.config.validation:
        return None
    if len(split.validation) == 0:
        raise DataError("no validation target: the logs are too short to train on. Use a floor.")

    def mrr(model: Model) -> float:
        model.calibrate(lambda: asked_in_domains(split.validation, split.catalogues, device))
        learned = (split.train.popularity > 0) | model.scores_unseen_items
        name = type(model).__name__
        ranks = ranks_in_domains(name, model, split.validation, split.catalogues, learned=learned, device=device)
        return float(np.where(ranks <= CHOOSING_CUTOFF, 1 / ranks, 0).mean())

    return mrr


def ready_for_test(model: Model, split: Split) -> npt.NDArray[np.bool_]:
    """Lets the model count what is known when the test is asked; says of which items it can tell anything."""
    learned = (split.train.popularity > 0) | model.scores_unseen_items
    if split.known is not None and model.refresh(split.known):
        learned |= split.known.popularity > 0
    return learned


@dataclass(frozen=True)
class Tested:
    """A run's test: the ranks of its targets, and what a table says of it, for each way of asking."""

    dataset: Dataset
    split: Split
    ranks: dict[str, Floats]
    facts: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class _FoldedIn:
    """A model that is given the history alone, and perhaps the account's name, in place of the training graph."""

    model: Model
    nameless: bool

    def encode(self) -> Any:
        return self.model.encode()

    def scores(self, encoded: Any, batch: Batch, domain: Domain) -> Float[Tensor, "B M"]:
        account = torch.full_like(batch.account, UNSEEN) if self.nameless else batch.account
        return self.model.fold_in_scores(encoded, replace(batch, account=account), domain)


def evaluate_run(folder: Path, data: Path | None = None, device: str = "cpu", fold_in: bool = False) -> Tested:
    """The test of a run; with `fold_in` also of its accounts folded in anew, and of their histories alone."""
    plan = plan_of(folder)
    if data is not None:
        plan = replace(plan, data=data)
    dataset, split = open_data(plan)
    refuse_other_data(folder, dataset)
    name, model, progress = load_run(folder)
    model.to(device)
    ways: dict[str, Scorer] = {name: model}
    if fold_in:
        ways |= {f"{name}, folded in": _FoldedIn(model, False), f"{name}, history alone": _FoldedIn(model, True)}
    shared = {
        "settings": plan.settings,
        "fitted": model.fitted(),
        "parameters": sum(tensor.numel() for tensor in model.parameters()),
        "stored_numbers": 0,
        "epochs": progress.epochs,
        "best_epoch": progress.best_epoch,
        "ended_by": progress.ended_by,
        "training_seconds": round(progress.seconds, 1),
        "validation": progress.best_value if plan.split.validation else None,
        "peak_memory_mb": round(progress.peak_bytes / 1e6, 1),
    }
    ranks, facts, learned = {}, {}, ready_for_test(model, split)
    for way, scorer in ways.items():
        started = time.perf_counter()
        ranks[way] = ranks_in_domains(way, scorer, split.test, split.catalogues, learned=learned, device=device)
        facts[way] = {**shared, "seconds": round(time.perf_counter() - started, 2)}
    return Tested(dataset, split, ranks, facts)

"""One run from data to trained weights, and its test."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightgc2n import zoo
from lightgc2n.data.dataset import Dataset, Domain, load_dataset, verify_dataset
from lightgc2n.data.splits import Split, split_dataset
from lightgc2n.errors import DataError
from lightgc2n.evaluation.metrics import Floats
from lightgc2n.evaluation.ranks import target_ranks
from lightgc2n.models.contract import Model
from lightgc2n.training.checkpoints import Progress
from lightgc2n.training.loop import TrainingConfig, train
from lightgc2n.training.runs import RunPlan, load_run, plan_of, refuse_other_data, start_run

CHOOSING_CUTOFF = 20  # checkpoints are chosen by validation MRR at this


def open_data(plan: RunPlan) -> tuple[Dataset, Split]:
    """The plan's dataset, or one domain of it, and its split."""
    dataset = load_dataset(plan.data)
    verify_dataset(plan.data)
    if plan.domain:
        dataset = dataset.only(plan.domain)
    return dataset, split_dataset(dataset, plan.split)


def train_run(plan: RunPlan, folder: Path, device: str = "cpu") -> Progress:
    """Trains the planned model in `folder`; a run that was stopped goes on."""
    dataset, split = open_data(plan)
    start_run(folder, plan, dataset)
    model = new_model(plan.model, split, plan.settings, plan.training.seed)
    return train(model, split, plan.training, validation(split, device), folder, device)


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


def validation(split: Split, device: str) -> Any:
    """The function that gives a model's validation MRR."""
    catalogue = Domain("all", 0, split.train.items)
    if len(split.validation) == 0:
        raise DataError("no validation target: the logs are too short to train on. Use a floor.")

    def mrr(model: Model) -> float:
        ranks = ranks_of("validation", model, split, catalogue, device)
        return float(np.where(ranks <= CHOOSING_CUTOFF, 1 / ranks, 0).mean())

    return mrr


def ranks_of(part: str, model: Model, split: Split, catalogue: Domain, device: str) -> Floats:
    """The rank of each target of a part of the split."""
    queries = split.validation if part == "validation" else split.test
    learned = (split.train.popularity > 0) | model.scores_unseen_items
    return target_ranks(type(model).__name__, model, queries, catalogue, learned=learned, device=device)


def evaluate_run(
    folder: Path, data: Path | None = None, device: str = "cpu"
) -> tuple[Dataset, Split, str, Floats, dict[str, Any]]:
    """The ranks of a run's test targets, and what a table says of the run."""
    plan = plan_of(folder)
    if data is not None:
        plan = RunPlan(data, plan.model, plan.domain, plan.settings, plan.split, plan.training)
    dataset, split = open_data(plan)
    refuse_other_data(folder, dataset)
    name, model, progress = load_run(folder)
    started = time.perf_counter()
    ranks = ranks_of("test", model.to(device), split, Domain("all", 0, split.train.items), device)
    facts = {
        "settings": plan.settings,
        "fitted": {},
        "parameters": sum(tensor.numel() for tensor in model.parameters()),
        "stored_numbers": 0,
        "seconds": round(time.perf_counter() - started, 2),
        "epochs": progress.epochs,
        "best_epoch": progress.best_epoch,
        "ended_by": progress.ended_by,
        "training_seconds": round(progress.seconds, 1),
    }
    return dataset, split, name, ranks, facts

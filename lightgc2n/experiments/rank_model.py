"""One model of a comparison: built or trained, then ranked on every test target."""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightgc2n import zoo
from lightgc2n.data.batches import query_batches
from lightgc2n.data.dataset import Dataset, Longs
from lightgc2n.data.splits import Queries, Split
from lightgc2n.devices import peak_bytes, reset_peak
from lightgc2n.metrics.list_quality import (
    PLACES,
    Lists,
    Surroundings,
    audience_vectors,
    category_vectors,
    list_quality,
    usual_popularity,
)
from lightgc2n.metrics.ranking import Floats
from lightgc2n.metrics.ranks import batches_in_domains, ranks_in_domains, rows_in, rows_per_tile, without_seen
from lightgc2n.models.contract import Model
from lightgc2n.progress import step
from lightgc2n.training.checkpoints import Progress
from lightgc2n.training.loop import train
from lightgc2n.training.run import finish_run, new_model, ready_for_test, train_in_memory, validation
from lightgc2n.training.runs import RunPlan, sole_trainer, start_run

EXAMPLE_PLACES = 5  # of the list of an example


@dataclass(frozen=True)
class Conditions:
    """The data, split and options that all models of a comparison share."""

    dataset: Dataset
    split: Split
    exclude_seen: bool = False
    device: str = "cpu"
    around: Surroundings | None = None  # given: also measure lists beyond accuracy
    examples: tuple[int, ...] = ()  # rows of the test queries whose lists are shown


def unfit(name: str, split: Split) -> str:
    """Why a model cannot be trained on this split; empty where it can."""
    if zoo.entry_of(name).is_simple:
        return ""
    if split.train.examples == 0:
        return "no training target: every sequence is a single event"
    needs_none = not split.config.validation  # then the last weights are used
    return "" if needs_none or len(split.validation) else "no validation target to train by: the logs are too short"


def ranked(plan: RunPlan, conditions: Conditions, run: Path | None = None) -> tuple[Floats, dict[str, Any]]:
    """The rank of each test target, and the facts that a table shows.

    Args:
        run: the run folder of a trained model, which resumes if it was interrupted; none: train in memory.
    """
    started = time.perf_counter()
    reset_peak(conditions.device)
    is_simple = zoo.entry_of(plan.model).is_simple
    model, progress = _simple(plan, conditions) if is_simple else _trained(plan, conditions, run)
    ranks = _ranks(plan.model, model, conditions)
    beyond = {} if conditions.around is None else {"beyond": _beyond(model, conditions, conditions.around)}
    shown = {"examples": _example_lists(model, conditions)} if conditions.examples else {}
    peak = max(peak_bytes(conditions.device), progress.peak_bytes)  # an earlier process may have trained the run
    return ranks, {
        "settings": asdict(model.config),
        "fitted": model.fitted(),
        "parameters": sum(tensor.numel() for tensor in model.parameters()),
        "stored_numbers": sum(tensor.numel() for tensor in model.buffers()) if is_simple else 0,
        "seconds": round(time.perf_counter() - started, 2),
        "peak_memory_mb": round(peak / 1e6, 1),
        **({} if is_simple else _training_facts(progress, plan)),
        **beyond,
        **shown,
    }


def _simple(plan: RunPlan, conditions: Conditions) -> tuple[Model, Progress]:
    split, device = conditions.split, conditions.device
    model = zoo.build(plan.model, split.train, plan.settings).to(device)
    model.calibrate(lambda: batches_in_domains(split.validation, split.catalogues, device))
    return model, Progress()


def _trained(plan: RunPlan, conditions: Conditions, run: Path | None) -> tuple[Model, Progress]:
    split, device = conditions.split, conditions.device
    if run is None:
        return train_in_memory(plan.model, split, plan.settings, plan.training, device)
    start_run(run, plan, conditions.dataset)
    with sole_trainer(run):
        model = new_model(plan.model, split, plan.settings, plan.training.seed)
        progress = train(model, split, plan.training, validation(split, device), run, device)
        finish_run(run, model, split, progress, device)
        return model, progress


def _training_facts(progress: Progress, plan: RunPlan) -> dict[str, Any]:
    return {
        "epochs": progress.epochs,
        "best_epoch": progress.best_epoch,
        "ended_by": progress.ended_by,
        "training_seconds": round(progress.seconds, 2),
        "validation": progress.best_value if plan.split.validation else None,
    }


def _ranks(name: str, model: Model, conditions: Conditions) -> Floats:
    split, device = conditions.split, conditions.device
    with step(f"{name} on {split.config.protocol}", total=len(split.test)) as progress:
        return ranks_in_domains(
            name,
            model,
            split.test,
            split.catalogues,
            learned=ready_for_test(model, split),
            exclude_seen=conditions.exclude_seen,
            device=device,
            progress=progress.advance,
        )


def surroundings(dataset: Dataset, split: Split) -> Surroundings:
    """What the lists of all models are compared with; items are similar by categories, or by accounts without these."""
    train, test = split.train, split.test
    entries = [dataset.catalogue.get(item) for item in dataset.items]
    categories = [entry.categories if entry is not None else () for entry in entries]
    if any(categories):
        vectors, of = category_vectors(categories), "categories"
    else:
        account = np.repeat(train.sequence_accounts, np.diff(train.offsets)).astype(np.int64)
        vectors, of = audience_vectors(account, train.events.astype(np.int64), train.items), "accounts who had both"
    usual = usual_popularity(train.popularity, test.start, test.stop, np.asarray(test.events, dtype=np.int64))
    return Surroundings(train.popularity, usual, vectors, of)


def _beyond(model: Model, conditions: Conditions, around: Surroundings) -> dict[str, Any]:
    """The quality of the lists beyond accuracy, each with its interval."""
    test = conditions.split.test
    lists = Lists(_lists(model, conditions, test, PLACES), test.owner.astype(np.int64))
    return {name: asdict(estimate) for name, estimate in list_quality(lists, around).items()}


def _example_lists(model: Model, conditions: Conditions) -> dict[str, list[int]]:
    """The first items of the list of each example, by the row of its query."""
    queries = conditions.split.test.select(np.array(conditions.examples))
    lists = _lists(model, conditions, queries, EXAMPLE_PLACES)
    return {str(row): best[best >= 0].tolist() for row, best in zip(conditions.examples, lists, strict=True)}


@torch.no_grad()
def _lists(model: Model, conditions: Conditions, queries: Queries, length: int) -> Longs:
    """The items of each query's list, best first; -1 where the list is shorter."""
    learned = torch.as_tensor(ready_for_test(model, conditions.split), device=conditions.device)
    lists = np.full((len(queries), length), -1, dtype=np.int64)
    encoded = model.encode()
    for domain in conditions.split.catalogues:
        places, rows = [], rows_in(queries, domain)
        for labelled in query_batches(
            queries.select(rows), rows_per_tile(len(domain), conditions.device), conditions.device
        ):
            scores = model.scores(encoded, labelled.batch, domain).clone()
            scores[:, ~learned[domain.start : domain.stop]] = -torch.inf
            scores = without_seen(scores, labelled.batch, domain) if conditions.exclude_seen else scores
            best = scores.topk(min(length, scores.shape[1]), dim=1)
            places.append(torch.where(best.values.isfinite(), best.indices + domain.start, -1).cpu().numpy())
        if places:
            lists[rows, : places[0].shape[1]] = np.concatenate(places)
    return lists

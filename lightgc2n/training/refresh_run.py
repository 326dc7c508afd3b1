"""Refreshing a run: its counted sources are brought up to the newest event of a log, without training.

The refreshed run is a folder of its own, with the learned and the fitted weights of the run over the catalogue of the
newer log. Loading it counts all events of that log, by the code that counts under a split by time.
"""

from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lightgc2n import zoo
from lightgc2n.data.dataset import Dataset, load_dataset, read_ids, verify_dataset
from lightgc2n.data.splits import Training, all_events
from lightgc2n.errors import DataError, SettingError, option
from lightgc2n.files.atomic_writes import new_folder, refuse_existing, refuse_own_input
from lightgc2n.models.contract import Model
from lightgc2n.training.checkpoints import BEST, Progress, places_in_run, save_checkpoint, write_vocabularies
from lightgc2n.training.runs import (
    REFRESHED,
    RUN_FOLDER,
    epochs_before,
    load_run,
    plan_of,
    read_run,
    sole_trainer,
    write_run,
)

TRAIN_ON_NEWER = option("lightgc2n train NEWER --from RUN --out NEWRUN", "lightgc2n.train(NEWER, from_run=RUN)")


@dataclass(frozen=True)
class Refreshed:
    """What a refreshed run counts."""

    events: int
    newest: str | None  # the time of the newest event, where times are known
    new_items: int  # items with events that the run did not have before
    new_accounts: int


def refresh_run(run: Path, data: Path, out: Path, force: bool = False) -> Refreshed:
    """Write the run to `out`, with its counts brought up to the newest event of the dataset in `data`."""
    refuse_existing(out, force)
    refuse_own_input(out, run, data)
    replaced = sole_trainer(out) if RUN_FOLDER.is_marked(out) else nullcontext()
    with sole_trainer(run), replaced, new_folder(out, force, kind=RUN_FOLDER) as new:
        dataset = _dataset_of(run, data)
        known = all_events(dataset, plan_of(run).split)
        model, progress = _refreshed_model(run, dataset, known)
        facts = _facts(run, dataset, known)
        save_checkpoint(new / BEST, model, None, progress)
        write_run(new, _description(run, data, dataset, facts))
        write_vocabularies(new, dataset)
    return facts


def _dataset_of(run: Path, data: Path) -> Dataset:
    dataset, domain = load_dataset(data), plan_of(run).domain
    verify_dataset(data)
    return dataset.only(domain) if domain else dataset


def _refreshed_model(run: Path, dataset: Dataset, known: Training) -> tuple[Model, Progress]:
    """The model of the run over the catalogue of the dataset, with the counts of the known events."""
    name, model, progress = load_run(run)
    if not progress.ended_by:
        raise DataError(f"{run}: its training has not ended. Rerun the command that trains it, then refresh it.")
    place = places_in_run(run, "items", dataset.items)
    if bool((place < 0).all()):
        raise DataError(f"{run}: has no item in common with {dataset.name}. Give a newer log of the same items.")
    tensors = model.tensors_for(known, place)
    if tensors is None:
        raise SettingError(
            f"{run}: {name} has no counted sources here, so nothing can be refreshed without training. "
            f"Train it on the newer events: {TRAIN_ON_NEWER}"
        )
    model = zoo.entry_of(name).restore(model.config, tensors)
    model.refresh(known)
    return model.eval(), progress


def _facts(run: Path, dataset: Dataset, known: Training) -> Refreshed:
    newest = None if known.times is None else str(np.datetime64(int(known.times.max()), "us"))[:16]
    new_items = (places_in_run(run, "items", dataset.items) < 0) & (known.popularity > 0)
    known_accounts = set(read_ids(run / "accounts.txt"))
    with_events = np.unique(known.sequence_accounts[np.diff(known.offsets) > 0])
    new_accounts = sum(dataset.accounts[account] not in known_accounts for account in with_events)
    return Refreshed(len(known.events), newest, int(new_items.sum()), new_accounts)


def _description(run: Path, data: Path, dataset: Dataset, facts: Refreshed) -> dict[str, Any]:
    """The content of run.json: the plan of the run on the newer data, the run itself, and what is counted."""
    before = read_run(run)
    plan = replace(plan_of(run), data=data, from_run=run, label=before.get("label", ""))
    described = plan.describe(dataset)
    # The checkpoint keeps the epochs of the run, so that they are not of the run before it as well.
    origin = described["from"] | {"epochs": epochs_before(run)}
    return described | {"from": origin, REFRESHED: asdict(facts)}

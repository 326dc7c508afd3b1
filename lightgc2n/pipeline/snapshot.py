"""The snapshot of a round: all events of the store as a dataset, and the part of it that ends before the newest period.

Models learn and count the part before the cut; the events from the cut on are the questions that they are judged on.
"""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lightgc2n.data.catalogue import Catalogue
from lightgc2n.data.dataset import DATASET, MICROSECONDS, Dataset, Domain, Longs, load_dataset, write_dataset
from lightgc2n.errors import DataError
from lightgc2n.files.atomic_writes import new_folder

HOUR = 3600 * MICROSECONDS


def times_of(data: Dataset) -> Longs:
    assert data.times is not None, "a store keeps the time of every event"
    return data.times


def newest_period(data: Dataset, hours: float, now: float | None = None) -> tuple[int, int]:
    """Return the time of the newest event, and the cut: the moment this many hours before it.

    Events dated in the future, from a wrong clock, do not move the cut.
    """
    present = int((time.time() if now is None else now) * MICROSECONDS)
    past = times_of(data)[times_of(data) <= present]
    if not len(past):
        raise DataError(f"{data.name}: all events are dated in the future. Correct their times, or the clock.")
    newest = int(past.max())
    return newest, newest - int(hours * HOUR) + 1


def before(data: Dataset, cut: int) -> Dataset:
    """Return the events before the cut, with the accounts and items of the whole dataset."""
    early = times_of(data) < cut
    count = np.concatenate([[0], np.cumsum(early)])
    return replace(data, offsets=count[data.offsets], events=data.events[early], times=times_of(data)[early])


def write_before(folder: Path, data: Dataset, cut: int) -> None:
    """Write the events before the cut as a dataset that names no later account or item."""
    early = before(data, cut)
    if not len(early.events):
        raise DataError(f"{data.name}: no event is older than the newest period. Lower judge_hours, or wait.")
    with new_folder(folder, force=True, kind=DATASET) as new:
        write_dataset(new, **_compact(early))


def _compact(data: Dataset) -> dict[str, Any]:
    """Return the arguments of `write_dataset` for the accounts and items that have events."""
    used = np.bincount(data.events, minlength=len(data.items)) > 0
    place = np.concatenate([[0], np.cumsum(used)])
    filled = data.lengths > 0
    owners, number = np.unique(np.asarray(data.sequence_accounts)[filled], return_inverse=True)
    items = [item for item, kept in zip(data.items, used, strict=True) if kept]
    return {
        "name": data.name,
        "kind": data.kind,
        "source": data.manifest["source"],
        "accounts": [data.accounts[owner] for owner in owners],
        "items": items,
        "domains": [Domain(one.name, int(place[one.start]), int(place[one.stop])) for one in data.domains],
        "offsets": np.concatenate([[0], np.cumsum(data.lengths[filled])]),
        "sequence_accounts": number,
        "events": place[:-1][data.events],
        "times": data.times,
        "catalogue": {item: data.catalogue[item] for item in items if item in data.catalogue},
    }


def catalogue_of(folder: Path | None) -> Catalogue | None:
    """Return titles and categories of a prepared dataset, for a store, which has ids alone."""
    return None if folder is None else load_dataset(folder).catalogue

"""The finder of people of a run: learned from its training logs when it is first asked for, then kept in its folder."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lightgc2n.data.splits import SplitConfig, Training, ranges
from lightgc2n.errors import OutputError
from lightgc2n.files.writer_lock import recover
from lightgc2n.people.finder import PeopleFinder
from lightgc2n.people.sessions import Logs
from lightgc2n.people.storage import load_finder, save_finder
from lightgc2n.progress import say
from lightgc2n.training.runs import read_run

FOLDER = "people"
SEED = 0


@dataclass(frozen=True)
class FinderPlace:
    """Where the finder of a run is kept, and what it must have been learned from."""

    folder: Path
    of: dict[str, Any]


def finder_place(run: Path, checksum: str, domain: str, split: SplitConfig) -> FinderPlace:
    """The place of a run, and the data, domain and split that it learned from."""
    return FinderPlace(run / FOLDER, {"checksum": checksum, "domain": domain, "split": asdict(split)})


def finder_for(train: Training, place: FinderPlace | None) -> PeopleFinder:
    """The finder that is kept at `place`, or one that is learned now and kept there, if there is a place."""
    if place is not None:
        recover(place.folder)
    if place is not None and place.folder.exists():
        return load_finder(place.folder, place.of)
    say("finding people is learned once, from the training logs of the run")
    finder = PeopleFinder.learn(training_logs(train), np.random.default_rng(SEED))
    if place is not None:
        _keep(finder, place)
    return finder


def training_logs(train: Training) -> Logs:
    """One log for each account of the dataset, empty where training has none of it."""
    order = np.argsort(train.sequence_accounts, kind="stable")
    places, bounds = ranges(train.offsets[order], train.offsets[order + 1])
    events = np.bincount(train.sequence_accounts[order], np.diff(bounds), train.accounts).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(events)])
    times = None if train.times is None else train.times[places]
    return Logs(offsets, train.events[places], times, np.zeros((train.items, 0), dtype=np.float32))


def _is_current(place: FinderPlace) -> bool:
    """Return whether the run still has the data that the finder was learned from; `forget` may have changed it."""
    return bool(read_run(place.folder.parent)["data"]["checksum"] == place.of["checksum"])


def _keep(finder: PeopleFinder, place: FinderPlace) -> None:
    if not _is_current(place):
        say(f"{place.folder.parent} was changed meanwhile, so the people finder is not kept there")
        return
    try:
        # Another process may have learned the same meanwhile; either may stay.
        save_finder(finder, place.folder, force=True, of=place.of)
    except (OSError, OutputError) as problem:
        say(f"the people finder is not kept, so the next call learns it again: {problem}")

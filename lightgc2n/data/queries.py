"""Queries: the events a model sees, and the target it has to predict.

In data of several domains a cut may have one target for each domain: the domain's first event after the cut.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Dataset, Ints, Longs

UNSEEN = -1


@dataclass(frozen=True)
class Queries:
    """Query q shows the events start[q] to stop[q] of an account; its target is the item to predict."""

    account: Ints  # UNSEEN for an account without training events
    owner: Ints  # the true account, for counting and resampling; never shown to a model
    start: Longs
    stop: Longs
    target: Ints
    target_event: Longs
    events: Ints
    times: Longs | None

    def __len__(self) -> int:
        return len(self.target)

    def select(self, rows: npt.NDArray[Any]) -> "Queries":
        """Return the queries at the given positions."""
        chosen = ("account", "owner", "start", "stop", "target", "target_event")
        return replace(self, **{name: getattr(self, name)[rows] for name in chosen})


def queries_at(dataset: Dataset, account: Ints, start: Longs, stop: Longs, rows: npt.NDArray[np.bool_]) -> Queries:
    """Return one query for each selected row: it shows the events from `start` to `stop`; the next is its target."""
    return _queries(dataset, account[rows], start[rows], stop[rows], stop[rows].astype(np.int64))


def queries_by_domain(
    dataset: Dataset, account: Ints, start: Longs, cut: Longs, stop: Longs, selected: npt.NDArray[np.bool_]
) -> Queries:
    """Return for each selected row and each domain the first event from `cut` on and before `stop`, if there is one."""
    firsts = first_places(dataset, cut)
    rows = [np.flatnonzero(selected & (place < stop)) for place in firsts]
    row = np.concatenate(rows)
    places = np.concatenate([place[row] for place, row in zip(firsts, rows, strict=True)])
    order = np.lexsort((places, row))
    row, places = row[order], places[order]
    return _queries(dataset, account[row], start[row], cut[row], places)


def first_places(dataset: Dataset, cut: Longs) -> list[Longs]:
    """Return for each domain its first position from each cut on; the number of events if there is none."""
    events, firsts = len(dataset.events), []
    for number in range(len(dataset.domains)):
        place = np.where(dataset.event_domains == number, np.arange(events), events)
        following = np.minimum.accumulate(np.append(place, events)[::-1])[::-1]
        firsts.append(following[cut].astype(np.int64))
    return firsts


def separate_targets(dataset: Dataset, rows: npt.NDArray[np.bool_]) -> Queries:
    """Return for each sequence of `rows` and each domain the target that the source stores separately."""
    assert dataset.targets is not None
    chosen, number = np.nonzero((dataset.targets >= 0) & rows[:, None])
    targets = dataset.targets[chosen, number]
    # The targets are appended after all events, so that each has its own position outside of every sequence.
    extended = replace(dataset, events=np.concatenate([dataset.events, targets]).astype(np.int32), times=None)
    account, bounds = np.asarray(dataset.sequence_accounts), np.asarray(dataset.offsets)
    places = len(dataset.events) + np.arange(len(targets))
    return _queries(extended, account[chosen], bounds[:-1][chosen], bounds[1:][chosen], places)


def _queries(dataset: Dataset, account: Ints, start: Longs, stop: Longs, places: Longs) -> Queries:
    return Queries(
        account=account.astype(np.int32),
        owner=account.astype(np.int32),
        start=start.astype(np.int64),
        stop=stop.astype(np.int64),
        target=np.asarray(dataset.events[places]),
        target_event=places,
        events=dataset.events,
        times=dataset.times,
    )

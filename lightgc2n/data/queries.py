"""What a model is asked: the events that it is shown, and what came next in truth.

Data of several domains asks for the next item of each of them: after one cut, the first event of the domain.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Dataset, Ints, Longs

UNSEEN = -1


@dataclass(frozen=True)
class Queries:
    """Questions to a model: query q shows the events start[q] to stop[q] of an account and asks for the target."""

    account: Ints  # UNSEEN for an account that training does not have
    owner: Ints  # the account, known or not: for counting and resampling, never shown to a model
    start: Longs
    stop: Longs
    target: Ints
    target_event: Longs
    events: Ints
    times: Longs | None

    def __len__(self) -> int:
        return len(self.target)

    def select(self, rows: npt.NDArray[Any]) -> "Queries":
        """The queries at the given places."""
        chosen = ("account", "owner", "start", "stop", "target", "target_event")
        return replace(self, **{name: getattr(self, name)[rows] for name in chosen})


def questions_at(dataset: Dataset, account: Ints, start: Longs, stop: Longs, asked: npt.NDArray[np.bool_]) -> Queries:
    """One query for each row that is asked: the events from `start` to `stop` are shown, the next one is the target."""
    return _queries(dataset, account[asked], start[asked], stop[asked], stop[asked].astype(np.int64))


def questions_by_domain(
    dataset: Dataset, account: Ints, start: Longs, cut: Longs, stop: Longs, asked: npt.NDArray[np.bool_]
) -> Queries:
    """For each row that is asked and each domain its first event from `cut` on and before `stop`, if there is one."""
    firsts = first_places(dataset, cut)
    rows = [np.flatnonzero(asked & (place < stop)) for place in firsts]
    found = np.concatenate(rows)
    places = np.concatenate([place[row] for place, row in zip(firsts, rows, strict=True)])
    order = np.lexsort((places, found))
    found, places = found[order], places[order]
    return _queries(dataset, account[found], start[found], cut[found], places)


def first_places(dataset: Dataset, cut: Longs) -> list[Longs]:
    """For each domain the first place from each cut on with an event of it; beyond all events where there is none."""
    events, found = len(dataset.events), []
    for number in range(len(dataset.domains)):
        place = np.where(dataset.event_domains == number, np.arange(events), events)
        following = np.minimum.accumulate(np.append(place, events)[::-1])[::-1]
        found.append(following[cut].astype(np.int64))
    return found


def given_targets(dataset: Dataset, rows: npt.NDArray[np.bool_]) -> Queries:
    """For each sequence of `rows` and each domain the target that the source gives apart from the sequence."""
    assert dataset.targets is not None
    chosen, number = np.nonzero((dataset.targets >= 0) & rows[:, None])
    targets = dataset.targets[chosen, number]
    # The targets stand behind all events, so that each has a place of its own, in no sequence.
    asked = replace(dataset, events=np.concatenate([dataset.events, targets]).astype(np.int32), times=None)
    account, bounds = np.asarray(dataset.sequence_accounts), np.asarray(dataset.offsets)
    places = len(dataset.events) + np.arange(len(targets))
    return _queries(asked, account[chosen], bounds[:-1][chosen], bounds[1:][chosen], places)


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

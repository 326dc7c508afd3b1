"""Rolling origins: the validation period of a split by time, cut at several moments.

One cut gives one sample of what is popular; several cuts show how fast that changes.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from lightgc2n.data.split_types import Queries, Split, Training, ranges

CUTS = 6


def rolling_origins(split: Split, cuts: int = CUTS) -> Iterator[tuple[Training, Queries]]:
    """Yield cuts after equally many validation events: the training data before the cut, and queries after it.

    The target of a query is the first event of an account from the cut on. No test event is read.
    """
    known = split.known
    assert known is not None, "only a split by time has later events"
    assert known.times is not None
    later = np.sort(known.times)[len(split.train.events) :]
    for cut in later[len(later) * np.arange(cuts) // cuts] if len(later) else []:
        yield _origin(known, int(cut))


def _origin(known: Training, cut: int) -> tuple[Training, Queries]:
    assert known.times is not None
    start, end = known.offsets[:-1], known.offsets[1:]
    earlier = np.concatenate([[0], np.cumsum(known.times < cut)])
    stop = start + earlier[end] - earlier[start]  # times ascend within a sequence
    has_target = (stop > start) & (stop < end)
    places, offsets = ranges(start, stop)
    before = replace(known, offsets=offsets, events=known.events[places], times=known.times[places])
    owner = known.sequence_accounts[has_target]
    queries = Queries(
        account=owner,
        owner=owner,
        start=start[has_target],
        stop=stop[has_target],
        target=known.events[stop[has_target]],
        target_event=stop[has_target],
        events=known.events,
        times=known.times,
    )
    return before, queries

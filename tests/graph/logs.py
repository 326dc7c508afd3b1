"""Training sequences written as lists of item numbers, one for each account."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from lightgc2n.data.batches import TrainingBatch, training_batches
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import Training

ITEMS = 24


def training_of(logs: Sequence[Sequence[int]], items: int = ITEMS) -> Training:
    """Account k has the events logs[k], all of them for training."""
    return Training(
        accounts=len(logs),
        items=items,
        domains=(Domain("all", 0, items),),
        sequence_accounts=np.arange(len(logs), dtype=np.int32),
        offsets=np.concatenate([[0], np.cumsum([len(log) for log in logs])]).astype(np.int64),
        events=np.array([item for log in logs for item in log], dtype=np.int32),
        times=None,
        targets="all",
    )


def training_batch(logs: Sequence[Sequence[int]], targets: str = "all") -> TrainingBatch:
    """All of them in one batch, in their order."""
    return next(training_batches(replace(training_of(logs), targets=targets), len(logs)))


_SHORT = st.lists(st.integers(0, ITEMS - 3), max_size=4)
_LONG = st.permutations(range(ITEMS - 2))
# Accounts without items, with one, with a few and with nearly all; the last two items are nobody's.
LOGS = st.lists(st.one_of(st.just([]), st.just([5]), _SHORT, _LONG), min_size=1, max_size=7)

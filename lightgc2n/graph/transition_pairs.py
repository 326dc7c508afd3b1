"""Transitions in training sequences as pairs of items."""

import numpy as np
import numpy.typing as npt

from lightgc2n.data.splits import Training

Longs = npt.NDArray[np.int64]


def transition_pairs(train: Training, reach: int) -> tuple[Longs, Longs, npt.NDArray[np.float64]]:
    """Return pairs of items at most `reach` events apart in a sequence: the earlier, the later, and 1 / distance."""
    owner = np.repeat(np.arange(train.sequences), np.diff(train.offsets))
    befores, afters, weights = [], [], []
    for gap in range(1, reach + 1):
        same = owner[gap:] == owner[:-gap]
        befores.append(train.events[:-gap][same].astype(np.int64))
        afters.append(train.events[gap:][same].astype(np.int64))
        weights.append(np.full(int(same.sum()), 1 / gap))
    return np.concatenate(befores), np.concatenate(afters), np.concatenate(weights)

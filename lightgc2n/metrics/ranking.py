"""Recall, MRR and NDCG at N: what each query adds to a metric, from the rank of its one target.

The functions take numpy arrays or torch tensors of ranks; the rank of a miss is infinite.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
SELECTION_CUTOFF = 20  # models, checkpoints and calibrated weights are selected by validation MRR at this cutoff


def hit(ranks: Any, cutoff: int) -> Any:
    """1 for each target within the first `cutoff` places, else 0; the mean is Recall@N."""
    return (ranks <= cutoff) * 1.0


def reciprocal_rank(ranks: Any, cutoff: int) -> Any:
    """1 / rank for each target within the first `cutoff` places, else 0; the mean is MRR@N."""
    return (ranks <= cutoff) / ranks


def discounted_gain(ranks: Any, cutoff: int) -> Any:
    """1 / log2(1 + rank) for each target within the first `cutoff` places, else 0; the mean is NDCG@N."""
    after = 1 + ranks
    return (ranks <= cutoff) / (np.log2(after) if isinstance(after, np.ndarray) else after.log2())


METRICS: dict[str, Callable[[Any, int], Any]] = {"RC": hit, "MRR": reciprocal_rank, "NDCG": discounted_gain}


def gains(ranks: Floats, cutoffs: Sequence[int]) -> dict[str, Floats]:
    """Metric@cutoff -> what each query adds to it."""
    return {f"{name}@{cutoff}": metric(ranks, cutoff) for cutoff in cutoffs for name, metric in METRICS.items()}

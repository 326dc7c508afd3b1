"""Means over test targets with 95 % intervals: the one aggregator that every table of results uses."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from lightgc2n.data.dataset import Longs
from lightgc2n.metrics.ranking import Floats
from lightgc2n.metrics.resampling import interval, resampled_means

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Estimate:
    """A mean and its 95 % interval."""

    value: float
    low: float
    high: float


def estimates(columns: Mapping[Name, Floats], owner: Longs, seed: int = 0) -> dict[Name, Estimate]:
    """The mean of each column with an interval that resamples accounts; all columns share the same draws.

    Args:
        columns: what each test target adds to each metric.
        owner: the account of each test target.
    """
    draws = resampled_means(np.column_stack(list(columns.values())), owner, seed)
    return {
        name: Estimate(float(column.mean()), *interval(draws[:, place]))
        for place, (name, column) in enumerate(columns.items())
    }

"""Queries as padded tensors, a tile at a time."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from lightgc2n.data.splits import Queries, ranges


@dataclass(frozen=True)
class Batch:
    """Histories of B accounts, oldest event first, padded on the right.

    Padding holds item 0 and is told by `known`, so that every entry is a valid index.
    """

    account: Int[Tensor, "B"]  # -1: an account that training does not have
    history: Int[Tensor, "B T"]
    length: Int[Tensor, "B"]

    @property
    def known(self) -> Bool[Tensor, "B T"]:
        """Which entries of the history are events, not padding."""
        return torch.arange(self.history.shape[1], device=self.history.device) < self.length[:, None]

    @property
    def last(self) -> Int[Tensor, "B"]:
        """The newest item of each history."""
        return self.history.gather(1, (self.length - 1).clamp(min=0)[:, None]).squeeze(1)


@dataclass(frozen=True)
class Asked:
    """A batch and what came next in truth."""

    batch: Batch
    target: Int[Tensor, "B"]


def query_batches(queries: Queries, rows_per_batch: int, device: torch.device | str = "cpu") -> Iterator[Asked]:
    """All queries in order; the last batch may be smaller, and counts like any other."""
    for first in range(0, len(queries), rows_per_batch):
        part = queries.select(np.arange(first, min(first + rows_per_batch, len(queries))))
        yield Asked(make_batch(part, device), torch.as_tensor(part.target.astype(np.int64), device=device))


def make_batch(queries: Queries, device: torch.device | str = "cpu") -> Batch:
    """The histories of all given queries in one batch."""
    length = queries.stop - queries.start
    places, offsets = ranges(queries.start, queries.stop)
    history = np.zeros((len(queries), max(1, int(length.max(initial=0)))), dtype=np.int64)
    row = np.repeat(np.arange(len(queries)), length)
    history[row, np.arange(len(places)) - offsets[row]] = queries.events[places]
    return Batch(
        account=torch.as_tensor(queries.account.astype(np.int64), device=device),
        history=torch.as_tensor(history, device=device),
        length=torch.as_tensor(length.astype(np.int64), device=device),
    )

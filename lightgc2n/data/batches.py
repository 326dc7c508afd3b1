"""Queries and training sequences as padded tensors, some rows at a time."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from lightgc2n.data.dataset import Ints, Longs
from lightgc2n.data.splits import Queries, Training, ranges

PADDED_CELLS = 4_000_000


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
    for first, last in _tiles(queries.stop - queries.start, rows_per_batch):
        part = queries.select(np.arange(first, last))
        yield Asked(make_batch(part, device), torch.as_tensor(part.target.astype(np.int64), device=device))


def _tiles(lengths: Longs, rows: int) -> Iterator[tuple[int, int]]:
    """Runs of at most `rows` rows that stay small when padded: one endless log must not widen many short ones."""
    first = 0
    while first < len(lengths):
        widest = np.maximum.accumulate(np.maximum(lengths[first : first + rows], 1))
        fits = int((widest * np.arange(1, len(widest) + 1) <= PADDED_CELLS).sum())
        yield first, first + max(1, fits)
        first += max(1, fits)


def make_batch(queries: Queries, device: torch.device | str = "cpu") -> Batch:
    """The histories of all given queries in one batch."""
    return Batch(
        account=torch.as_tensor(queries.account.astype(np.int64), device=device),
        history=_padded(queries.events, queries.start, queries.stop, device),
        length=torch.as_tensor(queries.stop - queries.start, device=device),
    )


@dataclass(frozen=True)
class TrainingBatch:
    """Training sequences of B accounts: at every place the item, what came next, and whether that is a target.

    A sequence of n events is one row that holds all its n - 1 examples; no prefix is ever copied.
    """

    account: Int[Tensor, "B"]
    log: Int[Tensor, "B T"]
    next_item: Int[Tensor, "B T"]
    seen: Bool[Tensor, "B T"]  # which places hold an event, not padding
    counts: Bool[Tensor, "B T"]  # which of them are asked


def training_batches(
    train: Training, rows_per_batch: int, order: np.random.Generator | None = None, device: torch.device | str = "cpu"
) -> Iterator[TrainingBatch]:
    """All training sequences of two events or more, in a random order if one is given."""
    rows = np.flatnonzero(np.diff(train.offsets) >= 2)
    if order is not None:
        rows = order.permutation(rows)
    for first in range(0, len(rows), rows_per_batch):
        chosen = rows[first : first + rows_per_batch]
        start, stop = train.offsets[chosen], train.offsets[chosen + 1]
        length = torch.as_tensor(stop - start - 1, device=device)[:, None]
        place = torch.arange(int(length.max()), device=device)
        yield TrainingBatch(
            account=torch.as_tensor(train.sequence_accounts[chosen].astype(np.int64), device=device),
            log=_padded(train.events, start, stop - 1, device),
            next_item=_padded(train.events, start + 1, stop, device),
            seen=place < length,
            counts=place < length if train.targets == "all" else place == length - 1,
        )


def _padded(events: Ints, start: Longs, stop: Longs, device: torch.device | str) -> Int[Tensor, "B T"]:
    """The events start[b] to stop[b] as row b, filled up with item 0."""
    length = stop - start
    places, offsets = ranges(start, stop)
    table = np.zeros((len(start), max(1, int(length.max(initial=0)))), dtype=np.int64)
    row = np.repeat(np.arange(len(start)), length)
    table[row, np.arange(len(places)) - offsets[row]] = events[places]
    return torch.as_tensor(table, device=device)

"""Histories as vectors: sums over prefixes, and the distinct items of a log.

Shapes: B batch, T history, M items, D width.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import embedding

from lightgc2n.data.batches import Batch


def running_sums(rows: Float[Tensor, "M D"], log: Int[Tensor, "B T"], pooling: str) -> Float[Tensor, "B T D"]:
    """For every place of every log the sum, or the mean, of the rows up to it; padding stands behind all of them."""
    sums = embedding(log, rows).cumsum(dim=1)  # Eq. 14
    if pooling == "sum":
        return sums
    return sums / torch.arange(1, log.shape[1] + 1, device=log.device)[:, None]


def distinct_history(batch: Batch) -> tuple[Int[Tensor, "B T"], Bool[Tensor, "B T"]]:
    """The items of each history in the order of their numbers, and which are neither padding nor repeated."""
    beyond = int(batch.history.max()) + 1
    items = torch.where(batch.known, batch.history, beyond).sort(dim=1).values
    first = torch.ones_like(items, dtype=torch.bool)
    first[:, 1:] = items[:, 1:] != items[:, :-1]
    known = first & (items < beyond)
    return torch.where(known, items, 0), known


def columns_of(batch: Batch, items: Int[Tensor, "B T"], known: Bool[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """For each place of a history where `distinct_history` holds its item; any column for padding."""
    filled = torch.where(known, items, -1).cummax(dim=1).values  # gaps repeat the item before them: still in order
    return torch.searchsorted(filled, batch.history.contiguous()).clamp(max=items.shape[1] - 1)

"""Pooling of histories to one vector each, at the end or at every place.

Shapes: B batch, T history, M items, D width.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import embedding_bag

from lightgc2n.data.batches import Batch
from lightgc2n.layers.history import running_sums
from lightgc2n.layers.propagation import rows_of


def first_occurrences(log: Int[Tensor, "B T"]) -> Bool[Tensor, "B T"]:
    """A mask of the places whose item has not occurred earlier in the log."""
    items, order = log.sort(dim=1, stable=True)
    first = torch.ones_like(items, dtype=torch.bool)
    first[:, 1:] = items[:, 1:] != items[:, :-1]
    return torch.zeros_like(first).scatter(1, order, first)


def pooled_events(
    table: Float[Tensor, "M D"], items: Int[Tensor, "B T"], known: Bool[Tensor, "B T"], pooling: str
) -> Float[Tensor, "B D"]:
    """The sum, mean or maximum of the rows of the known events; zero for an empty history."""
    ends = known.sum(dim=1).cumsum(dim=0)
    offsets = torch.cat([ends.new_zeros(1), ends])
    return embedding_bag(items[known], table, offsets, mode=pooling, include_last_offset=True)


def pooled_prefixes(table: Float[Tensor, "M D"], log: Int[Tensor, "B T"], pooling: str) -> Float[Tensor, "B T D"]:
    """The mean, the maximum or the newest of the rows up to every place of every log."""
    if pooling == "mean":
        return running_sums(table, log, pooling)
    rows = rows_of(table, log)
    return rows.cummax(dim=1).values if pooling == "max" else rows


def pooled_history(table: Float[Tensor, "M D"], batch: Batch, pooling: str) -> Float[Tensor, "B D"]:
    """The pooled vector of each whole history; zero for an empty one."""
    if pooling == "last":
        return table[batch.last] * (batch.length > 0)[:, None]
    return pooled_events(table, batch.history, batch.known, pooling)

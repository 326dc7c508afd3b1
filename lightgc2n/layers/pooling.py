"""Pooling of histories to one vector each, at the end or at every place, and the distinct items of a log.

Shapes: B batch, T history, M items, D width.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import embedding_bag

from lightgc2n.data.batches import Batch
from lightgc2n.devices import device_of
from lightgc2n.layers.sparse import rows_of


def running_sums(rows: Float[Tensor, "M D"], log: Int[Tensor, "B T"], pooling: str) -> Float[Tensor, "B T D"]:
    """The sum, or the mean, of the rows up to every place of every log; padding is at the end."""
    sums = rows_of(rows, log).cumsum(dim=1)  # Eq. 14
    if pooling == "sum":
        return sums
    return sums / torch.arange(1, log.shape[1] + 1, device=log.device)[:, None]


def distinct(items: Int[Tensor, "B T"], known: Bool[Tensor, "B T"]) -> tuple[Int[Tensor, "B T"], Bool[Tensor, "B T"]]:
    """The known items of each row in ascending order, and a mask of those that are not padding or repeats."""
    beyond = torch.iinfo(items.dtype).max
    ordered = torch.where(known, items, beyond).sort(dim=1).values
    first = torch.ones_like(known)
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    unique = first & (ordered < beyond)
    return torch.where(unique, ordered, 0), unique


def columns_of(
    history: Int[Tensor, "B T"], items: Int[Tensor, "B T"], known: Bool[Tensor, "B T"]
) -> Int[Tensor, "B T"]:
    """The column of `distinct` that holds the item of each place of a history; any column for padding."""
    filled = (
        torch.where(known, items, -1).cummax(dim=1).values
    )  # gaps repeat the item before them, so the row stays sorted
    return torch.searchsorted(filled, history.contiguous()).clamp(max=items.shape[1] - 1)


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
    if pooling == "max" and device_of(table).has_cuda_graphs:  # the same in fixed shapes
        rows = rows_of(table, items).masked_fill(~known[..., None], -torch.inf)
        return torch.where(known.any(dim=1, keepdim=True), rows.max(dim=1).values, 0.0)
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

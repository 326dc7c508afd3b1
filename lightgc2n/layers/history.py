"""Prefix sums of histories, and the distinct items of a log.

Shapes: B batch, T history, M items, D width.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightgc2n.layers.propagation import rows_of


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

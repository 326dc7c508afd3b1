"""Propagation written edge by edge: slow, obvious, and what the fast layers are tested and timed against."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def weighted_sum(
    table: Float[Tensor, "W D"],
    rows: Int[Tensor, "E"],
    columns: Int[Tensor, "E"],
    weights: Float[Tensor, "E"],
    height: int,
) -> Float[Tensor, "R D"]:
    """For each row the weighted sum over its neighbours."""
    return table.new_zeros(height, table.shape[1]).index_add(0, rows, table[columns] * weights[:, None])


def attend(
    users: Float[Tensor, "N A D"], items: Float[Tensor, "M D"], rows: Int[Tensor, "E"], columns: Int[Tensor, "E"]
) -> Float[Tensor, "N A D"]:
    """What each latent user hears of its account's items."""
    match = (users[rows] * items[columns][:, None, :]).sum(dim=-1)
    halves = torch.zeros_like(users[..., 0]).index_add(0, rows, (match / 2).exp())
    weight = match.exp() / halves[rows]  # Eq. 5, as printed
    return torch.zeros_like(users).index_add(0, rows, weight[..., None] * items[columns][:, None, :])

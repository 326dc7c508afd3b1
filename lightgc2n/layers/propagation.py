"""Messages along the edges of a sparse graph, without atomics in either direction.

Shapes: N accounts, M items, A latent users, D capsule width, T neighbours of the account that has most of them.
A gradient flows against the edges, so every edge list is kept from both sides; `plain.py` says the same slowly.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from lightgc2n.graph.sequential import Edges

PARTS = ("columns", "offsets", "weights")


def _segment_sum(
    table: Float[Tensor, "W D"],
    columns: Int[Tensor, "E"],
    offsets: Int[Tensor, "R_and_one"],
    weights: Float[Tensor, "E"] | None,
) -> Float[Tensor, "R D"]:
    return embedding_bag(columns, table, offsets, mode="sum", per_sample_weights=weights, include_last_offset=True)


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, *edges: Tensor) -> Tensor:
        ctx.save_for_backward(*edges[3:])
        return _segment_sum(table, *edges[:3])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return (_segment_sum(gradients[0].contiguous(), *ctx.saved_tensors), *[None] * 6)


class WeightedSum(nn.Module):
    """For each row the weighted sum over its neighbours."""

    def __init__(self, edges: Edges) -> None:
        super().__init__()
        other = edges.transposed()
        sides = {"forward": edges, "backward": other}
        for side, half in sides.items():
            for part in PARTS:
                array = getattr(half, part)
                self.register_buffer(f"{side}_{part}", torch.from_numpy(array), persistent=False)

    def forward(self, table: Float[Tensor, "W D"]) -> Float[Tensor, "R D"]:
        edges = (getattr(self, f"{side}_{part}") for side in ("forward", "backward") for part in PARTS)
        return _WeightedSum.apply(table, *edges)  # type: ignore[no-untyped-call]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor, slots: Tensor, offsets: Tensor) -> Tensor:
        ctx.save_for_backward(slots, offsets)
        return table.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        slots, offsets = ctx.saved_tensors
        return _segment_sum(gradients[0].contiguous(), slots, offsets, None), None, None, None


def attend(
    users: Float[Tensor, "N A D"], items: Float[Tensor, "N T D"], known: Bool[Tensor, "N T"]
) -> tuple[Float[Tensor, "N A D"], Float[Tensor, "N A T"]]:
    """What each latent user hears of its account's items, and how much of each; nothing where there is no item."""
    match = users @ items.transpose(1, 2)
    there = known[:, None, :]
    halves = (match / 2).masked_fill(~there, -torch.inf).logsumexp(dim=-1, keepdim=True)
    # exp(x) / Σ √exp(x), kept finite by subtracting logarithms.
    weight = (match - halves.masked_fill(halves == -torch.inf, 0)).exp().masked_fill(~there, 0)  # Eq. 5
    return weight @ items, weight


class EveryAccountAttends(nn.Module):
    """`attend` for all accounts at once: accounts with about as many items share a padded block."""

    known: Bool[Tensor, "slots"]

    def __init__(self, edges: Edges) -> None:
        super().__init__()
        degrees = np.diff(edges.offsets)
        assert (np.diff(degrees) >= 0).all(), "accounts must stand in the order of their degrees"
        self.blocks = _blocks(degrees)
        slots, known = [], []
        for first, last, width in self.blocks:
            place = edges.offsets[first:last, None] + np.arange(width)
            real = np.arange(width) < degrees[first:last, None]
            slots.append(np.where(real, edges.columns[np.where(real, place, 0)], 0).ravel())
            known.append(real.ravel())
        index = np.concatenate(slots) if slots else np.empty(0, dtype=np.int64)
        real = np.concatenate(known) if known else np.empty(0, dtype=bool)
        back = np.flatnonzero(real)
        order = np.argsort(index[back], kind="stable")
        offsets = np.searchsorted(index[back][order], np.arange(edges.width + 1))
        arrays = {"index": index, "known": real, "back_slots": back[order], "back_offsets": offsets}
        for name, array in arrays.items():
            self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(array)), persistent=False)

    def forward(self, users: Float[Tensor, "N A D"], items: Float[Tensor, "M D"]) -> Float[Tensor, "N A D"]:
        gathered = _Gather.apply(items, self.index, self.back_slots, self.back_offsets)  # type: ignore[no-untyped-call]
        sizes = [(last - first) * width for first, last, width in self.blocks]
        heights = [last - first for first, last, _ in self.blocks]
        cut = (torch.split(users, heights), torch.split(gathered, sizes), torch.split(self.known, sizes))
        parts = zip(self.blocks, *cut, strict=True)
        heard = [
            attend(block_users, rows.view(last - first, width, -1), there.view(last - first, width))[0]
            if width
            else torch.zeros_like(block_users)
            for (first, last, width), block_users, rows, there in parts
        ]
        return torch.cat(heard)


def _blocks(degrees: np.ndarray) -> list[tuple[int, int, int]]:
    """Runs of accounts (first, last, width): each run is padded to the width of its widest account."""
    blocks: list[tuple[int, int, int]] = []
    first = 0
    while first < len(degrees):
        least = int(degrees[first])
        # Up to a fifth of padding, and never a block for each single degree of long accounts.
        widest = max(least, int(least * 1.25))
        last = int(np.searchsorted(degrees, widest, side="right"))
        blocks.append((first, last, int(degrees[last - 1])))
        first = last
    return blocks

"""Attention of latent users to the items of their account (Eq. 5), for a batch of accounts or for all of them.

Shapes: N accounts, M items, A latent users, D capsule width, T neighbours of the account that has most of them.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lightgc2n.devices import has_kernels
from lightgc2n.graph.sequential import Edges, grouped
from lightgc2n.layers.sparse import RowSums, WeightedSum


def attend(
    users: Float[Tensor, "N A D"], items: Float[Tensor, "N T D"], known: Bool[Tensor, "N T"]
) -> tuple[Float[Tensor, "N A D"], Float[Tensor, "N A T"]]:
    """The weighted sum of its account's items for each latent user, and the weights; 0 for an account without items."""
    match = users @ items.transpose(1, 2)
    mask = ~known[:, None, :]
    halves = (match / 2).masked_fill(mask, -torch.inf).logsumexp(dim=-1, keepdim=True)
    # exp(x) / Σ √exp(x), kept finite by subtracting logarithms.
    weight = (match - halves.masked_fill(halves == -torch.inf, 0)).exp().masked_fill(mask, 0)  # Eq. 5
    return weight @ items, weight


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor, back: RowSums) -> Tensor:
        ctx.back = back
        return table.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.back(gradients[0].contiguous()), None, None


class AttentionOfAllAccounts(nn.Module):
    """`attend` for all accounts at once, and the degree-normalised sum of their items.

    On a CPU, accounts with similar numbers of items share a padded block.
    """

    index: Int[Tensor, "slots"]
    known: Bool[Tensor, "slots"]

    def __init__(self, edges: Edges) -> None:
        super().__init__()
        degrees = np.diff(edges.offsets)
        assert (np.diff(degrees) >= 0).all(), "accounts must be sorted by degree"
        self.blocks = _blocks(degrees)
        slots, known = [], []
        for first, last, width in self.blocks:
            place = edges.offsets[first:last, None] + np.arange(width)
            real = np.arange(width) < degrees[first:last, None]
            slots.append(np.where(real, edges.columns[np.where(real, place, 0)], 0).ravel())
            known.append(real.ravel())
        index = np.concatenate(slots) if slots else np.empty(0, dtype=np.int64)
        real = np.concatenate(known) if known else np.empty(0, dtype=bool)
        self.plain = WeightedSum(edges)
        for name, array in (("index", index), ("known", real)):
            self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(array)), persistent=False)
        self.slots_of_item = RowSums(_by_item(index, np.flatnonzero(real), edges.width))
        self.edges_of_item = RowSums(_by_item(edges.columns, np.arange(len(edges.columns)), edges.width))

    def forward(
        self, users: Float[Tensor, "N A D"], items: Float[Tensor, "M D"]
    ) -> tuple[Float[Tensor, "N D"], Float[Tensor, "N A D"]]:
        if has_kernels(users):
            from lightgc2n.layers.kernels.item_attention import attend_and_sum

            return attend_and_sum(users, items, self.plain.sums, self.edges_of_item)
        return self.plain(items), self._attend(users, items)

    def _attend(self, users: Float[Tensor, "N A D"], items: Float[Tensor, "M D"]) -> Float[Tensor, "N A D"]:
        gathered = _Gather.apply(items, self.index, self.slots_of_item)  # type: ignore[no-untyped-call]
        sizes = [(last - first) * width for first, last, width in self.blocks]
        heights = [last - first for first, last, _ in self.blocks]
        cut = (torch.split(users, heights), torch.split(gathered, sizes), torch.split(self.known, sizes))
        parts = zip(self.blocks, *cut, strict=True)
        attended = [
            attend(block_users, rows.view(last - first, width, -1), there.view(last - first, width))[0]
            if width
            else torch.zeros_like(block_users)
            for (first, last, width), block_users, rows, there in parts
        ]
        return torch.cat(attended)


def _by_item(items: np.ndarray, slots: np.ndarray, height: int) -> Edges:
    """The slots of each item."""
    order, offsets = grouped(items[slots], height)
    return Edges(offsets, slots[order], np.ones(len(slots), dtype=np.float32), len(items))


def _blocks(degrees: np.ndarray) -> list[tuple[int, int, int]]:
    """Blocks of accounts (first, last, width), each padded to its widest account."""
    blocks: list[tuple[int, int, int]] = []
    first = 0
    while first < len(degrees):
        least = int(degrees[first])
        # At most a fifth of a block is padding; long accounts do not need a block for each degree.
        widest = max(least, int(least * 1.25))
        last = int(np.searchsorted(degrees, widest, side="right"))
        blocks.append((first, last, int(degrees[last - 1])))
        first = last
    return blocks

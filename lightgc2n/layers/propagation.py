"""Messages along the edges of a sparse graph, without atomics in either direction.

Shapes: N accounts, M items, A latent users, D capsule width, T neighbours of the account that has most of them.
A gradient flows against the edges, so every edge list is kept from both sides; `plain.py` says the same slowly.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding, embedding_bag

from lightgc2n.graph.sequential import Edges
from lightgc2n.layers.gpu import has_kernels

LONGEST_PIECE = 128  # edges that are summed in one go on a GPU: an item may have thousands, most have few


class RowSums(nn.Module):
    """For each row the sum over its edges, weighed as they are or as the caller says; no gradient."""

    columns: Int[Tensor, "E"]
    offsets: Int[Tensor, "R_and_one"]
    weights: Float[Tensor, "E"]
    pieces: Int[Tensor, "P_and_one"]
    row_pieces: Int[Tensor, "R_and_one"]

    def __init__(self, edges: Edges) -> None:
        super().__init__()
        pieces, row_pieces = _pieces(edges.offsets)
        arrays = {"columns": edges.columns, "offsets": edges.offsets, "weights": edges.weights}
        for name, array in (arrays | {"pieces": pieces, "row_pieces": row_pieces}).items():
            self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(array)), persistent=False)

    def forward(self, table: Float[Tensor, "W D"], weights: Float[Tensor, "E"] | None = None) -> Float[Tensor, "R D"]:
        weights = self.weights if weights is None else weights
        if has_kernels(table):
            from lightgc2n.layers.kernels import sums

            return sums.segment_sum(table, self.columns, weights, self.pieces, self.row_pieces)
        return embedding_bag(
            self.columns,
            table,
            self.offsets,
            mode="sum",
            per_sample_weights=weights.to(table.dtype),
            include_last_offset=True,
        )


def _pieces(offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each piece of a row begins among the edges, and where each row begins among the pieces."""
    count = -(-np.diff(offsets) // LONGEST_PIECE)
    row_pieces = np.concatenate([[0], np.cumsum(count)])
    within = np.arange(row_pieces[-1]) - np.repeat(row_pieces[:-1], count)
    return np.append(np.repeat(offsets[:-1], count) + within * LONGEST_PIECE, offsets[-1]), row_pieces


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, sums: RowSums, transposed: RowSums) -> Tensor:
        ctx.transposed = transposed
        return sums(table)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.transposed(gradients[0].contiguous()), None, None


class WeightedSum(nn.Module):
    """For each row the weighted sum over its neighbours."""

    def __init__(self, edges: Edges) -> None:
        super().__init__()
        self.sums, self.transposed = RowSums(edges), RowSums(edges.transposed())

    def forward(self, table: Float[Tensor, "W D"]) -> Float[Tensor, "R D"]:
        return _WeightedSum.apply(table.contiguous(), self.sums, self.transposed)  # type: ignore[no-untyped-call]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor, back: RowSums) -> Tensor:
        ctx.back = back
        return table.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.back(gradients[0].contiguous()), None, None


class _RowsOnGpu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.height = len(table)
        return table.index_select(0, index.flatten()).view(*index.shape, -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (index,) = ctx.saved_tensors
        rows = gradients[0].flatten(0, -2)
        return rows.new_zeros(ctx.height, rows.shape[1]).index_add_(0, index.flatten(), rows), None


def rows_of(table: Float[Tensor, "W D"], index: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch D"]:
    """table[index] with a gradient that neither sorts nor waits: a GPU adds by atomics, a CPU row after row."""
    if table.is_cuda:
        return _RowsOnGpu.apply(table, index)  # type: ignore[no-untyped-call]
    return embedding(index, table)


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


class EveryAccountListens(nn.Module):
    """`attend` for all accounts at once, and the plain sum of their items.

    On a CPU accounts with about as many items share a padded block.
    """

    index: Int[Tensor, "slots"]
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
        self.plain = WeightedSum(edges)
        for name, array in (("index", index), ("known", real)):
            self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(array)), persistent=False)
        self.slots_of_item = RowSums(_by_item(index, np.flatnonzero(real), edges.width))
        self.edges_of_item = RowSums(_by_item(edges.columns, np.arange(len(edges.columns)), edges.width))

    def forward(
        self, users: Float[Tensor, "N A D"], items: Float[Tensor, "M D"]
    ) -> tuple[Float[Tensor, "N D"], Float[Tensor, "N A D"]]:
        if has_kernels(users):
            from lightgc2n.layers.kernels import listening

            return listening.listen(users, items, self)
        return self.plain(items), self._attend(users, items)

    def _attend(self, users: Float[Tensor, "N A D"], items: Float[Tensor, "M D"]) -> Float[Tensor, "N A D"]:
        gathered = _Gather.apply(items, self.index, self.slots_of_item)  # type: ignore[no-untyped-call]
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


def _by_item(items: np.ndarray, slots: np.ndarray, height: int) -> Edges:
    """For each item the slots that hold it."""
    order = np.argsort(items[slots], kind="stable")
    offsets = np.searchsorted(items[slots][order], np.arange(height + 1))
    return Edges(offsets, slots[order], np.ones(len(slots), dtype=np.float32), len(items))


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

"""Sparse matrices in CSR form, and sums along the edges of a sparse graph without atomics in either direction.

Shapes: R rows, W rows of the table, E edges, P pieces, D width, B batch. A gradient flows against the edges, so every
edge list is stored by row and by column.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding, embedding_bag

from lightgc2n.devices import device_of, has_kernels
from lightgc2n.graph.sequential import Edges

Array = npt.NDArray[np.int64]
LONGEST_PIECE = 128  # edges that one GPU program sums: an item may have thousands, most have few


class SparseRows(nn.Module):
    """A CSR matrix: row r has values[offsets[r]:offsets[r + 1]] at the columns of the same range."""

    offsets: Int[Tensor, "rows_and_one"]
    columns: Int[Tensor, "entries"]
    values: Float[Tensor, "entries"]

    def __init__(self, offsets: Tensor, columns: Tensor, values: Tensor) -> None:
        super().__init__()
        self.register_buffer("offsets", offsets)
        self.register_buffer("columns", columns)
        self.register_buffer("values", values)

    def add_rows_to(self, scores: Float[Tensor, "B M"], rows: Int[Tensor, "B"], weight: float = 1.0) -> None:
        """Add row rows[b], times `weight`, to scores[b], in place."""
        batch, place = self.expand(rows)
        flat = batch * scores.shape[1] + self.columns[place]
        scores.view(-1).index_add_(0, flat, (self.values[place] * weight).to(scores.dtype))

    def expand(self, rows: Int[Tensor, "B"]) -> tuple[Int[Tensor, "E"], Int[Tensor, "E"]]:
        """All entries of the given rows: the index into `rows` of each, and its index into the matrix."""
        counts = self.offsets[rows + 1] - self.offsets[rows]
        batch = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), counts)
        first = torch.cumsum(counts, 0) - counts
        place = torch.arange(len(batch), device=rows.device) + (self.offsets[rows] - first)[batch]
        return batch, place

    def times(self, dense: Float[Tensor, "W B"]) -> Float[Tensor, "rows B"]:
        """The product with a dense matrix."""
        weights = self.values.to(dense.dtype)
        return embedding_bag(
            self.columns, dense, self.offsets, mode="sum", per_sample_weights=weights, include_last_offset=True
        )


def count_pairs(
    rows: Array, columns: Array, height: int, width: int, weights: npt.NDArray[np.float64] | None = None
) -> SparseRows:
    """The count, or the total weight, of each pair (row, column)."""
    keys, place = np.unique(rows.astype(np.int64) * width + columns, return_inverse=True)
    values = np.bincount(place, weights=weights, minlength=len(keys)).astype(np.float64)
    offsets = np.searchsorted(keys, np.arange(height + 1, dtype=np.int64) * width)
    return SparseRows(torch.from_numpy(offsets), torch.from_numpy(keys % width), torch.from_numpy(values))


class RowSums(nn.Module):
    """The sum over the edges of each row, with the stored or the given weights; without gradient."""

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
            from lightgc2n.layers.kernels.segment_sums import segment_sum

            return segment_sum(table, self.columns, weights, self.pieces, self.row_pieces)
        return embedding_bag(
            self.columns,
            table,
            self.offsets,
            mode="sum",
            per_sample_weights=weights.to(table.dtype),
            include_last_offset=True,
        )


def _pieces(offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first edge of each piece of a row, and the first piece of each row."""
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
    """The weighted sum over the neighbours of each row."""

    def __init__(self, edges: Edges) -> None:
        super().__init__()
        self.sums, self.transposed = RowSums(edges), RowSums(edges.transposed())

    def forward(self, table: Float[Tensor, "W D"]) -> Float[Tensor, "R D"]:
        return _WeightedSum.apply(table.contiguous(), self.sums, self.transposed)  # type: ignore[no-untyped-call]


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
    """table[index], with a gradient that needs no sort: by atomics on a GPU, row by row on a CPU."""
    if device_of(table).is_gpu:
        return _RowsOnGpu.apply(table, index)  # type: ignore[no-untyped-call]
    return embedding(index, table)


def entries_of(numbers: Float[Tensor, "W"], index: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """numbers[index], with a gradient that a CPU sums in a fixed order: equal with any number of threads."""
    return numbers.index_select(0, index.flatten()).view(index.shape)

"""Sparse matrices in CSR form, with the two products that simple baselines need."""

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

Array = npt.NDArray[np.int64]


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

"""Sums over the edges of each row, without atomics: a long row is split into pieces, whose sums are added in order.

Shapes: E edges, P pieces, R rows, W rows of the table, D width.
"""

import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

EDGES = 32  # edges that one program reads at a time


def segment_sum(
    table: Float[Tensor, "W D"],
    columns: Int[Tensor, "E"],
    weights: Float[Tensor, "E"],
    pieces: Int[Tensor, "P_and_one"],
    row_pieces: Int[Tensor, "R_and_one"],
) -> Float[Tensor, "R D"]:
    """The weighted sum over the edges of each row; piece p holds the edges pieces[p] to pieces[p + 1]."""
    width = table.shape[1]
    partial = table.new_empty(len(pieces) - 1, width)
    output = table.new_empty(len(row_pieces) - 1, width)
    padded = triton.next_power_of_2(width)
    if len(partial):
        _piece_sums[(len(partial),)](table, columns, weights, pieces, partial, D=width, DP=padded, T=EDGES, num_warps=1)
    if len(output):
        _row_sums[(len(output),)](partial, row_pieces, output, D=width, DP=padded, T=EDGES, num_warps=1)
    return output


@triton.jit
def _piece_sums(table, columns, weights, pieces, partial, D: tl.constexpr, DP: tl.constexpr, T: tl.constexpr):
    piece = tl.program_id(0)
    first = tl.load(pieces + piece)
    last = tl.load(pieces + piece + 1)
    column = tl.arange(0, DP)
    total = tl.zeros((T, DP), dtype=tl.float32)
    for start in range(first, last, T):
        edge = start + tl.arange(0, T)
        known = edge < last
        sender = tl.load(columns + edge, mask=known, other=0)
        weight = tl.load(weights + edge, mask=known, other=0.0)
        there = known[:, None] & (column[None, :] < D)
        total += weight[:, None] * tl.load(table + sender[:, None] * D + column[None, :], mask=there, other=0.0)
    tl.store(partial + piece * D + column, tl.sum(total, axis=0), mask=column < D)


@triton.jit
def _row_sums(partial, row_pieces, output, D: tl.constexpr, DP: tl.constexpr, T: tl.constexpr):
    row = tl.program_id(0)
    first = tl.load(row_pieces + row)
    last = tl.load(row_pieces + row + 1)
    column = tl.arange(0, DP)
    total = tl.zeros((T, DP), dtype=tl.float32)
    for start in range(first, last, T):
        piece = start + tl.arange(0, T)
        there = (piece < last)[:, None] & (column[None, :] < D)
        total += tl.load(partial + piece[:, None] * D + column[None, :], mask=there, other=0.0)
    tl.store(output + row * D + column, tl.sum(total, axis=0), mask=column < D)

"""Squash, and the pieces of it that other kernels use. Shapes: R rows, D width."""

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

ROWS = 64  # rows that one program takes
SMALLEST = tl.constexpr(1e-12)  # `layers/squash.py` SMALLEST_SQUARE


def squash(vectors: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch D"]:
    """`layers.squash.squash`."""
    return _Squash.apply(vectors)  # type: ignore[no-untyped-call]


class _Squash(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vectors: Tensor) -> Tensor:
        rows = vectors.reshape(-1, vectors.shape[-1]).contiguous()
        ctx.save_for_backward(rows)
        output = torch.empty_like(rows)
        _squash[grid_of(rows, ROWS)](rows, output, len(rows), **_sizes(rows))
        return output.view(vectors.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (rows,) = ctx.saved_tensors
        output = torch.empty_like(rows)
        _squash_backward[grid_of(rows, ROWS)](rows, gradients[0].contiguous(), output, len(rows), **_sizes(rows))
        return (output.view(gradients[0].shape),)


def grid_of(rows: Tensor, block: int) -> tuple[int]:
    """The number of programs when each computes a block of rows; at least one."""
    return (max(1, triton.cdiv(len(rows), block)),)


def _sizes(rows: Tensor) -> dict[str, int]:
    width = rows.shape[1]
    return {"D": width, "DP": triton.next_power_of_2(width), "R": ROWS, "num_warps": 2}


@triton.jit
def squashed(vector):
    """`layers.squash.squash` of each row."""
    length = tl.sum(vector * vector, axis=1)
    return vector * (tl.sqrt(length + SMALLEST) / (1 + length))[:, None]


@triton.jit
def unsquash(vector, gradient):
    """The gradient of squash at `vector`: with f(s) = √(s + ε) / (1 + s) it is g f + 2 v f'(|v|²) (g·v)."""
    length = tl.sum(vector * vector, axis=1)
    root = tl.sqrt(length + SMALLEST)
    factor = root / (1 + length)
    slope = (0.5 / root - factor) / (1 + length)
    along = tl.sum(gradient * vector, axis=1)
    return gradient * factor[:, None] + vector * (2 * slope * along)[:, None]


@triton.jit
def _squash(vectors, output, rows, D: tl.constexpr, DP: tl.constexpr, R: tl.constexpr):
    row = tl.program_id(0) * R + tl.arange(0, R)
    column = tl.arange(0, DP)
    place = row[:, None] * D + column[None, :]
    there = (row[:, None] < rows) & (column[None, :] < D)
    tl.store(output + place, squashed(tl.load(vectors + place, mask=there, other=0.0)), mask=there)


@triton.jit
def _squash_backward(vectors, gradients, output, rows, D: tl.constexpr, DP: tl.constexpr, R: tl.constexpr):
    row = tl.program_id(0) * R + tl.arange(0, R)
    column = tl.arange(0, DP)
    place = row[:, None] * D + column[None, :]
    there = (row[:, None] < rows) & (column[None, :] < D)
    vector = tl.load(vectors + place, mask=there, other=0.0)
    tl.store(output + place, unsquash(vector, tl.load(gradients + place, mask=there, other=0.0)), mask=there)

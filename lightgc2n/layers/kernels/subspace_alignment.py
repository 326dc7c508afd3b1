"""Subspace alignment (Eq. 15, 16 and 19): affinity, refinement, the norms and the mix of each item in one pass.

Shapes: I items, A latent users, D width.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from lightgc2n.layers.kernels.squash import grid_of

BLOCK = 32  # items that one program takes
SMALLEST_SQUARE = tl.constexpr(1e-12)  # `subspaces.SMALLEST_SQUARE`
SMALLEST_LENGTH = tl.constexpr(1e-12)  # the eps of torch.nn.functional.normalize


def align(
    items: Float[Tensor, "I D"],
    bases: Float[Tensor, "A D"],
    mix: Float[Tensor, "D D"],
    norm: torch.nn.LayerNorm,
    smoothing: float,
) -> tuple[Float[Tensor, "I D"], Float[Tensor, "I D"]]:
    """The refined items and the rows of a sequence, as `subspaces.SubspaceAlignment` has them."""
    learned = (bases, mix, norm.weight, norm.bias)
    return _Align.apply(items.contiguous(), *learned, smoothing, norm.eps)  # type: ignore[no-untyped-call]


class _Align(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, items: Tensor, bases: Tensor, mix: Tensor, gain: Tensor, shift: Tensor, smoothing: float, eps: float
    ) -> tuple[Tensor, Tensor]:
        refined, rows = torch.empty_like(items), torch.empty_like(items)
        ctx.save_for_backward(items, bases, mix, gain)
        ctx.constants = (smoothing * items.shape[1], eps)
        arguments = (items, bases, mix, gain, shift, refined, rows, len(items), *ctx.constants)
        _align[grid_of(items, BLOCK)](*arguments, **_sizes(items, bases))
        return refined, rows

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        items, bases, mix, gain = ctx.saved_tensors
        people, width = bases.shape
        to_refined, to_rows = (gradient.contiguous() for gradient in gradients)
        to_items, grid = torch.empty_like(items), grid_of(items, BLOCK)
        partial = items.new_empty(grid[0], people + width + 2, width)  # bases, mix, gain and shift below each other
        arguments = (items, bases, mix, gain, to_refined, to_rows, to_items, partial, len(items), *ctx.constants)
        _align_backward[grid](*arguments, **_sizes(items, bases))
        to_bases, to_mix, to_gain, to_shift = partial.sum(dim=0).split([people, width, 1, 1])
        return to_items, to_bases, to_mix, to_gain[0], to_shift[0], None, None


def _sizes(items: Tensor, bases: Tensor) -> dict[str, int]:
    people, width = bases.shape
    padded = max(16, triton.next_power_of_2(width))  # tl.dot needs at least 16
    return {"A": people, "D": width, "DP": padded, "R": BLOCK, "num_warps": 2}


@triton.jit
def _refined(item, bases, column, smoothing_term, A: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, R: tl.constexpr):
    """Eq. 15 and 16, and the sum of the strengths: Σ_j t_j (p_j / n_j) d_j / Σ_j t_j with t_j = p_j² + λ d₂."""
    total = tl.zeros((R,), dtype=tl.float32)
    mixed = tl.zeros((R, DP), dtype=tl.float32)
    for person in tl.static_range(A):
        base = tl.load(bases + person * D + column, mask=column < D, other=0.0)
        along = tl.sum(item * base[None, :], axis=1)
        strength = along * along + smoothing_term
        total += strength
        mixed += (strength * along / (tl.sum(base * base) + SMALLEST_SQUARE))[:, None] * base[None, :]
    return mixed / total[:, None], total


@triton.jit
def _normed(item, refined, mix, column, eps, D: tl.constexpr):
    """The normalised item plus the map of its refinement, before gain and shift of the LayerNorm; and the scales."""
    length = tl.maximum(tl.sqrt(tl.sum(item * item, axis=1)), SMALLEST_LENGTH)
    square = (column[:, None] < D) & (column[None, :] < D)
    across = tl.load(mix + column[None, :] * D + column[:, None], mask=square, other=0.0)
    both = item / length[:, None] + tl.dot(refined, across, input_precision="ieee")
    centred = tl.where(column[None, :] < D, both - (tl.sum(both, axis=1) / D)[:, None], 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, axis=1) / D + eps)
    return centred * scale[:, None], scale, length


@triton.jit
def _align(
    items, bases, mix, gain, shift, refined, rows, count, smoothing_term, eps,
    A: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0) * R + tl.arange(0, R), tl.arange(0, DP)
    there = (row[:, None] < count) & (column[None, :] < D)
    place = row[:, None] * D + column[None, :]
    item = tl.load(items + place, mask=there, other=0.0)
    output, _ = _refined(item, bases, column, smoothing_term, A, D, DP, R)
    normed, _, _ = _normed(item, output, mix, column, eps, D)
    raised = normed * tl.load(gain + column, mask=column < D, other=0.0)[None, :]
    tl.store(refined + place, output, mask=there)
    tl.store(rows + place, raised + tl.load(shift + column, mask=column < D, other=0.0)[None, :], mask=there)


@triton.jit
def _align_backward(
    items, bases, mix, gain, to_refined, to_rows, to_items, partial, count, smoothing_term, eps,
    A: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0) * R + tl.arange(0, R), tl.arange(0, DP)
    there = (row[:, None] < count) & (column[None, :] < D)
    square = (column[:, None] < D) & (column[None, :] < D)
    place, down = row[:, None] * D + column[None, :], column[:, None] * D + column[None, :]
    item = tl.load(items + place, mask=there, other=0.0)
    output, total = _refined(item, bases, column, smoothing_term, A, D, DP, R)
    normed, scale, length = _normed(item, output, mix, column, eps, D)
    mine = partial + tl.program_id(0) * (A + D + 2) * D
    # Eq. 19, backwards: LayerNorm, the mix, the length of one.
    to_row = tl.load(to_rows + place, mask=there, other=0.0)
    tl.store(mine + (A + D) * D + column, tl.sum(to_row * normed, axis=0), mask=column < D)
    tl.store(mine + (A + D + 1) * D + column, tl.sum(to_row, axis=0), mask=column < D)
    to_normed = to_row * tl.load(gain + column, mask=column < D, other=0.0)[None, :]
    level, tilt = tl.sum(to_normed, axis=1) / D, tl.sum(to_normed * normed, axis=1) / D
    to_both = tl.where(there, scale[:, None] * (to_normed - level[:, None] - normed * tilt[:, None]), 0.0)
    tl.store(mine + A * D + down, tl.dot(tl.trans(to_both), output, input_precision="ieee"), mask=square)
    unit = item / length[:, None]
    to_item = (to_both - unit * tl.sum(unit * to_both, axis=1)[:, None]) / length[:, None]
    straight = tl.load(mix + down, mask=square, other=0.0)
    to_refined_row = tl.load(to_refined + place, mask=there, other=0.0) + tl.dot(
        to_both, straight, input_precision="ieee"
    )
    # Eq. 15 and 16, backwards: with s_j = t_j / T a strength changes its own share, and all shares through T.
    pull = tl.zeros((R,), dtype=tl.float32)
    for person in tl.static_range(A):
        base = tl.load(bases + person * D + column, mask=column < D, other=0.0)
        along = tl.sum(item * base[None, :], axis=1)
        to_length = tl.sum(to_refined_row * base[None, :], axis=1) / (tl.sum(base * base) + SMALLEST_SQUARE)
        pull += to_length * along * (along * along + smoothing_term) / total
    for person in tl.static_range(A):
        base = tl.load(bases + person * D + column, mask=column < D, other=0.0)
        size = tl.sum(base * base) + SMALLEST_SQUARE
        along = tl.sum(item * base[None, :], axis=1)
        share = (along * along + smoothing_term) / total
        to_length = tl.sum(to_refined_row * base[None, :], axis=1) / size
        to_along = to_length * share + 2 * along * (to_length * along - pull) / total
        to_size = -to_length * share * along / size
        to_item += to_along[:, None] * base[None, :]
        to_base = (share * along / size)[:, None] * to_refined_row + to_along[:, None] * item
        to_base += (2 * to_size)[:, None] * base[None, :]
        tl.store(mine + person * D + column, tl.sum(tl.where(there, to_base, 0.0), axis=0), mask=column < D)
    tl.store(to_items + place, to_item, mask=there)

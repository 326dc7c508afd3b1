"""A sum of linear maps, squashed: the update of a latent user (Eq. 6 to 8) or of an item (Eq. 9, 10) in one pass.

Shapes: N accounts or items, R rows, K maps, D width.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from lightgc2n.layers.kernels.squash import squashed, unsquash

BLOCK = 32  # accounts or items that one program takes


def squashed_sum(
    weights: list[Float[Tensor, "D D"]],
    shared: Float[Tensor, "N D"],
    first: Float[Tensor, "R D"],
    second: Float[Tensor, "R D"] | None = None,
) -> Float[Tensor, "R D"]:
    """squash(shared W₁ᵀ + first W₂ᵀ + second W₃ᵀ); each row of `shared` goes to the R / N rows of its account."""
    given = [rows.contiguous() for rows in (shared, first, *([] if second is None else [second]))]
    return _SquashedSum.apply(torch.stack(weights), *given)  # type: ignore[no-untyped-call]


class _SquashedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, *rows: Tensor) -> Tensor:
        shared, first, second = rows[0], rows[1], rows[-1]  # a kernel needs a pointer even where it is not read
        inner, output = torch.empty_like(first), torch.empty_like(first)
        grid, sizes = _launch(shared, first, len(rows))
        _squashed_sum[grid](shared, first, second, weights, inner, output, len(shared), **sizes)
        ctx.save_for_backward(weights, inner, *rows)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        weights, inner, *rows = ctx.saved_tensors
        output = [torch.empty_like(given) for given in rows]
        grid, sizes = _launch(rows[0], rows[1], len(rows))
        partial = weights.new_empty(grid[0], *weights.shape)
        given = (rows[0], rows[1], rows[-1], weights, inner, gradients[0].contiguous())
        _squashed_sum_backward[grid](*given, output[0], output[1], output[-1], partial, len(rows[0]), **sizes)
        return partial.sum(dim=0), *output


def _launch(shared: Tensor, first: Tensor, maps: int) -> tuple[tuple[int], dict[str, Any]]:
    width = shared.shape[1]
    padded = max(16, triton.next_power_of_2(width))  # tl.dot needs at least 16
    sizes = {"THREE": maps == 3, "REPEAT": len(first) // len(shared), "D": width, "DP": padded, "R": BLOCK}
    return (triton.cdiv(len(shared), BLOCK),), sizes | {"num_warps": 2}


@triton.jit
def _squashed_sum(
    shared, first, second, weights, inner, output, count,
    THREE: tl.constexpr, REPEAT: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * R + tl.arange(0, R)
    column = tl.arange(0, DP)
    there = (row[:, None] < count) & (column[None, :] < D)
    square = (column[:, None] < D) & (column[None, :] < D)
    across = column[None, :] * D + column[:, None]  # a weight as y = x Wᵀ needs it: [in, out]
    one = tl.load(weights + across, mask=square, other=0.0)
    two = tl.load(weights + D * D + across, mask=square, other=0.0)
    if THREE:
        three = tl.load(weights + 2 * D * D + across, mask=square, other=0.0)
    common = tl.load(shared + row[:, None] * D + column[None, :], mask=there, other=0.0)
    base = tl.dot(common, one, input_precision="ieee")
    for part in tl.static_range(REPEAT):
        place = (row[:, None] * REPEAT + part) * D + column[None, :]
        vector = base + tl.dot(tl.load(first + place, mask=there, other=0.0), two, input_precision="ieee")
        if THREE:
            vector += tl.dot(tl.load(second + place, mask=there, other=0.0), three, input_precision="ieee")
        tl.store(inner + place, vector, mask=there)
        tl.store(output + place, squashed(vector), mask=there)


@triton.jit
def _squashed_sum_backward(
    shared, first, second, weights, inner, gradients, to_shared, to_first, to_second, partial, count,
    THREE: tl.constexpr, REPEAT: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * R + tl.arange(0, R)
    column = tl.arange(0, DP)
    there = (row[:, None] < count) & (column[None, :] < D)
    square = (column[:, None] < D) & (column[None, :] < D)
    down = column[:, None] * D + column[None, :]
    one = tl.load(weights + down, mask=square, other=0.0)
    two = tl.load(weights + D * D + down, mask=square, other=0.0)
    if THREE:
        three = tl.load(weights + 2 * D * D + down, mask=square, other=0.0)
    common = tl.load(shared + row[:, None] * D + column[None, :], mask=there, other=0.0)
    to_base = tl.zeros((R, DP), dtype=tl.float32)
    to_two = tl.zeros((DP, DP), dtype=tl.float32)
    to_three = tl.zeros((DP, DP), dtype=tl.float32)
    for part in tl.static_range(REPEAT):
        place = (row[:, None] * REPEAT + part) * D + column[None, :]
        vector = tl.load(inner + place, mask=there, other=0.0)
        to_vector = unsquash(vector, tl.load(gradients + place, mask=there, other=0.0))
        to_base += to_vector
        tl.store(to_first + place, tl.dot(to_vector, two, input_precision="ieee"), mask=there)
        turned = tl.trans(to_vector)
        to_two += tl.dot(turned, tl.load(first + place, mask=there, other=0.0), input_precision="ieee")
        if THREE:
            tl.store(to_second + place, tl.dot(to_vector, three, input_precision="ieee"), mask=there)
            to_three += tl.dot(turned, tl.load(second + place, mask=there, other=0.0), input_precision="ieee")
    tl.store(to_shared + row[:, None] * D + column[None, :], tl.dot(to_base, one, input_precision="ieee"), mask=there)
    mine = partial + tl.program_id(0) * (3 if THREE else 2) * D * D + down
    tl.store(mine, tl.dot(tl.trans(to_base), common, input_precision="ieee"), mask=square)
    tl.store(mine + D * D, to_two, mask=square)
    if THREE:
        tl.store(mine + 2 * D * D, to_three, mask=square)

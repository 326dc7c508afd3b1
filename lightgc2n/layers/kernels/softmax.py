"""Softmax of a table of logits, and the gradient of cross-entropy in place: one pass to read, one to write.

Shapes: R rows, J classes.
"""

import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

COLUMNS = 4096  # columns that one program reads at a time


def log_totals(logits: Float[Tensor, "R J"]) -> Float[Tensor, "R 1"]:
    """log Σ_j exp(l_ij) of each row, read once."""
    output = logits.new_empty(len(logits), 1)
    _log_totals[(len(logits),)](logits, output, logits.shape[1], BLOCK=COLUMNS, num_warps=8)
    return output


def become_gradients(
    logits: Float[Tensor, "R J"],
    log_total: Float[Tensor, "R 1"],
    target: Int[Tensor, "R 1"],
    weight: Float[Tensor, "R 1"],
) -> Float[Tensor, "R J"]:
    """weight_i · (exp(l_ij - log_total_i) - [j is the target]), in place of the logits."""
    classes = logits.shape[1]
    grid = (len(logits), triton.cdiv(classes, COLUMNS))
    _become_gradients[grid](logits, log_total, target, weight.contiguous(), classes, BLOCK=COLUMNS, num_warps=8)
    return logits


@triton.jit
def _log_totals(logits, output, classes, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    most = tl.full((), float("-inf"), dtype=tl.float32)
    total = tl.zeros((), dtype=tl.float32)
    for first in range(0, classes, BLOCK):
        column = first + tl.arange(0, BLOCK)
        value = tl.load(logits + row * classes + column, mask=column < classes, other=float("-inf"))
        larger = tl.maximum(most, tl.max(value, axis=0))
        total = total * tl.exp(most - larger) + tl.sum(tl.exp(value - larger), axis=0)
        most = larger
    tl.store(output + row, most + tl.log(total))


@triton.jit
def _become_gradients(logits, log_totals, target, weights, classes, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = column < classes
    weight = tl.load(weights + row)
    value = tl.load(logits + row * classes + column, mask=there, other=0.0)
    share = tl.exp(value - tl.load(log_totals + row))
    share = tl.where(column == tl.load(target + row), share - 1.0, share)
    tl.store(logits + row * classes + column, share * weight, mask=there)

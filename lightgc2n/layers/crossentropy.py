"""Cross-entropy over a linear map to very many classes, without storing the table of logits.

Shapes: I queries, J classes, D width, W classes with an extra logit. The loss is a weighted sum, so the gradients of a
row of logits are known as soon as the row is computed: forward and backward run block by block, in cache.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightgc2n.devices import device_of, has_kernels


def linear_cross_entropy(
    queries: Float[Tensor, "I D"],
    classes: Float[Tensor, "J D"],
    target: Int[Tensor, "I"],
    weights: Float[Tensor, "I"],
    bias: Float[Tensor, "J"] | None = None,
    more: tuple[Int[Tensor, "I W"], Float[Tensor, "I W"]] | None = None,
) -> Float[Tensor, ""]:
    """Σ_i weights_i · (log Σ_j exp(l_ij) - l_i,target) with the logits l_ij = q_i·c_j + b_j.

    Args:
        more: for each query some classes and a number to add to the logit of each; classes may repeat.
    """
    arguments = (queries, classes, target, weights, bias, *(more or (None, None)))
    return _LinearCrossEntropy.apply(*arguments)  # type: ignore[no-untyped-call]


def block_rows(classes: int, width: int, device: str) -> int:
    """The number of queries of a block, whose logits fit into cache.

    It is at least the width, so that reading the classes never costs more than computing with them.
    """
    return max(device_of(device).logit_bytes // (4 * max(1, classes)), width, 1)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        classes: Tensor,
        target: Tensor,
        weights: Tensor,
        bias: Tensor | None,
        columns: Tensor | None,
        values: Tensor | None,
    ) -> Tensor:
        rows = block_rows(len(classes), classes.shape[1], queries.device.type)
        loss = queries.new_zeros(())
        to_questions, to_classes = torch.empty_like(queries), torch.zeros_like(classes)
        to_bias = torch.zeros_like(bias) if bias is not None else None
        to_values = torch.empty_like(values) if values is not None else None
        for first in range(0, len(queries), rows):
            part = slice(first, first + rows)
            block, right, weight = queries[part], target[part, None], weights[part, None]
            logits = block @ classes.T if bias is None else torch.addmm(bias, block, classes.T)
            if columns is not None and values is not None:
                logits.scatter_add_(1, columns[part], values[part])
            own = logits.gather(1, right)
            log_total, shares = _gradients(logits, right, weight)
            loss += (weight * (log_total - own)).sum()
            torch.mm(shares, classes, out=to_questions[part])
            to_classes.addmm_(shares.T, block)
            if to_bias is not None:
                to_bias += shares.sum(dim=0)
            if columns is not None and to_values is not None:
                torch.gather(shares, 1, columns[part], out=to_values[part])
        ctx.save_for_backward(to_questions, to_classes, to_bias, to_values)
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        to_questions, to_classes, *others = ctx.saved_tensors
        scale = gradients[0]
        to_bias, to_values = (gradient if gradient is None else gradient * scale for gradient in others)
        return to_questions * scale, to_classes * scale, None, None, to_bias, None, to_values


def _gradients(logits: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """log Σ_j exp(l_ij) of each row, and the gradients of the logits."""
    if has_kernels(logits):
        from lightgc2n.layers.kernels import softmax

        log_total = softmax.log_totals(logits)
        return log_total, softmax.become_gradients(logits, log_total, target, weight)
    highest = logits.amax(dim=1, keepdim=True)
    shares = torch.softmax(logits, dim=1)  # one fused pass, twice as fast as exp and a sum
    log_total = highest - shares.amax(dim=1, keepdim=True).log()  # the largest share is exp(highest) / total
    return log_total, shares.mul_(weight).scatter_add_(1, target, -weight)

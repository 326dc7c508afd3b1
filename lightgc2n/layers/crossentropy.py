"""Cross-entropy over a linear map to very many classes, without ever keeping the table of logits.

Shapes: I questions, J classes, D width, W classes that a question says more of. The loss is a weighted sum, so the
gradient of a logit is known as soon as its row is: it is used up block of rows by block of rows, while the block is
still in fast memory.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightgc2n.layers.gpu import has_kernels

BLOCK_BYTES = {"cpu": 2 * 2**20, "cuda": 256 * 2**20}


def linear_cross_entropy(
    questions: Float[Tensor, "I D"],
    classes: Float[Tensor, "J D"],
    target: Int[Tensor, "I"],
    weights: Float[Tensor, "I"],
    bias: Float[Tensor, "J"] | None = None,
    more: tuple[Int[Tensor, "I W"], Float[Tensor, "I W"]] | None = None,
) -> Float[Tensor, ""]:
    """Σ_i weights_i · (log Σ_j exp(l_ij) - l_i,target) with the logits l_ij = q_i·c_j + b_j.

    Args:
        more: for each question some classes, and what is added to their logits; a class may be there several times.
    """
    given = (questions, classes, target, weights, bias, *(more or (None, None)))
    return _LinearCrossEntropy.apply(*given)  # type: ignore[no-untyped-call]


def block_rows(classes: int, width: int, device: str) -> int:
    """How many questions are taken at once: their logits fit into fast memory.

    They are as many as the width at least, so that reading all classes never costs more than what is done with them.
    """
    return max(BLOCK_BYTES[device] // (4 * max(1, classes)), width, 1)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        questions: Tensor,
        classes: Tensor,
        target: Tensor,
        weights: Tensor,
        bias: Tensor | None,
        columns: Tensor | None,
        values: Tensor | None,
    ) -> Tensor:
        rows = block_rows(len(classes), classes.shape[1], questions.device.type)
        loss = questions.new_zeros(())
        to_questions, to_classes = torch.empty_like(questions), torch.zeros_like(classes)
        to_bias = torch.zeros_like(bias) if bias is not None else None
        to_values = torch.empty_like(values) if values is not None else None
        for first in range(0, len(questions), rows):
            part = slice(first, first + rows)
            asked, right, weight = questions[part], target[part, None], weights[part, None]
            logits = asked @ classes.T if bias is None else torch.addmm(bias, asked, classes.T)
            if columns is not None and values is not None:
                logits.scatter_add_(1, columns[part], values[part])
            own = logits.gather(1, right)
            log_total, shares = _gradients(logits, right, weight)
            loss += (weight * (log_total - own)).sum()
            torch.mm(shares, classes, out=to_questions[part])
            to_classes.addmm_(shares.T, asked)
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
        to_bias, to_values = (found if found is None else found * scale for found in others)
        return to_questions * scale, to_classes * scale, None, None, to_bias, None, to_values


def _gradients(logits: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """log Σ_j exp(l_ij) of each row, and the gradient of each logit, in its place."""
    if has_kernels(logits):
        from lightgc2n.layers.kernels import softmax

        log_total = softmax.log_totals(logits)
        return log_total, softmax.become_gradients(logits, log_total, target, weight)
    highest = logits.amax(dim=1, keepdim=True)
    shares = logits.sub_(highest).exp_()
    total = shares.sum(dim=1, keepdim=True)
    return total.log() + highest, shares.mul_(weight / total).scatter_add_(1, target, -weight)

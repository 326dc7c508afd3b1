"""Sampled negatives, and losses of a target against its negatives.

Shapes: I queries, K negatives for each, C = 1 + K candidates, the target first.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy


def candidates_of(target: Int[Tensor, "I"], items: int, wrong: int) -> Int[Tensor, "I C"]:
    """Each target, followed by negatives sampled uniformly from all other items."""
    return torch.cat([target[:, None], other_items(target, items, wrong)], dim=1)


def other_items(target: Int[Tensor, "I"], items: int, count: int) -> Int[Tensor, "I K"]:
    """Items sampled uniformly from all but the target; the target itself if it is the only item."""
    draw = torch.randint(max(1, items - 1), (len(target), count), device=target.device)
    # Numbers from the target on are shifted by one, so no sample is rejected.
    return (draw + (draw >= target[:, None])).clamp(max=items - 1)


def pointwise_loss(scores: Float[Tensor, "I C"]) -> Float[Tensor, ""]:
    """The mean binary cross-entropy of the candidates."""
    truth = torch.zeros_like(scores)
    truth[:, 0] = 1
    return binary_cross_entropy_with_logits(scores, truth) if len(scores) else scores.sum()


def softmax_loss(scores: Float[Tensor, "I C"]) -> Float[Tensor, ""]:
    """The mean cross-entropy of the target among the candidates.

    With a single negative it is the BPR loss: softplus(negative - target).
    """
    right = torch.zeros(len(scores), dtype=torch.long, device=scores.device)
    return cross_entropy(scores, right) if len(scores) else scores.sum()


LOSSES = {"pointwise": pointwise_loss, "softmax": softmax_loss}

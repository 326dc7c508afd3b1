"""Right items against wrong ones: how the wrong ones are drawn, and the losses that tell them apart.

Shapes: I questions, K wrong items for each, C = 1 + K candidates with the right one in front.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy


def candidates_of(target: Int[Tensor, "I"], items: int, wrong: int) -> Int[Tensor, "I C"]:
    """Each target, and behind it items drawn evenly from all the others."""
    return torch.cat([target[:, None], other_items(target, items, wrong)], dim=1)


def other_items(target: Int[Tensor, "I"], items: int, count: int) -> Int[Tensor, "I K"]:
    """Items drawn evenly from all but the target; where the catalogue holds no other, the target itself."""
    draw = torch.randint(max(1, items - 1), (len(target), count), device=target.device)
    # Numbers from the target on stand for the item behind them: no draw is ever rejected.
    return (draw + (draw >= target[:, None])).clamp(max=items - 1)


def pointwise_loss(scores: Float[Tensor, "I C"]) -> Float[Tensor, ""]:
    """The log loss of asking every candidate by itself whether it is the right one, as a mean."""
    truth = torch.zeros_like(scores)
    truth[:, 0] = 1
    return binary_cross_entropy_with_logits(scores, truth) if len(scores) else scores.sum()


def softmax_loss(scores: Float[Tensor, "I C"]) -> Float[Tensor, ""]:
    """The log loss of choosing the right candidate among all, as a mean.

    Against a single wrong item it is the pairwise loss of BPR: softplus(wrong - right).
    """
    right = torch.zeros(len(scores), dtype=torch.long, device=scores.device)
    return cross_entropy(scores, right) if len(scores) else scores.sum()


LOSSES = {"pointwise": pointwise_loss, "softmax": softmax_loss}

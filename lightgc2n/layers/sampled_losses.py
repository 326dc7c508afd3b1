"""Losses of a target against all classes or against sampled negatives, and the sampling of negatives.

Shapes: I queries, J classes, K negatives, C = 1 + K candidates, the target first, D width.
"""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, embedding, logsigmoid, pad

from lightgc2n.layers.crossentropy import linear_cross_entropy

SHARING = 16  # consecutive queries, about one sequence, that share their negatives


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


def mean_softmax(
    queries: Float[Tensor, "I D"], classes: Float[Tensor, "J D"], target: Int[Tensor, "I"]
) -> Float[Tensor, ""]:
    """The mean cross-entropy over all classes."""
    even = torch.full_like(queries[:, 0], 1 / max(1, len(target)))
    return linear_cross_entropy(queries, classes, target, even)  # ce


class DrawnSoftmax(nn.Module):
    """The mean sampled softmax, with negatives drawn once for all queries by given probabilities.

    The score of a negative is reduced by the log of its expected number of draws (logQ correction), so that many draws
    approach the full softmax. A negative that equals the target is ignored.
    """

    chance: Float[Tensor, "J"]

    def __init__(self, chance: Float[Tensor, "J"], negatives: int) -> None:
        super().__init__()
        self.register_buffer("chance", chance)
        self.negatives = negatives

    def forward(
        self, queries: Float[Tensor, "I D"], classes: Float[Tensor, "J D"], target: Int[Tensor, "I"]
    ) -> Float[Tensor, ""]:
        drawn = torch.multinomial(self.chance, self.negatives, replacement=True)
        others = queries @ classes[drawn].T - (self.negatives * self.chance[drawn]).log()
        own = (queries * embedding(target, classes)).sum(dim=1)
        return sampled_softmax(own, others.masked_fill(drawn == target[:, None], -torch.inf)).mean()


def mean_gbce(
    queries: Float[Tensor, "I D"],
    classes: Float[Tensor, "J D"],
    target: Int[Tensor, "I"],
    negatives: int,
    calibration: float,
) -> Float[Tensor, ""]:
    """The mean gBCE loss; a negative may equal the target, as in the authors' code."""
    own, others, _ = drawn_scores(queries, classes, target, negatives)
    # Differs: scores are offset by the base rate. From zero, training first pushes all scores down together, and the
    # vectors collapse into one direction. A common shift changes no ranking; it is 0 for one negative and t = 0.
    base = base_rate(len(classes), others.shape[1], calibration)
    return gbce(own + base, others + base, len(classes), calibration).mean()


def mean_sampled_softmax(
    queries: Float[Tensor, "I D"], classes: Float[Tensor, "J D"], target: Int[Tensor, "I"], negatives: int
) -> Float[Tensor, ""]:
    """The mean sampled softmax loss; a negative that equals the target is ignored."""
    own, others, is_target = drawn_scores(queries, classes, target, negatives)
    return sampled_softmax(own, others.masked_fill(is_target, -torch.inf)).mean()


def gbce(own: Float[Tensor, "I"], others: Float[Tensor, "I K"], classes: int, calibration: float) -> Float[Tensor, "I"]:
    """Generalised binary cross-entropy: the positive term is down-weighted to correct the overconfidence of sampling.

    Args:
        calibration: t; 0 is plain binary cross-entropy, 1 calibrates the probabilities fully.
    """
    negatives = others.shape[1]
    positive = positive_weight(classes, negatives, calibration)
    return -(positive * logsigmoid(own) + logsigmoid(-others).sum(dim=1)) / (negatives + 1)  # gBCE


def positive_weight(classes: int, negatives: int, calibration: float) -> float:
    """The weight of the positive term: 1 if all other classes are sampled, less if fewer are."""
    sampled = negatives / max(1, classes - 1)  # α
    return 1 - calibration * (1 - sampled)  # β


def base_rate(classes: int, negatives: int, calibration: float) -> float:
    """The optimal score under gBCE of a model with the same score for all classes: log(β / k)."""
    return math.log(positive_weight(classes, negatives, calibration) / max(1, negatives))


def sampled_softmax(own: Float[Tensor, "*batch"], others: Float[Tensor, "*batch K"]) -> Float[Tensor, "*batch"]:
    """The cross-entropy of the target among itself and the negatives; a negative of -inf is ignored."""
    return torch.cat([own[..., None], others], dim=-1).logsumexp(dim=-1) - own  # ce_k


def drawn_scores(
    queries: Float[Tensor, "I D"], classes: Float[Tensor, "J D"], target: Int[Tensor, "I"], negatives: int
) -> tuple[Float[Tensor, "I"], Float[Tensor, "I K"], Bool[Tensor, "I K"]]:
    """The score of each target, the scores of uniformly sampled classes, and a mask of those that equal the target.

    At most all other classes are sampled. Consecutive queries share their samples, so their scores are one matrix
    product.
    """
    groups = -(-len(queries) // SHARING)
    drawn = torch.randint(len(classes), (groups, min(negatives, len(classes) - 1)), device=classes.device)
    grouped = pad(queries, (0, 0, 0, groups * SHARING - len(queries))).view(groups, SHARING, -1)
    others = torch.bmm(grouped, embedding(drawn, classes).mT).flatten(0, 1)[: len(queries)]
    is_target = drawn.repeat_interleave(SHARING, dim=0)[: len(queries)] == target[:, None]
    return (queries * embedding(target, classes)).sum(dim=1), others, is_target

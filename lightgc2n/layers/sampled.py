"""Losses that set the right class against all others, or against a few drawn ones where all would be too many.

Shapes: I questions, J classes, K negatives, D width.
"""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding, logsigmoid, pad

from lightgc2n.layers.crossentropy import linear_cross_entropy

SHARING = 16  # neighbouring questions, about one sequence, that are set against the same negatives


def mean_softmax(
    questions: Float[Tensor, "I D"], classes: Float[Tensor, "J D"], target: Int[Tensor, "I"]
) -> Float[Tensor, ""]:
    """The mean softmax loss of all questions, against all classes."""
    even = torch.full_like(questions[:, 0], 1 / max(1, len(target)))
    return linear_cross_entropy(questions, classes, target, even)  # ce


class DrawnSoftmax(nn.Module):
    """The mean softmax loss against classes drawn once for all questions, not evenly but by a given chance.

    The score of a drawn class is lowered by the log of how often it is expected in a draw, so that many draws give the
    full softmax whatever the chances are. The target is there for certain: its score stays, and a draw of it is void.
    """

    chance: Float[Tensor, "J"]

    def __init__(self, chance: Float[Tensor, "J"], negatives: int) -> None:
        super().__init__()
        self.register_buffer("chance", chance)
        self.negatives = negatives

    def forward(
        self, questions: Float[Tensor, "I D"], classes: Float[Tensor, "J D"], target: Int[Tensor, "I"]
    ) -> Float[Tensor, ""]:
        drawn = torch.multinomial(self.chance, self.negatives, replacement=True)
        others = questions @ classes[drawn].T - (self.negatives * self.chance[drawn]).log()
        own = (questions * embedding(target, classes)).sum(dim=1)
        return sampled_softmax(own, others.masked_fill(drawn == target[:, None], -torch.inf)).mean()


def mean_gbce(
    questions: Float[Tensor, "I D"],
    classes: Float[Tensor, "J D"],
    target: Int[Tensor, "I"],
    negatives: int,
    calibration: float,
) -> Float[Tensor, ""]:
    """The mean gBCE loss of all questions; a negative may happen to be the target, as in the authors' code."""
    own, others, _ = drawn_scores(questions, classes, target, negatives)
    # Differs: scores count from the base rate. From zero, the first thing learned is to push all scores down together,
    # and the vectors collapse into one direction. A common shift changes no ranking, and is 0 for one negative and t 0.
    base = base_rate(len(classes), others.shape[1], calibration)
    return gbce(own + base, others + base, len(classes), calibration).mean()


def mean_sampled_softmax(
    questions: Float[Tensor, "I D"], classes: Float[Tensor, "J D"], target: Int[Tensor, "I"], negatives: int
) -> Float[Tensor, ""]:
    """The mean sampled softmax loss of all questions; a negative that is the target does not count."""
    own, others, is_target = drawn_scores(questions, classes, target, negatives)
    return sampled_softmax(own, others.masked_fill(is_target, -torch.inf)).mean()


def gbce(own: Float[Tensor, "I"], others: Float[Tensor, "I K"], classes: int, calibration: float) -> Float[Tensor, "I"]:
    """Binary cross-entropy whose positive part counts less, as negatives seen too seldom make a model too sure.

    Args:
        calibration: t; 0 is plain binary cross-entropy, 1 makes the model's probabilities right in the long run.
    """
    negatives = others.shape[1]
    positive = positive_weight(classes, negatives, calibration)
    return -(positive * logsigmoid(own) + logsigmoid(-others).sum(dim=1)) / (negatives + 1)  # gBCE


def positive_weight(classes: int, negatives: int, calibration: float) -> float:
    """How much the positive part counts: 1 if all other classes are drawn, less the fewer are."""
    sampled = negatives / max(1, classes - 1)  # α
    return 1 - calibration * (1 - sampled)  # β


def base_rate(classes: int, negatives: int, calibration: float) -> float:
    """The score that gBCE asks of a model that cannot tell classes apart: log(β / k)."""
    return math.log(positive_weight(classes, negatives, calibration) / max(1, negatives))


def sampled_softmax(own: Float[Tensor, "*batch"], others: Float[Tensor, "*batch K"]) -> Float[Tensor, "*batch"]:
    """-log of the right class's share among itself and the negatives; a negative of -inf does not count."""
    return torch.cat([own[..., None], others], dim=-1).logsumexp(dim=-1) - own  # ce_k


def drawn_scores(
    questions: Float[Tensor, "I D"], classes: Float[Tensor, "J D"], target: Int[Tensor, "I"], negatives: int
) -> tuple[Float[Tensor, "I"], Float[Tensor, "I K"], Bool[Tensor, "I K"]]:
    """The score of each target, the scores of classes drawn evenly, and which of these are the target after all.

    Never more than all other classes are drawn. A few neighbouring questions share a draw, which makes their scores
    one product of matrices.
    """
    groups = -(-len(questions) // SHARING)
    drawn = torch.randint(len(classes), (groups, min(negatives, len(classes) - 1)), device=classes.device)
    grouped = pad(questions, (0, 0, 0, groups * SHARING - len(questions))).view(groups, SHARING, -1)
    others = torch.bmm(grouped, embedding(drawn, classes).mT).flatten(0, 1)[: len(questions)]
    is_target = drawn.repeat_interleave(SHARING, dim=0)[: len(questions)] == target[:, None]
    return (questions * embedding(target, classes)).sum(dim=1), others, is_target

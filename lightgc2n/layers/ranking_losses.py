"""Losses of the next item: over all items, or among the other targets of the batch and sampled items.

Shapes: P targets, G groups of B targets, C candidates beside the target, M items, H width of a state.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import elu as exponential_linear
from torch.nn.functional import embedding, pad

from lightgc2n.data.batches import TrainingBatch
from lightgc2n.layers.crossentropy import linear_cross_entropy
from lightgc2n.layers.recurrent import ItemVectors
from lightgc2n.layers.sampled_losses import sampled_softmax
from lightgc2n.layers.sparse import entries_of, rows_of

TINY = 1e-24  # inside a logarithm


def sampled_cross_entropy(
    positive: Float[Tensor, "*batch"], negatives: Float[Tensor, "*batch C"], usable: Bool[Tensor, "*batch C"]
) -> Float[Tensor, "*batch"]:
    """-log of the target's share among itself and the usable negatives."""
    return sampled_softmax(positive, negatives.masked_fill(~usable, -torch.inf))  # L = -log softmax(r')_target


def bpr_max(
    positive: Float[Tensor, "*batch"],
    negatives: Float[Tensor, "*batch C"],
    usable: Bool[Tensor, "*batch C"],
    regularisation: float,
    elu: float,
) -> Float[Tensor, "*batch"]:
    """The target against each negative, weighted by the softmax of the negatives.

    Args:
        elu: below zero a score r counts as elu · (exp(r) - 1); 0 leaves scores as they are.
    """
    if elu > 0:
        positive, negatives = exponential_linear(positive, elu), exponential_linear(negatives, elu)
    lowest = torch.finfo(negatives.dtype).min
    share = negatives.masked_fill(~usable, lowest).softmax(dim=-1) * usable  # π_j, the positive left out
    won = (share * (positive[..., None] - negatives).sigmoid()).sum(dim=-1)  # Σ_j π_j σ(r_i - r_j)
    return -(won + TINY).log() + regularisation * (share * negatives.square()).sum(dim=-1)  # + λ_b Σ_j π_j r_j²


def top1(
    positive: Float[Tensor, "*batch"], negatives: Float[Tensor, "*batch C"], usable: Bool[Tensor, "*batch C"]
) -> Float[Tensor, "*batch"]:
    """The TOP1 loss: how far the negatives are above the target and above zero; tanh bounds the scores."""
    positive, negatives = positive.tanh(), negatives.tanh()
    terms = (negatives - positive[..., None]).sigmoid() + negatives.square().sigmoid()
    # The target is one of the N_S candidates: σ(r_i - r_i) = 1/2 stays, σ(r_i²) is subtracted.
    return ((terms * usable).sum(dim=-1) + 0.5) / (usable.sum(dim=-1) + 1)  # (1/N_S) Σ_j [σ(r_j - r_i) + σ(r_j²)]


class FullCrossEntropy(nn.Module):
    """The mean cross-entropy of the targets, over all items."""

    def forward(self, states: Float[Tensor, "B T H"], items: ItemVectors, batch: TrainingBatch) -> Float[Tensor, ""]:
        queries = rows_of(states.flatten(0, 1), batch.at)
        return linear_cross_entropy(queries, items.outputs, batch.target, batch.share, items.bias)


class SampledLoss(nn.Module):
    """A loss among the targets of a group of rows and items sampled by a power of their counts.

    Groups are formed place by place, so that the other targets of a group are mostly of other rows. A candidate that
    equals the target is left out.

    Args:
        samples: items sampled in each step, besides the targets of the group.
        alpha: the sampling probability is proportional to the count to this power.
        correction: the multiple of log P_j that is subtracted from a score, where P_j is the count of a target, and the
            count to the power alpha of a sampled item.
    """

    counts: Float[Tensor, "M"]

    def __init__(
        self,
        counts: Float[Tensor, "M"],
        criterion: Callable[[Tensor, Tensor, Tensor], Tensor],
        samples: int,
        alpha: float,
        correction: float = 0.0,
    ) -> None:
        super().__init__()
        self.register_buffer("counts", counts)
        self.criterion, self.samples, self.alpha, self.correction = criterion, samples, alpha, correction

    def forward(self, states: Float[Tensor, "B T H"], items: ItemVectors, batch: TrainingBatch) -> Float[Tensor, ""]:
        by_place = batch.counts.T
        queries, target = states.transpose(0, 1)[by_place], batch.next_item.T[by_place]
        targets, rows = len(target), len(batch.account)
        groups = -(-targets // rows)
        queries = pad(queries, (0, 0, 0, groups * rows - targets)).view(groups, rows, -1)
        target = pad(target, (0, groups * rows - targets)).view(groups, rows)
        real_targets = (torch.arange(groups * rows, device=target.device) < targets).view_as(target)
        return self.among(queries, target, real_targets, self.drawn(), items)[real_targets].mean()

    def drawn(self) -> Int[Tensor, "S"]:
        """Sampled items that occur in training, with repeats."""
        weights = self.counts.pow(self.alpha) * (self.counts > 0)
        if self.samples == 0:
            return torch.empty(0, dtype=torch.long, device=weights.device)
        return torch.multinomial(weights, self.samples, replacement=True)

    def among(
        self,
        queries: Float[Tensor, "G B H"],
        target: Int[Tensor, "G B"],
        real_targets: Bool[Tensor, "G B"],
        drawn: Int[Tensor, "S"],
        items: ItemVectors,
    ) -> Float[Tensor, "G B"]:
        """The loss of each target among the targets of its group and the sampled items; padding is no candidate."""
        to_targets = queries @ embedding(target, items.outputs).mT + self._bias(items, target, 1.0)[:, None]
        to_drawn = queries @ rows_of(items.outputs, drawn).T + self._bias(items, drawn, self.alpha)
        candidate = torch.cat([target, drawn.expand(len(target), -1)], dim=1)[:, None]
        real = pad(real_targets, (0, len(drawn)), value=True)[:, None]
        usable = real & (candidate != target[..., None])
        own = to_targets.diagonal(dim1=1, dim2=2)
        return self.criterion(own, torch.cat([to_targets, to_drawn], dim=2), usable)

    def _bias(self, items: ItemVectors, item: Int[Tensor, "*items"], power: float) -> Float[Tensor, "*items"]:
        """b_j - λ_q log P_j."""
        return (
            entries_of(items.bias, item) - self.correction * power * self.counts[item].clamp(min=1).log()
        )  # r'_j = r_j - ...

"""The balance of repeat and new: how a bonus on earlier items, and a place that they do not fall behind, change ranks.

Shapes: B questions, M items, T earlier items, C cutoff.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import leaky_relu, pad

LEAK = 0.001  # of the distance to that place, so that what is drawn up to it keeps its order


def drawn_up(own: Float[Tensor, "B T"], place: Float[Tensor, "B 1"]) -> Float[Tensor, "B T"]:
    """The scores of earlier items, drawn up to just behind the score of a place where they are below it."""
    return torch.where(place.isfinite(), place + leaky_relu(own - place, LEAK), own)


def draw_up(
    scores: Float[Tensor, "B M"], earlier: Int[Tensor, "B T"], known: Bool[Tensor, "B T"], place: int
) -> Float[Tensor, "B M"]:
    """Scores in which no earlier item stands far behind the `place`-th best of all others; 0 leaves them as they are.

    Args:
        known: which places hold an earlier item, each of which stands once.
    """
    if place == 0:
        return scores
    best = best_others(scores, earlier, known, place)
    drawn = drawn_up(scores.gather(1, earlier), best[:, -1:])
    return scores.scatter_reduce(1, earlier, torch.where(known, drawn, -torch.inf), "amax")


def best_others(
    scores: Float[Tensor, "B M"], earlier: Int[Tensor, "B T"], known: Bool[Tensor, "B T"], count: int
) -> Float[Tensor, "B C"]:
    """The best scores of items that are no earlier ones, minus infinity where there are not so many."""
    others = scores.scatter_reduce(1, earlier, torch.where(known, -torch.inf, torch.inf), "amin")
    return others.topk(min(count, others.shape[1]), dim=1).values


@dataclass(frozen=True)
class Shown:
    """All that the rank of a target depends on, whatever bonus earlier items have: small enough to be kept."""

    own: Float[Tensor, "B 1"]  # the target's score without a bonus
    before: Float[Tensor, "B T"]  # those of the earlier items; minus infinity where there is none
    bonus: Float[Tensor, "B T"]
    is_target: Bool[Tensor, "B T"]
    best: Float[Tensor, "B C"]  # of all other items only the best can push a target beyond the cutoff
    cutoff: int

    @classmethod
    def of(
        cls,
        scores: Float[Tensor, "B M"],
        earlier: Int[Tensor, "B T"],
        bonus: Float[Tensor, "B T"],
        known: Bool[Tensor, "B T"],
        target: Int[Tensor, "B"],
        cutoff: int,
    ) -> "Shown":
        """What is kept of scores without any bonus."""
        before = torch.where(known, scores.gather(1, earlier), -torch.inf)
        is_target = known & (earlier == target[:, None])
        best = best_others(scores, earlier, known, cutoff)
        return cls(scores.gather(1, target[:, None]), before, bonus, is_target, best, cutoff)

    @classmethod
    def joined(cls, parts: Sequence["Shown"]) -> "Shown":
        """All questions of several batches, so that a balance is weighed at once."""
        places, best = max(part.before.shape[1] for part in parts), max(part.best.shape[1] for part in parts)
        return cls(
            torch.cat([part.own for part in parts]),
            torch.cat([_wider(part.before, places, -torch.inf) for part in parts]),
            torch.cat([_wider(part.bonus, places, 0.0) for part in parts]),
            torch.cat([_wider(part.is_target, places, 0.0) for part in parts]),
            torch.cat([_wider(part.best, best, -torch.inf) for part in parts]),
            parts[0].cutoff,
        )

    def gain(self, added: float, times: float, place: int) -> Float[Tensor, ""]:
        """The sum of 1 / log2(1 + rank) of the targets within the cutoff with the bonus added + times · bonus."""
        lifted = self.before + added + times * self.bonus
        if place:
            drawn = drawn_up(lifted, self.best[:, min(place, self.best.shape[1]) - 1, None])
            lifted = torch.where(lifted.isfinite(), drawn, lifted)
        asked = torch.where(self.is_target, lifted, 0.0).sum(dim=1, keepdim=True)
        wanted = torch.where(self.is_target.any(dim=1, keepdim=True), asked, self.own)
        rank = 1 + (self.best > wanted).sum(dim=1) + (lifted > wanted).sum(dim=1)
        return torch.where(rank <= self.cutoff, 1 / torch.log2(1.0 + rank), 0.0).double().sum()


def _wider(table: Tensor, columns: int, filling: float) -> Tensor:
    return pad(table, (0, columns - table.shape[1]), value=filling)

"""Calibration of repeats: how a bonus on the items of the history, and a floor on their position, change the ranks.

Shapes: B queries, M items, T items of the history, C cutoff.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import leaky_relu, pad

from lightgc2n.metrics.ranking import discounted_gain

LEAK = 0.001  # slope below the floor, so that raised items keep their order
Balance = tuple[float, float, int]  # added, times and place: the bonus b becomes added + times · b
NEUTRAL: Balance = (0.0, 1.0, 0)
ADDED = (-3.0, -2.0, -1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
TIMES = (0.6, 0.8, 1.0, 1.2, 1.5, 2.0, 2.5, 3.0)
PLACES = (0, 4, 6, 8, 10, 12, 14, 16, 18, 20)


def raised(own: Float[Tensor, "B T"], floor: Float[Tensor, "B 1"]) -> Float[Tensor, "B T"]:
    """The scores of earlier items, those below the floor raised to just below it."""
    return torch.where(floor.isfinite(), floor + leaky_relu(own - floor, LEAK), own)


def raise_earlier_items(
    scores: Float[Tensor, "B M"], earlier: Int[Tensor, "B T"], known: Bool[Tensor, "B T"], place: int
) -> Float[Tensor, "B M"]:
    """The scores, with earlier items raised to the score of the `place`-th best other item; 0 changes nothing.

    Args:
        earlier: the items of the history.
        known: the entries of `earlier` that count; each item counts once.
    """
    if place == 0:
        return scores
    best = best_others(scores, earlier, known, place)
    lifted = raised(scores.gather(1, earlier), best[:, -1:])
    return scores.scatter_reduce(1, earlier, torch.where(known, lifted, -torch.inf), "amax")


def best_others(
    scores: Float[Tensor, "B M"], earlier: Int[Tensor, "B T"], known: Bool[Tensor, "B T"], count: int
) -> Float[Tensor, "B C"]:
    """The best scores of items that are not in the history; minus infinity where there are fewer than `count`."""
    others = scores.scatter_reduce(1, earlier, torch.where(known, -torch.inf, torch.inf), "amin")
    return others.topk(min(count, others.shape[1]), dim=1).values


@dataclass(frozen=True)
class RankInputs:
    """Everything that the rank of a target depends on, for any bonus of earlier items; small enough to store."""

    own: Float[Tensor, "B 1"]  # the target's score without a bonus
    before: Float[Tensor, "B T"]  # the scores of the earlier items; minus infinity where there is none
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
    ) -> "RankInputs":
        """The inputs from scores without any bonus."""
        before = torch.where(known, scores.gather(1, earlier), -torch.inf)
        is_target = known & (earlier == target[:, None])
        best = best_others(scores, earlier, known, cutoff)
        return cls(scores.gather(1, target[:, None]), before, bonus, is_target, best, cutoff)

    @classmethod
    def joined(cls, parts: Sequence["RankInputs"]) -> "RankInputs":
        """The queries of several batches as one batch."""
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
        """The summed NDCG of the targets with the bonus added + times · bonus and the floor at `place`."""
        lifted = self.before + added + times * self.bonus
        if place:
            floor = self.best[:, min(place, self.best.shape[1]) - 1, None]
            lifted = torch.where(lifted.isfinite(), raised(lifted, floor), lifted)
        repeated = torch.where(self.is_target, lifted, 0.0).sum(dim=1, keepdim=True)
        target = torch.where(self.is_target.any(dim=1, keepdim=True), repeated, self.own)
        rank = 1 + (self.best > target).sum(dim=1) + (lifted > target).sum(dim=1)
        return discounted_gain(rank, self.cutoff).double().sum()


def best_balance(queries: RankInputs) -> Balance:
    """The balance with the best NDCG: coordinate search over bonus and place in turn, until neither improves."""

    def best_of(balances: list[Balance]) -> Balance:
        gains = torch.stack([queries.gain(*balance) for balance in balances])
        return balances[gains.tolist().index(float(gains.max()))]  # the first of equals; a single GPU synchronisation

    best, previous = NEUTRAL, None
    while best != previous:
        previous = best
        best = best_of([best, *product(ADDED, TIMES, [best[2]])])
        best = best_of([best, *product([best[0]], [best[1]], PLACES)])
    return best


def _wider(table: Tensor, columns: int, filling: float) -> Tensor:
    return pad(table, (0, columns - table.shape[1]), value=filling)

"""What follows what: for every item its most frequent followers in training, as a bonus on their scores.

Shapes: Q questions, M items, K followers kept, L newest events asked, R steps of reach.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lightgc2n.data.batches import TrainingBatch
from lightgc2n.data.splits import Training
from lightgc2n.graph.steps import steps_within

FIRST_SHRINKING, FIRST_FLOOR = 20.0, 0.003


@dataclass(frozen=True)
class OwnSteps:
    """The items of a log around each target: R before it, the nearest first, and R from it on."""

    before: Int[Tensor, "Q R"]
    came: Float[Tensor, "Q R"]  # 0 where the log begins later
    after: Int[Tensor, "Q R"]
    comes: Float[Tensor, "Q R"]  # 0 where it ends sooner
    steps: Float[Tensor, "R R"]  # what a step from one of the former to one of the latter counts

    @classmethod
    def around(cls, batch: TrainingBatch, at: Int[Tensor, "Q"], reach: int) -> "OwnSteps":
        """Of whole logs: at the places `at`, as row * T + place, the target is the next item."""
        width, near = batch.log.shape[1], torch.arange(reach, device=at.device)
        place, row = (at % width)[:, None], (at - at % width)[:, None]
        back, on = place - near, place + near
        came, comes = back >= 0, on < batch.seen.sum(dim=1)[at // width, None]
        apart = near[:, None] + near + 1
        return cls(
            batch.log.flatten()[row + back.clamp(min=0)],
            came.float(),
            batch.next_item.flatten()[row + on.clamp(max=width - 1)],
            comes.float(),
            (apart <= reach) / apart,
        )


class Followers(nn.Module):
    """The bonus w_l · log(1 + share / floor_l) for each follower of the l-th newest event.

    w_l is more, or less, the likelier that event is of the person who acts now.
    """

    columns: Int[Tensor, "M K"]  # followers; item 0 with a count of 0 fills up
    counts: Float[Tensor, "M K"]
    leaving: Float[Tensor, "M"]  # how often an item was followed by anything

    def __init__(
        self,
        columns: Int[Tensor, "M K"],
        counts: Float[Tensor, "M K"],
        leaving: Float[Tensor, "M"],
        newest: int,
        reach: int = 1,
    ) -> None:
        super().__init__()
        self.reach = reach
        for name, table in (("columns", columns), ("counts", counts), ("leaving", leaving)):
            self.register_buffer(name, table)
        self.weight = nn.Parameter(torch.tensor([0.5] + [0.1] * (newest - 1)))
        self.person = nn.Parameter(torch.zeros(newest))
        self.floor = nn.Parameter(torch.full((newest,), math.log(FIRST_FLOOR)))
        self.shrinking = nn.Parameter(torch.tensor(math.log(FIRST_SHRINKING)))

    def forward(
        self,
        events: Int[Tensor, "Q L"],
        like: Float[Tensor, "Q L"],
        known: Float[Tensor, "Q L"],
        own: OwnSteps | None = None,
    ) -> tuple[Int[Tensor, "Q C"], Float[Tensor, "Q C"]]:
        """Followers of the newest events, and the bonus of each.

        Args:
            events: the newest first.
            like: how likely each is of the person who acts now.
            known: 0 where a log is shorter.
            own: in training, the steps of the log that are not counted, as they will not be in a test.
        """
        columns, counts, leaving = self.columns[events], self.counts[events], self.leaving[events]
        if own is not None:
            # Steps of the log itself that end at the target or lead over it: none of them has happened yet.
            asked = (events[:, :, None] == own.before[:, None]) * own.came[:, None] @ own.steps  # [Q, L, R]
            asked = asked * own.comes[:, None]
            real = counts > 0
            for step in range(asked.shape[-1]):
                counts = counts - asked[..., step, None] * ((columns == own.after[:, step, None, None]) & real)
            leaving = leaving - asked.sum(dim=-1)
        share = counts / (leaving + self.shrinking.exp())[..., None]
        weight = (self.weight + self.person * like) * known
        bonus = weight[..., None] * torch.log1p(share / self.floor.exp()[:, None])
        return columns.flatten(1).long(), bonus.flatten(1)


def count_followers(train: Training, kept: int, reach: int = 1) -> dict[str, Tensor]:
    """The tables of `Followers`; of equally frequent followers the lower number is kept."""
    before, after, weight = steps_within(train, reach)
    leaving = np.bincount(before, weight, minlength=train.items).astype(np.float32)
    steps, place = np.unique(before * train.items + after, return_inverse=True)
    times = np.bincount(place, weight)
    before, after = steps // train.items, steps % train.items
    order = np.lexsort((after, -times, before))
    before, after, times = before[order], after[order], times[order]
    rank = np.arange(len(before)) - np.searchsorted(before, before)
    best = rank < kept
    columns, counts = np.zeros((train.items, kept), np.int32), np.zeros((train.items, kept), np.float32)
    columns[before[best], rank[best]] = after[best]
    counts[before[best], rank[best]] = times[best]
    tables = {"columns": columns, "counts": counts, "leaving": leaving}
    return {name: torch.from_numpy(table) for name, table in tables.items()}


class NoFollowers(nn.Module):
    """In place of `Followers`: what follows what is left to the vectors."""

    def forward(
        self,
        events: Int[Tensor, "Q L"],
        like: Float[Tensor, "Q L"],
        known: Float[Tensor, "Q L"],
        own: OwnSteps | None = None,
    ) -> tuple[Int[Tensor, "Q L"], Float[Tensor, "Q L"]]:
        return events, torch.zeros_like(like)

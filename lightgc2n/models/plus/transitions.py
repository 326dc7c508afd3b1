"""Item transitions: how often items followed or neighboured each other in training, and a bonus for followers.

Shapes: Q queries, M items, K followers kept, L newest events, R reach in events.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lightgc2n.data.batches import TrainingBatch
from lightgc2n.data.dataset import Longs
from lightgc2n.data.split_types import transition_pairs
from lightgc2n.data.splits import Training
from lightgc2n.layers.sparse import count_pairs

INITIAL_SHRINKAGE, INITIAL_FLOOR = 20.0, 0.003
SHRINKAGE = 5.0  # added to how often an item was followed, so that rare items have small shares
PAIRS_AT_ONCE = 2**23  # pairs that are sorted at once; about 100 bytes each are held meanwhile
NEAR_REACH, NEAR_BACKWARD, NEAR_KEPT = 10, 0.5, 12


@dataclass(frozen=True)
class PairCounts:
    """For each item the items counted with it most often; padding is item 0 with a count of 0."""

    columns: Int[Tensor, "M K"]
    counts: Float[Tensor, "M K"]
    total: Float[Tensor, "M"]  # over all items, also those that are not kept

    @property
    def stored_numbers(self) -> int:
        """Item and count of every pair, and the totals of items; padding does not count."""
        return 2 * int(torch.count_nonzero(self.counts)) + int(torch.count_nonzero(self.total))

    def to(self, device: torch.device) -> "PairCounts":
        return PairCounts(self.columns.to(device), self.counts.to(device), self.total.to(device))

    def shares(self, items: Int[Tensor, "*batch"]) -> tuple[Int[Tensor, "*batch K"], Float[Tensor, "*batch K"]]:
        """The kept items of each given item, and the shrunk share of each."""
        return self.columns[items].long(), self.counts[items] / (self.total[items] + SHRINKAGE)[..., None]


def count_neighbours(train: Training) -> PairCounts:
    """Items near each other in a sequence: 1 / distance forwards, half of that backwards."""
    before, after, weight = transition_pairs(train, NEAR_REACH)
    rows, columns = np.concatenate([before, after]), np.concatenate([after, before])
    weights = np.concatenate([weight, NEAR_BACKWARD * weight])
    return most_frequent(rows, columns, weights, train.items, NEAR_KEPT)


def count_followers(train: Training, kept: int) -> PairCounts:
    """Items that came directly after each item."""
    return most_frequent(*transition_pairs(train, 1), train.items, kept)


def most_frequent(rows: Longs, columns: Longs, weights: npt.NDArray[np.float64], items: int, kept: int) -> PairCounts:
    """The largest totals of each row; of equal ones those of the lower item. Rows take turns, to save memory."""
    parts = []
    for first, last in _row_ranges(rows, items):
        own = slice(None) if last - first == items else np.flatnonzero((rows >= first) & (rows < last))
        parts.append(_most_frequent(rows[own] - first, columns[own], weights[own], (last - first, items), kept))
    return PairCounts(*(torch.cat([getattr(part, name) for part in parts]) for name in ("columns", "counts", "total")))


def _row_ranges(rows: Longs, items: int) -> list[tuple[int, int]]:
    """Ranges of rows with at most PAIRS_AT_ONCE pairs, or of a single row that has more."""
    before = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=items))])
    stops = [0]
    while stops[-1] < items:
        last = int(np.searchsorted(before, before[stops[-1]] + PAIRS_AT_ONCE, side="right")) - 1
        stops.append(max(stops[-1] + 1, last))
    return list(pairwise(stops))


def _most_frequent(
    rows: Longs, columns: Longs, weights: npt.NDArray[np.float64], shape: tuple[int, int], kept: int
) -> PairCounts:
    height, items = shape
    pairs = count_pairs(rows, columns, height, items, weights)
    offsets, column = pairs.offsets.numpy(), pairs.columns.numpy()
    total = np.round(pairs.values.numpy(), 9)  # sums of fractions must tie where the fractions do
    row = np.repeat(np.arange(height), np.diff(offsets))
    order = np.lexsort((column, -total, row))
    rank = np.arange(len(order)) - offsets[row[order]]
    best, rank = order[rank < kept], rank[rank < kept]
    table, counts = np.zeros((height, kept), np.int32), np.zeros((height, kept), np.float32)
    table[row[best], rank], counts[row[best], rank] = column[best], total[best]
    sums = np.bincount(row, total, minlength=height).astype(np.float32)
    return PairCounts(*(torch.from_numpy(part) for part in (table, counts, sums)))


@dataclass(frozen=True)
class OwnTransitions:
    """The transitions of a query's own log across its target: R items before the target and R from it on."""

    before: Int[Tensor, "Q R"]  # the nearest first
    before_known: Float[Tensor, "Q R"]  # 0 where the log starts later
    after: Int[Tensor, "Q R"]  # the target first
    after_known: Float[Tensor, "Q R"]  # 0 where the log ends earlier
    weights: Float[Tensor, "R R"]  # the count of a transition from an item of `before` to one of `after`

    @classmethod
    def around(cls, batch: TrainingBatch, at: Int[Tensor, "Q"], reach: int) -> "OwnTransitions":
        """The transitions at the places `at` of whole logs, given as row * T + place; the target is the next item."""
        width, near = batch.log.shape[1], torch.arange(reach, device=at.device)
        place, row = (at % width)[:, None], (at - at % width)[:, None]
        back, forward = place - near, place + near
        before_known, after_known = back >= 0, forward < batch.seen.sum(dim=1)[at // width, None]
        distance = near[:, None] + near + 1
        return cls(
            batch.log.flatten()[row + back.clamp(min=0)],
            before_known.float(),
            batch.next_item.flatten()[row + forward.clamp(max=width - 1)],
            after_known.float(),
            (distance <= reach) / distance,
        )


class Transitions(nn.Module):
    """The bonus w_l · log(1 + share / floor_l) for each follower of the l-th newest event.

    w_l depends linearly on the probability that the event is of the person who acts now.
    """

    columns: Int[Tensor, "M K"]  # the followers of each item; padding is item 0 with a count of 0
    counts: Float[Tensor, "M K"]
    leaving: Float[Tensor, "M"]  # how often an item was followed by any item

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
        self.floor = nn.Parameter(torch.full((newest,), math.log(INITIAL_FLOOR)))
        self.shrinking = nn.Parameter(torch.tensor(math.log(INITIAL_SHRINKAGE)))

    @property
    def pair_counts(self) -> PairCounts:
        """The tables, for the blend."""
        return PairCounts(self.columns, self.counts, self.leaving)

    def own_at(self, batch: TrainingBatch, at: Int[Tensor, "Q"]) -> OwnTransitions:
        """The transitions of whole logs that training queries at the places `at` must not see."""
        return OwnTransitions.around(batch, at, self.reach)

    def forward(
        self,
        events: Int[Tensor, "Q L"],
        likeness: Float[Tensor, "Q L"],
        known: Float[Tensor, "Q L"],
        own: OwnTransitions | None = None,
    ) -> tuple[Int[Tensor, "Q C"], Float[Tensor, "Q C"]]:
        """The followers of the newest events, and the bonus of each.

        Args:
            events: the newest events, the newest first.
            likeness: the probability that each is of the person who acts now.
            known: 0 for padding of a shorter log.
            own: in training, the transitions of the query's own log, which are subtracted from the counts because a
                test query has none of its own in them.
        """
        columns, counts, leaving = self.columns[events], self.counts[events], self.leaving[events]
        if own is not None:
            # Transitions that end at the target or pass over it have not happened yet at the time of the query.
            future = (events[:, :, None] == own.before[:, None]) * own.before_known[:, None] @ own.weights  # [Q, L, R]
            future = future * own.after_known[:, None]
            real, after = counts > 0, own.after.to(columns.dtype)  # equal types compare several times faster on a CPU
            for step in range(future.shape[-1]):
                counts = counts - future[..., step, None] * ((columns == after[:, step, None, None]) & real)
            leaving = leaving - future.sum(dim=-1)
        share_per_floor = 1 / ((leaving + self.shrinking.exp()) * self.floor.exp())  # for a follower with count 1
        weight = (self.weight + self.person * likeness) * known
        bonus = weight[..., None] * torch.log1p(counts * share_per_floor[..., None])
        return columns.flatten(1).long(), bonus.flatten(1)


def count_transitions(train: Training, kept: int, reach: int = 1) -> dict[str, Tensor]:
    """The tables of `Transitions`; among equally frequent followers the lower item number is kept."""
    counted = most_frequent(*transition_pairs(train, reach), train.items, kept)
    return {"columns": counted.columns, "counts": counted.counts, "leaving": counted.total}


class NoTransitions(nn.Module):
    """Ablation of `Transitions`: no bonus for followers."""

    nothing: Float[Tensor, "M 1"]

    def __init__(self, items: int) -> None:
        super().__init__()
        self.register_buffer("nothing", torch.zeros(items, 1), persistent=False)

    @property
    def pair_counts(self) -> PairCounts:
        return PairCounts(self.nothing.int(), self.nothing, self.nothing[:, 0])

    def own_at(self, batch: TrainingBatch, at: Int[Tensor, "Q"]) -> None:
        """No counts, so nothing to subtract."""

    def forward(
        self,
        events: Int[Tensor, "Q L"],
        likeness: Float[Tensor, "Q L"],
        known: Float[Tensor, "Q L"],
        own: OwnTransitions | None = None,
    ) -> tuple[Int[Tensor, "Q L"], Float[Tensor, "Q L"]]:
        return events, torch.zeros_like(likeness)

"""Counted evidence about the next item: what follows recent events, the account's own repeats, and trends.

Each source turns a history into shares of the items; a share is 0 where the source knows nothing.
Shapes: B histories, T events, M items, K followers kept, S sources, L looks back, H half-lives.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightgc2n.data.batches import Batch
from lightgc2n.data.dataset import Longs
from lightgc2n.data.split_types import transition_pairs
from lightgc2n.data.splits import Training
from lightgc2n.layers.sparse import count_pairs

SHRINKAGE = 5.0  # added to how often an item was followed, so that rare items have small shares
NEAR_REACH, NEAR_BACKWARD, NEAR_KEPT = 10, 0.5, 12
NEWEST = 10  # events whose followers and neighbours count
FOLLOWER_FADE, NEIGHBOUR_FADE = 0.7, 0.8  # weight of an event relative to the next newer one
OWN_REACH = 5
FREQUENCY_FADE = 0.7  # exponent of an event's age
HISTORY_SOURCES = ("follower", "followers", "neighbours", "own followers", "recency", "frequency")


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
    """The largest totals of each row; of equal ones those of the lower item."""
    pairs = count_pairs(rows, columns, items, items, weights)
    offsets, column = pairs.offsets.numpy(), pairs.columns.numpy()
    total = np.round(pairs.values.numpy(), 9)  # sums of fractions must tie where the fractions do
    row = np.repeat(np.arange(items), np.diff(offsets))
    order = np.lexsort((column, -total, row))
    rank = np.arange(len(order)) - offsets[row[order]]
    best, rank = order[rank < kept], rank[rank < kept]
    table, counts = np.zeros((items, kept), np.int32), np.zeros((items, kept), np.float32)
    table[row[best], rank], counts[row[best], rank] = column[best], total[best]
    sums = np.bincount(row, total, minlength=items).astype(np.float32)
    return PairCounts(*(torch.from_numpy(part) for part in (table, counts, sums)))


def history_shares(batch: Batch, followers: PairCounts, neighbours: PairCounts) -> Iterator[Float[Tensor, "B M"]]:
    """The shares of all items by each of `HISTORY_SOURCES` in turn; zeros for an empty history."""
    items = len(neighbours.total)
    newest, exists = newest_events(batch, NEWEST)
    yield fading(followers, newest[:, :1], exists[:, :1], FOLLOWER_FADE, items)
    yield fading(followers, newest, exists, FOLLOWER_FADE, items)
    yield fading(neighbours, newest, exists, NEIGHBOUR_FADE, items)
    yield own_followers(batch, items)
    yield from repeats(batch, items)


def newest_events(batch: Batch, count: int) -> tuple[Int[Tensor, "B N"], Bool[Tensor, "B N"]]:
    """The newest events, the newest first, and which of them exist."""
    place = batch.length[:, None] - 1 - torch.arange(count, device=batch.length.device)
    return batch.history.gather(1, place.clamp(min=0)), place >= 0


def fading(
    pairs: PairCounts, events: Int[Tensor, "B N"], exists: Bool[Tensor, "B N"], fade: float, items: int
) -> Float[Tensor, "B M"]:
    """The mean of the shares after each event, weighted by fade ** (number of newer events)."""
    weight = exists * fade ** torch.arange(events.shape[1], device=events.device)
    columns, shares = pairs.shares(events)
    weight = weight / weight.sum(dim=1, keepdim=True).clamp(min=1e-9)
    return scatter(columns.flatten(1), (shares * weight[..., None]).flatten(1), items)


def own_followers(batch: Batch, items: int) -> Float[Tensor, "B M"]:
    """What came up to five events after earlier occurrences of the newest item, in this history alone."""
    places = torch.arange(batch.history.shape[1], device=batch.history.device)
    earlier = (batch.history == batch.last[:, None]) & (places < batch.length[:, None] - 1)
    following = torch.zeros_like(batch.history, dtype=torch.float32)
    for gap in range(1, min(OWN_REACH, batch.history.shape[1] - 1) + 1):
        following[:, gap:] += earlier[:, :-gap].float() / gap
    following = following * batch.known
    return scatter(batch.history, following / (following.sum(dim=1, keepdim=True) + 1), items)


def repeats(batch: Batch, items: int) -> Iterator[Float[Tensor, "B M"]]:
    """The items of the history, by 1 / age of the newest event of each, and by the sum over events of age ** -0.7."""
    place = torch.arange(batch.history.shape[1], device=batch.history.device)
    age = (batch.length[:, None] - place).clamp(min=1).float()
    empty = torch.zeros(len(age), items, device=age.device)
    yield normalised(empty.scatter_reduce(1, batch.history, batch.known / age, "amax"))
    yield normalised(scatter(batch.history, batch.known * age**-FREQUENCY_FADE, items))


def scatter(columns: Int[Tensor, "B W"], values: Float[Tensor, "B W"], items: int) -> Float[Tensor, "B M"]:
    """A row for each history with the values added at their columns."""
    return torch.zeros(len(columns), items, device=values.device).scatter_add_(1, columns, values)


def normalised(counts: Float[Tensor, "B M"]) -> Float[Tensor, "B M"]:
    return counts / counts.sum(dim=1, keepdim=True).clamp(min=1e-9)

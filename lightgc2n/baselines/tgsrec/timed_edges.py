"""Training events as timed edges between accounts and items: the edges before a given time, and their ages.

An edge is a training event, by its index. Without times the place in the log replaces time, and edges of other logs are
all equally far.
Shapes: E edges, M items, N accounts, S neighbours, I queries, B logs, T longest log.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lightgc2n.data.batches import MICROSECONDS_A_DAY
from lightgc2n.data.splits import Training

FARTHEST = 60.0  # places: the distance of edges of other logs, which is unknown
SAME_MOMENT = 1e-3  # days: smaller ages count as 0, since ages are rounded (to ten seconds in ten years)


@dataclass(frozen=True)
class Near:
    """The neighbours of nodes, padded: indices, mask, ages, and days."""

    which: Int[Tensor, "*nodes S"]  # items, or edges
    known: Bool[Tensor, "*nodes S"]
    span: Float[Tensor, "*nodes S"]
    day: Float[Tensor, "*nodes S"]  # zero without times


class RankEdges(nn.Module):
    """Edges without times: an item's neighbours are sampled once from all its edges."""

    account: Int[Tensor, "E"]
    item: Int[Tensor, "E"]
    first: Int[Tensor, "E"]  # the first event of the same log
    drawn: Int[Tensor, "M S"]  # -1: none
    step: Int[Tensor, "S"]
    frequencies = (0.0, -2.0)  # powers of ten: ages of one to a hundred places

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        super().__init__()
        for name in ("account", "item", "first", "drawn"):
            self.register_buffer(name, tensors[name])
        self.register_buffer("step", torch.arange(self.drawn.shape[1]), persistent=False)

    def edges_of(self, item: Int[Tensor, "*nodes"], day: Float[Tensor, "*nodes"]) -> Near:
        """The sampled edges of items."""
        drawn = self.drawn[item]
        far = torch.full(drawn.shape, FARTHEST, device=drawn.device)
        return Near(drawn.clamp(min=0), drawn >= 0, far, torch.zeros_like(far))

    def items_before(self, edge: Int[Tensor, "*nodes"]) -> Near:
        """The items before edges in their own logs, the newest first."""
        place = edge[..., None] - 1 - self.step
        near = place.clamp(min=0)
        span = (self.step + 1.0).expand(near.shape)
        return Near(self.item[near], place >= self.first[edge][..., None], span, torch.zeros_like(span))

    def query_times(
        self, account: Int[Tensor, "I"], age: Float[Tensor, "I S"], elapsed: Float[Tensor, "I"]
    ) -> tuple[Float[Tensor, "I S"], Float[Tensor, "I S"], Int[Tensor, "I"]]:
        """The age and the day of each event of a history, and the period of the query."""
        span = (self.step[: age.shape[1]] + 1.0).expand(age.shape)
        return span, torch.zeros_like(span), torch.zeros_like(account)

    def begin_of(self, period: Int[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """The first day of a period; there is only one."""
        return torch.zeros_like(period, dtype=torch.float64)

    def undated(self, account: Int[Tensor, "B"]) -> Int[Tensor, "B"]:
        """The accounts for which the order of edges and queries is unknown."""
        return account


class DayEdges(nn.Module):
    """Edges with times: an item's neighbours are its newest edges before a given time, in days.

    Args:
        period: the number of days whose queries share the item vectors of their start.
    """

    account: Int[Tensor, "E"]
    item: Int[Tensor, "E"]
    first: Int[Tensor, "E"]
    day: Float[Tensor, "E"]  # since the first event of training
    begin: Float[Tensor, "N"]  # the day of each account's first event; NaN without a log, or with several
    step: Int[Tensor, "S"]
    order: Int[Tensor, "E"]  # edges by item, then by day
    key: Float[Tensor, "E"]
    frequencies = (1.0, -3.0)  # powers of ten: ages of hours to years

    def __init__(self, tensors: dict[str, Tensor], neighbours: int, period: float) -> None:
        super().__init__()
        self.period = period
        for name in ("account", "item", "first", "day", "begin"):
            self.register_buffer(name, tensors[name])
        self.register_buffer("step", torch.arange(neighbours), persistent=False)
        self.end = period * (float(self.day.max()) // period + 1) if len(self.day) else period
        by_day = self.day.argsort(stable=True)
        order = by_day[self.item[by_day].argsort(stable=True)]
        # One sort key for item and day, so that a single search finds a time among the edges of an item.
        self.register_buffer("order", order, persistent=False)
        self.register_buffer("key", self._key(self.item[order], self.day[order]), persistent=False)

    def _key(self, item: Int[Tensor, "*nodes"], day: Float[Tensor, "*nodes"]) -> Float[Tensor, "*nodes"]:
        return item.double() * (self.end + 2) + day.double().clamp(0, self.end + 1)

    def edges_of(self, item: Int[Tensor, "*nodes"], day: Float[Tensor, "*nodes"]) -> Near:
        """The newest edges of items strictly before the given days."""
        place = torch.searchsorted(self.key, self._key(item, day - SAME_MOMENT))[..., None] - 1 - self.step
        edge = self.order[place.clamp(min=0)]
        known = (place >= 0) & (self.item[edge] == item[..., None])
        then = self.day[edge]
        return Near(edge, known, (day[..., None] - then).float(), then)

    def items_before(self, edge: Int[Tensor, "*nodes"]) -> Near:
        """The items before edges in their own logs, the newest first."""
        place = edge[..., None] - 1 - self.step
        near = place.clamp(min=0)
        then = self.day[near]
        span = (self.day[edge][..., None] - then).float()
        return Near(self.item[near], place >= self.first[edge][..., None], span, then)

    def query_times(
        self, account: Int[Tensor, "I"], age: Float[Tensor, "I S"], elapsed: Float[Tensor, "I"]
    ) -> tuple[Float[Tensor, "I S"], Float[Tensor, "I S"], Int[Tensor, "I"]]:
        """The age and the day of each event of a history, and the period of the query.

        Where the time is unknown, the query is at the end of training.

        Args:
            age: days from each event to the query.
            elapsed: days from the first event of the log to the query, or NaN.
        """
        begin = self.begin[account.clamp(min=0)].masked_fill(account < 0, torch.nan)
        moment = begin + elapsed.double()
        moment = moment.masked_fill(moment.isnan(), self.end)
        return age.float(), moment[:, None] - age, (moment / self.period).floor().long()

    def begin_of(self, period: Int[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """The first day of a period."""
        return period.double() * self.period

    def undated(self, account: Int[Tensor, "B"]) -> Int[Tensor, "U"]:
        """The accounts for which the order of edges and queries is unknown."""
        return account[self.begin[account].isnan()]


def edges_of_training(train: Training, neighbours: int, period: float, days: bool) -> RankEdges | DayEdges:
    """All training events as edges, with or without times."""
    lengths = np.diff(train.offsets)
    tensors = {
        "account": torch.from_numpy(np.repeat(train.sequence_accounts, lengths).astype(np.int64)),
        "item": torch.from_numpy(train.events.astype(np.int64)),
        "first": torch.from_numpy(np.repeat(train.offsets[:-1], lengths)),
    }
    if not days:
        return RankEdges(tensors | {"drawn": draw_edges(tensors["item"], train.items, neighbours)})
    assert train.times is not None
    since = (train.times - train.times.min(initial=np.iinfo(np.int64).max)) / MICROSECONDS_A_DAY
    begin = np.full(train.accounts, np.nan)
    begin[train.sequence_accounts[lengths > 0]] = since[train.offsets[:-1][lengths > 0]]
    begin[np.bincount(train.sequence_accounts[lengths > 0], minlength=train.accounts) > 1] = np.nan
    return DayEdges(tensors | {"day": torch.from_numpy(since), "begin": torch.from_numpy(begin)}, neighbours, period)


def restored_edges(tensors: dict[str, Tensor], neighbours: int, period: float) -> RankEdges | DayEdges:
    """Rebuild the edges from the tensors of a saved part called `edges`."""
    own = {name.removeprefix("edges."): tensor for name, tensor in tensors.items() if name.startswith("edges.")}
    return DayEdges(own, neighbours, period) if "day" in own else RankEdges(own)


def draw_edges(item: Int[Tensor, "E"], items: int, neighbours: int, seed: int = 0) -> Int[Tensor, "M S"]:
    """A uniform sample without replacement of the edges of each item; -1 where it has fewer.

    The sample has its own seed, so that a warm start on the same data has the same neighbours.
    """
    shuffled = torch.randperm(len(item), generator=torch.Generator().manual_seed(seed))
    edge = shuffled[item[shuffled].argsort(stable=True)]
    owner = item[edge]
    place = torch.arange(len(item)) - torch.searchsorted(owner, owner)
    sampled = place < neighbours
    drawn = torch.full((items, neighbours), -1)
    drawn[owner[sampled], place[sampled]] = edge[sampled]
    return drawn

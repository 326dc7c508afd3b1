"""Repeats: a bonus for every item of the history, by when and how often it came, calibrated on validation accounts.

Shapes: B logs, T longest log, Q queries, C places in a list, M items, F features, H hidden width.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, pad

from lightgc2n.data.dataset import Domain
from lightgc2n.devices import device_of
from lightgc2n.layers.sparse import entries_of
from lightgc2n.metrics.ranking import discounted_gain
from lightgc2n.models.plus.same_person import ages_between

FEATURES = 11
RECENT = 3  # the newest distinct items, which have a feature of their own
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
    best: Float[Tensor, "B C"]  # the best scores of other items; only these can push a target beyond the cutoff
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


@dataclass(frozen=True)
class Repeats:
    """Repeated items of logs; t is a place of a log, s is t or an earlier place."""

    next_place: Int[Tensor, "B T"]  # the next place with the same item; T if there is none
    earlier: Float[Tensor, "B T"]  # occurrences of the item before this place
    followed: Float[Tensor, "B T T"]  # how often the item of s came right after the item of t, before t

    @classmethod
    def of(cls, log: Int[Tensor, "B T"]) -> "Repeats":
        places = log.shape[1]
        same = log[:, :, None] == log[:, None, :]
        age = ages_between(places, log.device)
        numbers = torch.arange(places, device=log.device, dtype=torch.int32)
        later = torch.where(same & (age < 0), numbers, places)
        before = (same & (age > 0)).float()  # [t, u]: u is before t and has its item
        after = pad(same[:, 1:].float(), (0, 0, 0, 1))  # [u, s]: place u + 1 has the item of s
        return cls(later.amin(dim=-1), before.sum(dim=-1), before @ after)


@dataclass(frozen=True)
class RepeatBonus:
    """The log of each query, the bonus of its items, and the places that count: the newest place of each item."""

    items: Int[Tensor, "Q T"]
    bonus: Float[Tensor, "Q T"]
    counts: Bool[Tensor, "Q T"]

    @property
    def added(self) -> Float[Tensor, "Q T"]:
        """The bonus, 0 at places that do not count."""
        return torch.where(self.counts, self.bonus, 0.0)

    def within(self, domain: Domain) -> "RepeatBonus":
        """The bonus of the items of a domain, numbered from the start of the domain."""
        inside = self.counts & (self.items >= domain.start) & (self.items < domain.stop)
        return RepeatBonus((self.items - domain.start).clamp(0, len(domain) - 1), self.bonus, inside)


class RepeatMemory(nn.Module):
    """The bonus: a small network on features of the earlier items, plus a learned tendency of each item to repeat.

    Logs repeat more, or less, towards their end than in training. `balance`, calibrated on validation events, corrects
    this at inference, not in training: it adds to the bonus and scales it, and its third number is the place among all
    other items below which no earlier item falls; 0 sets no such limit.
    """

    balance: Float[Tensor, "3"]

    def __init__(self, items: int, hidden: int) -> None:
        super().__init__()
        self.readiness = nn.Parameter(torch.zeros(items))
        self.inner, self.outer = nn.Linear(FEATURES, hidden), nn.Linear(hidden, 1)
        self.register_buffer("balance", torch.tensor(NEUTRAL))

    @property
    def place(self) -> int:
        """The place below which no earlier item falls."""
        return int(self.balance[2])

    def forward(
        self, log: Int[Tensor, "B T"], row: Int[Tensor, "Q"], place: Int[Tensor, "Q"], likeness: Float[Tensor, "Q T"]
    ) -> RepeatBonus:
        """The earlier items of each query and their bonus.

        Args:
            row: the log of each query.
            place: the newest event of each query.
            likeness: the probability that each event is of the person who acts now.
        """
        newest, cells, features = describe(log, row, place, likeness, listed=not device_of(log).is_gpu)
        items = log[row]
        # Most places of short logs are padding, which is one item: a gradient that sorts would add them one by one.
        readiness = entries_of(self.readiness, cells.pick(items))
        bonus = self.outer(torch.relu(self.inner(features))).squeeze(-1) + readiness
        if not self.training:
            bonus = self.balance[0] + self.balance[1] * bonus
        return RepeatBonus(items, cells.spread(bonus), newest)

    def reset(self) -> None:
        """Remove the calibration."""
        self.balance.copy_(torch.tensor(NEUTRAL))

    def calibrate(self, queries: Iterable[RankInputs]) -> None:
        """Select the balance with the best NDCG on validation queries, which were scored without calibration."""
        if parts := list(queries):
            self.balance.copy_(torch.tensor(best_balance(RankInputs.joined(parts))))

    def fitted(self) -> dict[str, float]:
        return dict(zip(("added", "times", "place"), self.balance.tolist(), strict=True))


class NoRepeatMemory(nn.Module):
    """Ablation of `RepeatMemory`: earlier items have no bonus."""

    place = 0

    def forward(
        self, log: Int[Tensor, "B T"], row: Int[Tensor, "Q"], place: Int[Tensor, "Q"], likeness: Float[Tensor, "Q T"]
    ) -> RepeatBonus:
        return RepeatBonus(log[row], torch.zeros_like(likeness), torch.zeros_like(likeness, dtype=torch.bool))

    def reset(self) -> None:
        """Nothing is calibrated."""

    def calibrate(self, queries: Iterable[RankInputs]) -> None:
        """Nothing is calibrated."""

    def fitted(self) -> dict[str, float]:
        return {}


class AllPlaces:
    """All places of the logs of all queries. A GPU computes them all: a captured step needs fixed shapes."""

    def __init__(self, newest: Bool[Tensor, "Q T"]) -> None:
        self.query = torch.arange(len(newest), device=newest.device)[:, None]
        self.where = torch.arange(newest.shape[1], device=newest.device)
        self.order = newest.flip(-1).cumsum(dim=-1).flip(-1).clamp(min=1)  # 1 for the newest distinct item

    def pick(self, table: Shaped[Tensor, "Q T"]) -> Shaped[Tensor, "Q T"]:
        return table

    def spread(self, values: Float[Tensor, "Q T"]) -> Float[Tensor, "Q T"]:
        return values


class ListedPlaces:
    """The places that count, as one list: about a third of all places of long logs."""

    def __init__(self, newest: Bool[Tensor, "Q T"]) -> None:
        self.shape = newest.shape
        self.query, self.where = newest.nonzero(as_tuple=True)
        self.at = self.query * newest.shape[1] + self.where
        stop = newest.sum(dim=1, dtype=torch.int32).cumsum(dim=0)  # where the list of each query ends
        self.order = stop[self.query] - torch.arange(len(self.query), device=newest.device)

    def pick(self, table: Shaped[Tensor, "Q T"]) -> Shaped[Tensor, "C"]:
        """The entries of the places in the list."""
        return table.flatten().index_select(0, self.at)

    def spread(self, values: Float[Tensor, "C"]) -> Float[Tensor, "Q T"]:
        """The values at their places, 0 elsewhere."""
        return values.new_zeros(self.shape.numel()).index_copy(0, self.at, values).view(self.shape)


def describe(
    log: Int[Tensor, "B T"],
    row: Int[Tensor, "Q"],
    place: Int[Tensor, "Q"],
    likeness: Float[Tensor, "Q T"],
    listed: bool = False,
) -> tuple[Bool[Tensor, "Q T"], AllPlaces | ListedPlaces, Float[Tensor, "*cells F"]]:
    """The places that hold an item for the last time up to each query, and the features of the item there.

    Args:
        listed: compute the features at these places alone, as one list; otherwise at all places.
    """
    repeats = Repeats.of(log)
    places = torch.arange(log.shape[1], device=log.device)
    newest = (places <= place[:, None]) & (repeats.next_place[row] > place[:, None])
    cells = ListedPlaces(newest) if listed else AllPlaces(newest)
    query, where, order = cells.query, cells.where, cells.order.float()
    age = (place[query] - where + 1).clamp(min=1).float()
    count, length = repeats.earlier[row[query], where] + 1, (place + 1).float()[query].expand_as(age)
    followed, earlier = repeats.followed[row[query], place[query], where], repeats.earlier[row, place][query]
    likeness = cells.pick(likeness)
    features = (
        age.log(), order.log(), count.log(), length.log(), (age == 1).float(), (order <= RECENT).float(),
        followed.log1p(), followed / (earlier + 1), count / length, likeness, likeness * order.log(),
    )  # fmt: skip
    return newest, cells, torch.stack(features, dim=-1)

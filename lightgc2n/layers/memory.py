"""What was had before: a bonus for every earlier item of a log, by when, how often, and after what it was had.

Shapes: B logs, T longest log, Q questions, M items, F features, H hidden width.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lightgc2n.data.dataset import Domain
from lightgc2n.layers.propagation import rows_of
from lightgc2n.layers.same_person import ages_between

FEATURES = 11
RECENT = 3  # items that count as just had


@dataclass(frozen=True)
class Repeats:
    """What the items of logs say of each other: place t is a later one, place s an earlier one or t itself."""

    next_place: Int[Tensor, "B T"]  # where the item of a place comes again; T if it does not
    count: Int[Tensor, "B T"]  # how often it has come up to there
    earlier: Int[Tensor, "B T"]  # how often it has come before
    followed: Float[Tensor, "B T T"]  # how often the item of s came right after the item of t, before t

    @classmethod
    def of(cls, log: Int[Tensor, "B T"]) -> "Repeats":
        places = log.shape[1]
        same = log[:, :, None] == log[:, None, :]
        age = ages_between(places, log.device)
        later = torch.where(same & (age < 0), torch.arange(places, device=log.device), places)
        before = (same & (age > 0)).float()  # [t, u]: u is before t and has its item
        after = torch.cat(
            [same[:, 1:].float(), same.new_zeros(len(log), 1, places).float()], dim=1
        )  # [u, s]: u + 1 has it
        return cls(later.amin(dim=-1), (same & (age >= 0)).sum(dim=-1), before.sum(dim=-1).long(), before @ after)


class Memory(nn.Module):
    """The bonus: a small network of what a log says of its earlier items, and how readily each item is had again.

    Logs repeat more, or less, towards their end than training saw on the way: `balance`, fitted on validation events,
    adds to a bonus and scales it where the model is asked, not where it is trained. Its third number is the place among
    all other items behind which no earlier item falls; 0 if any may.
    """

    balance: Float[Tensor, "3"]

    def __init__(self, items: int, hidden: int) -> None:
        super().__init__()
        self.readiness = nn.Parameter(torch.zeros(items))
        self.inner, self.outer = nn.Linear(FEATURES, hidden), nn.Linear(hidden, 1)
        self.register_buffer("balance", torch.tensor([0.0, 1.0, 0.0]))

    @property
    def place(self) -> int:
        """Behind which no earlier item falls."""
        return int(self.balance[2])

    def forward(
        self, log: Int[Tensor, "B T"], row: Int[Tensor, "Q"], place: Int[Tensor, "Q"], like: Float[Tensor, "Q T"]
    ) -> "Remembered":
        """The earlier items of each question and their bonus.

        Args:
            place: the newest event that a question knows of.
            like: how likely each event of its log is of the person who acts now.
        """
        newest, features = describe(log, row, place, like)
        items = log[row]
        # Most places of short logs are padding, that is one item: a gradient that sorts would add them one by one.
        readiness = rows_of(self.readiness[:, None], items).squeeze(-1)
        bonus = self.outer(torch.relu(self.inner(features))).squeeze(-1) + readiness
        if not self.training:
            bonus = self.balance[0] + self.balance[1] * bonus
        return Remembered(items, bonus, newest)


@dataclass(frozen=True)
class Remembered:
    """The log of each question, the bonus of its items, and the places that count: each item has one, its newest."""

    items: Int[Tensor, "Q T"]
    bonus: Float[Tensor, "Q T"]
    counts: Bool[Tensor, "Q T"]

    @property
    def added(self) -> Float[Tensor, "Q T"]:
        """The bonus, and 0 where it does not count."""
        return torch.where(self.counts, self.bonus, 0.0)

    def of(self, domain: Domain) -> "Remembered":
        """Those of a domain, numbered as its items are."""
        inside = self.counts & (self.items >= domain.start) & (self.items < domain.stop)
        return Remembered((self.items - domain.start).clamp(0, len(domain) - 1), self.bonus, inside)


def describe(
    log: Int[Tensor, "B T"], row: Int[Tensor, "Q"], place: Int[Tensor, "Q"], like: Float[Tensor, "Q T"]
) -> tuple[Bool[Tensor, "Q T"], Float[Tensor, "Q T F"]]:
    """Which places hold an item for the last time up to a question, and what is known of it there."""
    repeats = Repeats.of(log)
    places = torch.arange(log.shape[1], device=log.device)
    newest = (places <= place[:, None]) & (repeats.next_place[row] > place[:, None])
    order = newest.flip(-1).cumsum(dim=-1).flip(-1).clamp(min=1).float()  # 1 for the newest distinct item
    age = (place[:, None] - places + 1).clamp(min=1).float()
    count, length = repeats.count[row].float(), (place + 1).float()[:, None].expand_as(age)
    followed, earlier = repeats.followed[row, place], repeats.earlier[row, place].float()[:, None]
    features = (
        age.log(), order.log(), count.log(), length.log(), (age == 1).float(), (order <= RECENT).float(),
        followed.log1p(), followed / (earlier + 1), count / length, like, like * order.log(),
    )  # fmt: skip
    return newest, torch.stack(features, dim=-1)


class NoMemory(nn.Module):
    """In place of `Memory`: what was had before has no bonus."""

    place = 0

    def forward(
        self, log: Int[Tensor, "B T"], row: Int[Tensor, "Q"], place: Int[Tensor, "Q"], like: Float[Tensor, "Q T"]
    ) -> Remembered:
        return Remembered(log[row], torch.zeros_like(like), torch.zeros_like(like, dtype=torch.bool))

"""Trends: a bonus for the items that were most frequent among all accounts just before the time of a query.

Shapes: Q queries, M items, S snapshots, H half-lives, K items kept, C choices.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lightgc2n.data.batches import days_of
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import Training
from lightgc2n.errors import DataError
from lightgc2n.layers.sparse import entries_of, rows_of
from lightgc2n.metrics.ranking import SELECTION_CUTOFF, reciprocal_rank
from lightgc2n.metrics.ranks import rank_by_counting

HALF_LIVES = (1.0, 4.0, 16.0, 64.0)  # days
STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0)
SNAPSHOTS = 256


class Trends(nn.Module):
    """The bonus log(1 + Σ_h a_h · rate_h / exp(bias)): exp(bias) is an item's overall frequency, rate_h the recent one.

    A query uses the newest snapshot before it, so that training sees nothing of its own time or later. Training queries
    are close to their snapshot and test queries are not: the half-lives that count at inference, and their strength,
    are `chosen` on validation events.
    """

    looked: Float[Tensor, "S"]  # the time of each snapshot in days since 1970; it counts the events before it
    columns: Int[Tensor, "S K"]  # padding is item 0 with a rate of 0
    rates: Float[Tensor, "S K H"]  # events a day; an event counts half after each half-life
    chosen: Float[Tensor, "H"]

    def __init__(
        self, looked: Float[Tensor, "S"], columns: Int[Tensor, "S K"], rates: Float[Tensor, "S K H"], mass: float
    ) -> None:
        """With `mass`, the sum of exp(bias), trends start with the same total weight as the overall frequencies."""
        super().__init__()
        half_lives = rates.shape[-1]
        for name, table in (("looked", looked), ("columns", columns), ("rates", rates)):
            self.register_buffer(name, table)
        self.register_buffer("chosen", torch.ones(half_lives))
        recent = float(rates.sum(dim=(1, 2)).mean())
        self.weight = nn.Parameter(torch.full((half_lives,), math.log(mass / max(recent, 1e-9))))  # log a

    @property
    def half_lives(self) -> int:
        """How many half-lives are counted."""
        return len(self.chosen)

    @property
    def stored_numbers(self) -> int:
        """The time of every snapshot, and item and rates of every entry."""
        entries = int(torch.count_nonzero(self.rates.sum(dim=2)))
        return len(self.looked) + entries * (1 + self.half_lives) + self.half_lives

    @property
    def choices(self) -> Float[Tensor, "C H"]:
        """Candidates for `chosen`: all half-lives as learned, none, or a single one at each strength."""
        strength = torch.tensor(STRENGTHS, device=self.chosen.device)
        single = strength[:, None, None] * torch.eye(len(self.chosen), device=strength.device)
        return torch.cat(
            [torch.ones_like(self.chosen)[None], torch.zeros_like(self.chosen)[None], single.flatten(0, 1)]
        )

    def forward(
        self, moment: Float[Tensor, "Q"] | None, bias: Float[Tensor, "M"], queries: int
    ) -> tuple[Int[Tensor, "Q K"], Float[Tensor, "Q K"]]:
        """The frequent items before each moment and the bonus of each; no moment means after all events."""
        snapshot, known = self.snapshots(moment, queries)
        bonus = rows_of(self.bonus(bias), snapshot) * known[:, None]
        return self.columns[snapshot].long(), bonus

    def bonus(self, bias: Float[Tensor, "M"]) -> Float[Tensor, "S K"]:
        """The bonus of every item in every snapshot; there are fewer snapshots than queries."""
        weight = self.weight.exp() if self.training else self.chosen * self.weight.exp()
        return torch.log1p(self.rates @ weight * torch.exp(-entries_of(bias, self.columns.long())))

    def shares(self, moment: Float[Tensor, "Q"] | None, queries: int, items: int) -> Iterator[Float[Tensor, "Q M"]]:
        """For each half-life the share of each item among the frequent ones before each moment."""
        snapshot, known = self.snapshots(moment, queries)
        rates = self.rates[snapshot] * known[:, None, None]
        columns = self.columns[snapshot].long()
        for half_life in (rates / rates.sum(dim=1, keepdim=True).clamp(min=1e-9)).unbind(dim=-1):
            yield torch.zeros(queries, items, device=rates.device).scatter_add_(1, columns, half_life)

    def snapshots(self, moment: Float[Tensor, "Q"] | None, queries: int) -> tuple[Int[Tensor, "Q"], Bool[Tensor, "Q"]]:
        """The newest snapshot before each moment, and whether there is one; no moment means after all events."""
        if moment is None:
            moment = self.looked[-1:].expand(queries)
        snapshot = torch.searchsorted(self.looked, moment.contiguous(), right=True) - 1
        return snapshot.clamp(min=0), snapshot >= 0

    def recount(self, known: Training, kept: int) -> bool:
        """Replace the snapshots by those of newer events; return whether there are any to replace."""
        if known.times is None:
            raise DataError("trends need the times of events, and these events have none. Give a log with times.")
        if (tables := count_trends(known, kept)) is None:
            return False
        for name, table in tables.items():
            self.register_buffer(name, table.to(self.chosen.device))
        return True

    def calibrate(self, queries: Iterable["ScoredQueries"], bias: Float[Tensor, "M"]) -> None:
        """Select the choice with the best validation MRR."""
        gains = torch.zeros(len(self.choices), dtype=torch.float64, device=bias.device)
        for one in queries:
            for number, choice in enumerate(self.choices):
                self.chosen.copy_(choice)
                lifted = one.scores.scatter_add(1, *self(one.moment, bias, len(one.scores)))
                rank = rank_by_counting(lifted[:, one.domain.start : one.domain.stop], one.target - one.domain.start)
                gains[number] += reciprocal_rank(rank, SELECTION_CUTOFF).sum()
        self.chosen.copy_(self.choices[int(gains.argmax())])

    def use_all(self) -> None:
        """Undo the selection: all half-lives count as learned."""
        self.chosen.fill_(1.0)

    def fitted(self) -> dict[str, float]:
        chosen = zip(HALF_LIVES, self.chosen.tolist(), strict=True)
        return {f"trends of {half_life:g} days": value for half_life, value in chosen}


@dataclass(frozen=True)
class ScoredQueries:
    """Validation queries with the scores of all items, trends left out."""

    scores: Float[Tensor, "Q M"]
    target: Int[Tensor, "Q"]
    domain: Domain  # the items that the target is ranked among
    moment: Float[Tensor, "Q"] | None


def count_trends(train: Training, kept: int) -> dict[str, Tensor] | None:
    """The tables of `Trends`, with a snapshot after equally many events each; None without times."""
    if train.times is None or not len(train.times):
        return None
    order = np.argsort(train.times, kind="stable")
    days, items = days_of(train.times[order]), train.events[order]
    after_all = np.nextafter(days[-1], np.float32(np.inf))
    looked = np.unique(np.append(days[:: -(-len(days) // SNAPSHOTS)][1:], after_all))
    columns, recent = [], []
    frequent = (decayed_counts(days, items, train.items, looked, half_life) for half_life in HALF_LIVES)
    for parts in zip(*frequent, strict=True):
        rates = np.stack([part * np.log(2) / half_life for part, half_life in zip(parts, HALF_LIVES, strict=True)])
        best = np.argsort(-rates.sum(axis=0), kind="stable")[:kept]
        columns.append(np.where(rates[:, best].any(axis=0), best, 0).astype(np.int32))
        recent.append(rates[:, best].T.astype(np.float32))
    tables = {"looked": looked, "columns": np.stack(columns), "rates": np.stack(recent)}
    return {name: torch.from_numpy(table) for name, table in tables.items()}


def decayed_counts(
    days: npt.NDArray[np.float32],
    items: npt.NDArray[np.int32],
    catalogue: int,
    looked: npt.NDArray[np.float32],
    half_life: float,
) -> Iterator[npt.NDArray[np.float64]]:
    """The decayed count of each item before each snapshot; an event counts half after each half-life.

    Args:
        days: the times of the events, ascending.
        looked: the times of the snapshots, ascending.
    """
    counts, before, first = np.zeros(catalogue), float(looked[0]), 0
    for now in looked.astype(np.float64):
        last = int(np.searchsorted(days, np.float32(now)))  # events at the time of the snapshot do not count
        fresh = 0.5 ** ((now - days[first:last]) / half_life)
        counts = counts * 0.5 ** ((now - before) / half_life)
        counts += np.bincount(items[first:last], weights=fresh, minlength=catalogue)
        before, first = now, last
        yield counts


class NoTrends(nn.Module):
    """Ablation of `Trends`, and its substitute where no times are known: no bonus."""

    nothing: Float[Tensor, "1"]
    half_lives = 0
    stored_numbers = 0

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("nothing", torch.zeros(1), persistent=False)

    def forward(
        self, moment: Float[Tensor, "Q"] | None, bias: Float[Tensor, "M"], queries: int
    ) -> tuple[Int[Tensor, "Q 1"], Float[Tensor, "Q 1"]]:
        nothing = self.nothing.expand(queries, 1)
        return nothing.long(), nothing

    def shares(self, moment: Float[Tensor, "Q"] | None, queries: int, items: int) -> Iterator[Float[Tensor, "Q M"]]:
        return iter(())

    def recount(self, known: Training, kept: int) -> bool:
        return False

    def calibrate(self, queries: Iterable[ScoredQueries], bias: Float[Tensor, "M"]) -> None:
        """Nothing is calibrated."""

    def use_all(self) -> None:
        """Nothing to select."""

    def fitted(self) -> dict[str, float]:
        return {}

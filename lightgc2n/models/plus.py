"""LightGC²N-plus: subspaces tell who acts now; the person's state, steps and memory say what comes next.

The paper's ideas kept, its blind spots mended: order, what follows what, and what is had again. There is no table of
accounts: an account is its log, so a new one is served like a known one.
Shapes: B batch, T history, M items, N items of a domain, Q questions, A latent users, H views, D width.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lightgc2n.config import setting
from lightgc2n.data.batches import Asked, Batch, TrainingBatch
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import Training
from lightgc2n.layers.balance import Shown, draw_up
from lightgc2n.layers.crossentropy import linear_cross_entropy
from lightgc2n.layers.followers import Followers, NoFollowers, OwnSteps
from lightgc2n.layers.memory import Memory, NoMemory, Remembered
from lightgc2n.layers.propagation import rows_of
from lightgc2n.layers.ranking import rank_by_counting
from lightgc2n.layers.same_person import NewestAlone, NobodyApart, PersonState, SamePerson
from lightgc2n.layers.trends import HALF_LIVES, NoTrends, Trends, count_trends
from lightgc2n.layers.windows import cut_rows, newest_part
from lightgc2n.models.contract import LatentUsers, Model

FIRST_DEVIATION = 0.05  # of the item vectors
CHOOSING_CUTOFF = 20
Balance = tuple[float, float, int]
UNBALANCED: Balance = (0.0, 1.0, 0)
Added = tuple[Int[Tensor, "Q W"], Float[Tensor, "Q W"]]  # items, and what is added to the score of each
ADDED = (-3.0, -2.0, -1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
TIMES = (0.6, 0.8, 1.0, 1.2, 1.5, 2.0, 2.5, 3.0)
PLACES = (0, 4, 6, 8, 10, 12, 14, 16, 18, 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlusConfig:
    """First values, not yet searched: docs/log.md has what was tried."""

    width: int = setting(32, at_least=1, help="Width of item vectors and states.")
    latent_users: int = setting(5, at_least=1, at_most=16, help="Subspaces, one for each person assumed.")
    views: int = setting(
        4, at_least=1, at_most=16, help="Ways to divide a log among people, each forgetting at its own rate."
    )
    newest: int = setting(5, at_least=1, help="Newest events whose followers count.")
    followers: int = setting(64, at_least=1, help="Most frequent followers kept for each item.")
    reach: int = setting(
        1, at_least=1, at_most=20, help="Steps up to which an item counts as a follower, by 1 / steps."
    )
    trending: int = setting(128, at_least=1, help="Most frequent items of late that are kept, where times are known.")
    hidden: int = setting(16, at_least=1, help="Hidden width of the memory.")
    max_length: int = setting(100, at_least=1, help="Newest events that are read; longer logs train in windows.")
    dropout: float = setting(0.2, at_least=0.0, at_most=0.95, help="Share of features dropped in training.")


@dataclass(frozen=True)
class Parts:
    """What an ablation may change."""

    same_person: SamePerson | NobodyApart
    state: PersonState | NewestAlone
    followers: Followers | NoFollowers
    memory: Memory | NoMemory
    trends: Trends | NoTrends


@dataclass(frozen=True)
class Read:
    """Logs as the model reads them."""

    log: Int[Tensor, "B T"]
    states: Float[Tensor, "B T D"]
    like: Float[Tensor, "B T T"]  # the mean over the views


@dataclass(frozen=True)
class Questions:
    """What comes after an event of a log."""

    log: Int[Tensor, "B T"]
    row: Int[Tensor, "Q"]
    place: Int[Tensor, "Q"]
    like: Float[Tensor, "Q T"]  # how likely each event of the log is of the person who acts

    @classmethod
    def of(cls, read: Read, row: Int[Tensor, "Q"], place: Int[Tensor, "Q"]) -> "Questions":
        """What the logs say there."""
        like = rows_of(read.like.flatten(0, 1), row * read.log.shape[1] + place)
        return cls(read.log, row, place, like)


class LightGC2NPlus(Model):
    """The model; an ablation is the same class with another part put in."""

    learned: Float[Tensor, "M"]  # 1 where training has the item

    def __init__(self, config: PlusConfig, favoured: Float[Tensor, "M"], longest: int, parts: Parts) -> None:
        super().__init__()
        self.config, self.longest = config, longest
        self.items = nn.Parameter(FIRST_DEVIATION * torch.randn(len(favoured), config.width))
        self.bias = nn.Parameter(favoured)
        self.register_buffer("learned", torch.ones_like(favoured))
        self.same_person, self.state = parts.same_person, parts.state
        self.followers, self.memory, self.trends = parts.followers, parts.memory, parts.trends

    def carried(self) -> dict[str, str]:
        items = [name for name in ("items", "bias", "memory.readiness") if name in self.state_dict()]
        whole = [name for name in ("memory.balance", "trends.chosen") if name in self.state_dict()]
        return {**dict.fromkeys(items, "items"), **dict.fromkeys(whole, "whole")}

    @property
    def fixed_work(self) -> bool:
        return self.longest <= self.config.max_length

    def encode(self) -> Float[Tensor, "M D"]:
        """The table that items are read and scored with."""
        return self.items

    def losses(self, encoded: Float[Tensor, "M D"], batch: TrainingBatch) -> dict[str, Float[Tensor, ""]]:
        """The mean over all places that count, against all items."""
        whole, place = batch, torch.arange(batch.log.numel(), device=batch.log.device).view_as(batch.log)
        batch = cut_rows(replace(whole, next_item=place), self.config.max_length)  # carries where each event stood
        stood, target = batch.target, whole.next_item.flatten()[batch.target]
        read = self.read(encoded, batch.log)
        questions = Questions.of(read, batch.row, batch.at % batch.log.shape[1])
        own = OwnSteps.around(whole, stood, self.followers.reach) if isinstance(self.followers, Followers) else None
        steps, memory = self.steps(questions, own), self.remembered(questions)
        moment = None if batch.moments is None else batch.moments.flatten()[batch.at]
        trends = self.trends(moment, self.bias, len(batch.at))
        parts = zip(steps, trends, (memory.items, memory.added), strict=True)
        columns, values = (torch.cat(part, dim=1) for part in parts)
        asked = rows_of(read.states.flatten(0, 1), batch.at)
        return {"next_item": linear_cross_entropy(asked, encoded, target, batch.share, self.bias, (columns, values))}

    @torch.no_grad()
    def scores(self, encoded: Float[Tensor, "M D"], batch: Batch, domain: Domain) -> Float[Tensor, "B N"]:
        """A score for each item of the domain, by the newest `max_length` events; without any, by popularity."""
        scores, trends, memory = self._asked(encoded, batch)
        scores.scatter_add_(1, *trends).scatter_add_(1, memory.items, memory.added)
        within, memory = scores[:, domain.start : domain.stop], memory.of(domain)
        return draw_up(within, memory.items, memory.counts, self.memory.place)

    def read(self, encoded: Float[Tensor, "M D"], log: Int[Tensor, "B T"]) -> Read:
        """Who acted, and what is known after every event."""
        events = rows_of(encoded, log)
        like = self.same_person(events)
        return Read(log, self.state(events, like), like.mean(dim=1))

    def steps(self, asked: Questions, own: OwnSteps | None = None) -> tuple[Int[Tensor, "Q W"], Float[Tensor, "Q W"]]:
        """Items that follow the newest events, and what that adds to the score of each."""
        before = asked.place[:, None] - torch.arange(self.config.newest, device=asked.place.device)
        there, before = (before >= 0).float(), before.clamp(min=0)
        newest = asked.log[asked.row[:, None], before]
        return self.followers(newest, asked.like.gather(1, before), there, own)

    def remembered(self, asked: Questions) -> Remembered:
        """The earlier items, and what having had them adds to the score of each."""
        return self.memory(asked.log, asked.row, asked.place, asked.like)

    @torch.no_grad()
    def people(self, encoded: Float[Tensor, "M D"], batch: Batch) -> LatentUsers:
        """The latent users of a history, in the view that starts out forgetting slowest."""
        if not isinstance(self.same_person, SamePerson):
            return super().people(encoded, batch)
        ownership = self.same_person.ownership(rows_of(encoded, batch.history))[:, 0].mT * batch.known[:, None, :]
        weight = ownership.sum(dim=-1) + 1e-9  # nobody is there in an empty history: all alike
        return LatentUsers(ownership, weight / weight.sum(dim=1, keepdim=True))

    def refresh(self, known: Training) -> bool:
        """Trends look back from now on what is known; everything else stays as it was learned."""
        tables = count_trends(known, self.config.trending)
        if not isinstance(self.trends, Trends) or tables is None:
            return False
        for name, table in tables.items():
            self.trends.register_buffer(name, table.to(self.bias.device))
        # Training pushed the vectors of items without events away from everybody: a new item starts as the mean one.
        new = torch.as_tensor(known.popularity > 0, device=self.bias.device) & (self.learned == 0)
        with torch.no_grad():
            self.items[new] = self.items[self.learned > 0].mean(dim=0)
        return True

    def fitted(self) -> dict[str, float]:
        found: dict[str, float] = {}
        if isinstance(self.trends, Trends):
            loud = zip(HALF_LIVES, self.trends.chosen.tolist(), strict=True)
            found |= {f"trends of {half_life:g} days": value for half_life, value in loud}
        if isinstance(self.memory, Memory):
            found |= dict(zip(("added", "times", "place"), self.memory.balance.tolist(), strict=True))
        return found

    @torch.no_grad()
    def calibrate(self, validation: Callable[[], Iterator[Asked]]) -> None:
        """Takes the trends with the best MRR@20 on validation events, then the balance of repeat and new by NDCG@20.

        MRR hardly tells balances apart: it sees the top of a list, and old items below it matter as much.
        """
        if isinstance(self.memory, Memory):
            self.memory.balance.copy_(torch.tensor(UNBALANCED))  # what was chosen before must not choose the trends
        if isinstance(self.trends, Trends):
            self._weigh_trends(self.trends, validation)
        if isinstance(self.memory, Memory):
            self._weigh_memory(self.memory, validation)

    def _weigh_trends(self, trends: Trends, validation: Callable[[], Iterator[Asked]]) -> None:
        gains = torch.zeros(len(trends.choices), dtype=torch.float64, device=self.bias.device)
        for asked in validation():
            scores, _, memory = self._asked(self.items, asked.batch)
            scores.scatter_add_(1, memory.items, memory.added)
            among = asked.among or Domain("all", 0, scores.shape[1])
            for number, choice in enumerate(trends.choices):
                trends.chosen.copy_(choice)
                added = trends(asked.batch.moment, self.bias, len(scores))
                lifted = scores.scatter_add(1, *added)[:, among.start : among.stop]
                rank = rank_by_counting(lifted, asked.target - among.start)
                gains[number] += torch.where(rank <= CHOOSING_CUTOFF, 1 / rank, 0.0).sum()
        trends.chosen.copy_(trends.choices[int(gains.argmax())])

    def _weigh_memory(self, memory: Memory, validation: Callable[[], Iterator[Asked]]) -> None:
        memory.balance.copy_(torch.tensor(UNBALANCED))
        shown, encoded = [], self.encode()
        for asked in validation():
            scores, trends, known = self._asked(encoded, asked.batch)
            scores.scatter_add_(1, *trends)
            among = asked.among or Domain("all", 0, scores.shape[1])
            known, within = known.of(among), scores[:, among.start : among.stop]
            target = asked.target - among.start
            shown.append(Shown.of(within, known.items, known.bonus, known.counts, target, CHOOSING_CUTOFF))

        if not shown:
            return
        everything = Shown.joined(shown)

        def best_of(balances: list[Balance]) -> Balance:
            gains = torch.stack([everything.gain(*balance) for balance in balances])
            return balances[gains.tolist().index(float(gains.max()))]  # of equals the first, and a GPU waited for once

        # The best bonus for a place and the best place for a bonus, in turn until neither changes.
        best, before = UNBALANCED, None
        while best != before:
            before = best
            best = best_of([best, *product(ADDED, TIMES, [best[2]])])
            best = best_of([best, *product([best[0]], [best[1]], PLACES)])
        memory.balance.copy_(torch.tensor(best))

    def _asked(self, encoded: Float[Tensor, "M D"], batch: Batch) -> tuple[Float[Tensor, "B M"], Added, Remembered]:
        """The scores of all items but for trends and for what is remembered, and those."""
        batch = newest_part(batch, self.config.max_length)
        read, known = self.read(encoded, batch.history), batch.length > 0
        row, place = torch.arange(len(known), device=known.device), (batch.length - 1).clamp(min=0)
        states = read.states[row, place] * known[:, None]
        asked = Questions.of(read, row, place)
        (columns, values), memory = self.steps(asked), self.remembered(asked)
        scores = torch.addmm(self.bias, states, encoded.T).scatter_add_(1, columns, values * known[:, None])
        trends = self.trends(batch.moment, self.bias, len(known))
        return scores, trends, replace(memory, counts=memory.counts & known[:, None])

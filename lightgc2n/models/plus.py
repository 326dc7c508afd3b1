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
from lightgc2n.layers.balance import balanced_gains
from lightgc2n.layers.crossentropy import linear_cross_entropy
from lightgc2n.layers.followers import Followers, NoFollowers
from lightgc2n.layers.memory import Memory, NoMemory, Remembered
from lightgc2n.layers.propagation import rows_of
from lightgc2n.layers.same_person import NewestAlone, NobodyApart, PersonState, SamePerson
from lightgc2n.layers.windows import cut_rows, newest_part
from lightgc2n.models.contract import LatentUsers, Model

FIRST_DEVIATION = 0.05  # of the item vectors
CHOOSING_CUTOFF = 20
UNBALANCED = (0.0, 1.0)
ADDED, TIMES = (-0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0), (0.6, 0.8, 1.0, 1.2, 1.5, 2.0, 2.5, 3.0)


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


@dataclass(frozen=True)
class Read:
    """Logs as the model reads them."""

    log: Int[Tensor, "B T"]
    states: Float[Tensor, "B T D"]
    like: Float[Tensor, "B T T"]  # the mean over the views


@dataclass(frozen=True)
class Questions:
    """What comes after an event of a log."""

    row: Int[Tensor, "Q"]
    place: Int[Tensor, "Q"]


class LightGC2NPlus(Model):
    """The model; an ablation is the same class with another part put in."""

    def __init__(self, config: PlusConfig, favoured: Float[Tensor, "M"], longest: int, parts: Parts) -> None:
        super().__init__()
        self.config, self.longest = config, longest
        self.items = nn.Parameter(FIRST_DEVIATION * torch.randn(len(favoured), config.width))
        self.bias = nn.Parameter(favoured)
        self.same_person, self.state = parts.same_person, parts.state
        self.followers, self.memory = parts.followers, parts.memory

    def carried(self) -> dict[str, str]:
        items = [name for name in ("items", "bias", "memory.readiness") if name in self.state_dict()]
        whole = [name for name in ("memory.balance",) if name in self.state_dict()]
        return {**dict.fromkeys(items, "items"), **dict.fromkeys(whole, "whole")}

    @property
    def fixed_work(self) -> bool:
        return self.longest <= self.config.max_length

    def encode(self) -> Float[Tensor, "M D"]:
        """The table that items are read and scored with."""
        return self.items

    def losses(self, encoded: Float[Tensor, "M D"], batch: TrainingBatch) -> dict[str, Float[Tensor, ""]]:
        """The mean over all places that count, against all items."""
        batch = cut_rows(batch, self.config.max_length)
        read = self.read(encoded, batch.log)
        questions = Questions(batch.row, batch.at % batch.log.shape[1])
        steps = self.steps(read, questions, batch.target)
        memory = self.remembered(read, questions)
        more = torch.cat([steps[0], memory.items], dim=1), torch.cat([steps[1], memory.added], dim=1)
        asked = rows_of(read.states.flatten(0, 1), batch.at)
        return {"next_item": linear_cross_entropy(asked, encoded, batch.target, batch.share, self.bias, more)}

    @torch.no_grad()
    def scores(self, encoded: Float[Tensor, "M D"], batch: Batch, domain: Domain) -> Float[Tensor, "B N"]:
        """A score for each item of the domain, by the newest `max_length` events; without any, by popularity."""
        scores, memory = self._asked(encoded, batch)
        return scores.scatter_add(1, memory.items, memory.added)[:, domain.start : domain.stop]

    def read(self, encoded: Float[Tensor, "M D"], log: Int[Tensor, "B T"]) -> Read:
        """Who acted, and what is known after every event."""
        events = rows_of(encoded, log)
        like = self.same_person(events)
        return Read(log, self.state(events, like), like.mean(dim=1))

    def steps(
        self, read: Read, asked: Questions, target: Int[Tensor, "Q"] | None = None
    ) -> tuple[Int[Tensor, "Q W"], Float[Tensor, "Q W"]]:
        """Items that follow the newest events, and what that adds to the score of each."""
        before = asked.place[:, None] - torch.arange(self.config.newest, device=asked.place.device)
        there, before = (before >= 0).float(), before.clamp(min=0)
        like = read.like[asked.row[:, None], asked.place[:, None], before]
        return self.followers(read.log[asked.row[:, None], before], like, there, target)

    def remembered(self, read: Read, asked: Questions) -> Remembered:
        """The earlier items, and what having had them adds to the score of each."""
        return self.memory(read.log, asked.row, asked.place, read.like[asked.row, asked.place])

    @torch.no_grad()
    def people(self, encoded: Float[Tensor, "M D"], batch: Batch) -> LatentUsers:
        """The latent users of a history, in the view that starts out forgetting slowest."""
        if not isinstance(self.same_person, SamePerson):
            return super().people(encoded, batch)
        ownership = self.same_person.ownership(rows_of(encoded, batch.history))[:, 0].mT * batch.known[:, None, :]
        weight = ownership.sum(dim=-1) + 1e-9  # nobody is there in an empty history: all alike
        return LatentUsers(ownership, weight / weight.sum(dim=1, keepdim=True))

    def fitted(self) -> dict[str, float]:
        if not isinstance(self.memory, Memory):
            return {}
        return dict(zip(("added", "times"), self.memory.balance.tolist(), strict=True))

    @torch.no_grad()
    def calibrate(self, validation: Callable[[], Iterator[Asked]]) -> None:
        """Takes the balance of repeat and new that has the best NDCG@20 on the validation events.

        MRR hardly tells balances apart: it sees the top of a list, and old items below it matter as much.
        """
        if not isinstance(self.memory, Memory):
            return
        tried = torch.tensor([UNBALANCED, *product(ADDED, TIMES)], device=self.bias.device)  # the first of equals wins
        self.memory.balance.copy_(torch.tensor(UNBALANCED))
        gains, encoded = torch.zeros(len(tried), dtype=torch.float64, device=self.bias.device), self.encode()
        for asked in validation():
            scores, memory = self._asked(encoded, asked.batch)
            among = asked.among or Domain("all", 0, scores.shape[1])
            inside = memory.counts & (memory.items >= among.start) & (memory.items < among.stop)
            found = ((memory.items - among.start).clamp(0, len(among) - 1), memory.bonus, inside)
            within = scores[:, among.start : among.stop]
            gains += balanced_gains(within, *found, asked.target - among.start, tried, CHOOSING_CUTOFF)
        if gains.any():
            self.memory.balance.copy_(tried[gains.argmax()])

    def _asked(self, encoded: Float[Tensor, "M D"], batch: Batch) -> tuple[Float[Tensor, "B M"], Remembered]:
        """The scores of all items but for what is remembered, and that."""
        batch = newest_part(batch, self.config.max_length)
        read, known = self.read(encoded, batch.history), batch.length > 0
        row, place = torch.arange(len(known), device=known.device), (batch.length - 1).clamp(min=0)
        states = read.states[row, place] * known[:, None]
        columns, values = self.steps(read, Questions(row, place))
        memory = self.remembered(read, Questions(row, place))
        scores = torch.addmm(self.bias, states, encoded.T).scatter_add(1, columns, values * known[:, None])
        return scores, replace(memory, counts=memory.counts & known[:, None])

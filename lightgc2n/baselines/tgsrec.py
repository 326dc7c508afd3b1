"""TGSRec (Fan et al., CIKM 2021): accounts and items as nodes of a graph in time, embedded as they are at a moment.

A node attends to its neighbours before the moment, each embedded as it was when they met, and so on for some layers.
Shapes: B batch, I questions, S neighbours, C candidates, K wrong items, V item vectors, M items, N accounts, X items of
a domain, D width of a node, T of a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding, pad, relu

from lightgc2n.config import setting
from lightgc2n.data.batches import Batch, TrainingBatch
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import UNSEEN, Training
from lightgc2n.errors import SettingError
from lightgc2n.layers.edges import DayEdges, Near, RankEdges, edges_of_training, restored_edges
from lightgc2n.layers.pairwise import other_items, softmax_loss
from lightgc2n.layers.temporal import TemporalAttention, TimeEncoding
from lightgc2n.layers.windows import draw_places, histories_before
from lightgc2n.models.contract import Model

# Nodes start evenly between minus this and this. Beside the vector of a time, whose features start at one, much shorter
# ones are hardly heard: they learn faster from large data, but from little data all nodes become one.
FIRST_REACH = 1.0
BLOCK_FLOATS = 2**24  # of neighbours' neighbours that are looked at together
KEPT_FLOATS = 2**27  # of item vectors that an evaluation keeps


@dataclass(frozen=True, slots=True, kw_only=True)
class TGSRecConfig:
    """Values for logs of shared accounts; the paper's symbol stands in brackets."""

    width: int = setting(64, at_least=1, help="Width of a node [d].")
    time_width: int = setting(16, at_least=1, help="Width of a time [d_T].")
    layers: int = setting(2, at_least=0, at_most=3, help="Layers of attention; 0 is matrix factorisation [L].")
    heads: int = setting(2, at_least=1, help="Parts that attention is divided into [H].")
    neighbours: int = setting(10, at_least=1, help="Neighbours of a node that are heard [s].")
    time: str = setting(
        "auto", choices=("auto", "real", "rank"), help="Days, or places in the log; auto: days where there are times."
    )
    period: float = setting(7.0, at_least=0.001, help="Days whose questions share one state of the items.")
    score: str = setting("dot", choices=("dot", "mlp"), help="How an account and an item meet.")
    loss: str = setting(
        "softmax", choices=("softmax", "bpr"), help="Against many wrong items, or one for each question."
    )
    negatives: int = setting(256, at_least=1, help="Wrong items that the questions of a step share (softmax).")
    cuts: int = setting(8, at_least=1, help="Random places of each log that are trained on in an epoch.")
    penalty: float = setting(1e-4, at_least=0.0, help="Weight of the squared length of what a step embeds [λ].")
    table_penalty: bool = setting(False, help="Penalise the length of the whole table, not squared: the authors' code.")
    account_dropout: float = setting(0.1, at_least=0.0, at_most=0.95, help="Accounts hidden in training.")
    dropout: float = setting(0.1, at_least=0.0, at_most=0.95, help="Share of features dropped in training.")


def parameter_count(config: TGSRecConfig, accounts: int, items: int) -> int:
    """(N + M + 1)·D + 2T + L·(4W² + 3W + (W + D)·D + D² + 2D) with W = D + T, and 2D² + 2D to score by layers."""
    width, both = config.width, config.width + config.time_width
    layer = 4 * both**2 + 3 * both + (both + width) * width + width**2 + 2 * width
    times = 2 * config.time_width if config.layers else 0
    score = 2 * width**2 + 2 * width if config.score == "mlp" else 0
    return (accounts + items + 1) * width + times + config.layers * layer + score


class DotScore(nn.Module):
    """The product of account and item."""

    def some(
        self, accounts: Float[Tensor, "I D"], items: Float[Tensor, "V D"], which: Int[Tensor, "I C"]
    ) -> Float[Tensor, "I C"]:
        return (accounts @ items.T).gather(1, which)

    def all(self, accounts: Float[Tensor, "B D"], items: Float[Tensor, "M D"]) -> Float[Tensor, "B M"]:
        return accounts @ items.T


class LayeredScore(nn.Module):
    """w·ReLU(W_s [h_u ; h_i] + b_s)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.account, self.item = nn.Linear(width, width, bias=False), nn.Linear(width, width)  # the halves of W_s
        self.out = nn.Parameter(torch.empty(1, width))
        # Differs: no last bias, since it is the same for all items.
        for weight in (self.account.weight, self.item.weight, self.out):
            nn.init.xavier_normal_(weight)
        nn.init.zeros_(self.item.bias)

    def some(
        self, accounts: Float[Tensor, "I D"], items: Float[Tensor, "V D"], which: Int[Tensor, "I C"]
    ) -> Float[Tensor, "I C"]:
        return relu(self.account(accounts)[:, None] + embedding(which, self.item(items))) @ self.out[0]

    def all(self, accounts: Float[Tensor, "B D"], items: Float[Tensor, "M D"]) -> Float[Tensor, "B M"]:
        asking, there = self.account(accounts), self.item(items)
        rows = max(1, BLOCK_FLOATS // there.numel())
        return torch.cat([relu(part[:, None] + there) @ self.out[0] for part in torch.split(asking, rows)])


class SharedDraw(nn.Module):
    """The same wrong items for all questions of a step: half drawn evenly, half by how often they occur.

    Evenly drawn ones alone teach little, since the items that stand above a target are mostly popular ones.
    """

    chance: Float[Tensor, "M"]

    def __init__(self, popularity: Int[Tensor, "M"], count: int) -> None:
        super().__init__()
        self.count = count
        evenly = torch.full(popularity.shape, 1 / len(popularity))
        self.register_buffer("chance", (evenly + popularity / popularity.sum().clamp(min=1)) / 2, persistent=False)

    def forward(self, target: Int[Tensor, "I"]) -> tuple[Int[Tensor, "1 K"], Float[Tensor, "1 K"]]:
        """The items, and the log of how often each is expected: so much lower, they stand for the whole catalogue."""
        drawn = torch.multinomial(self.chance, self.count, replacement=True)[None]
        return drawn, (self.count * self.chance[drawn]).log()


class OwnDraw(nn.Module):
    """One wrong item for each question, drawn evenly: the softmax over two is BPR."""

    def __init__(self, popularity: Int[Tensor, "M"], count: int) -> None:
        super().__init__()
        self.items = len(popularity)

    def forward(self, target: Int[Tensor, "I"]) -> tuple[Int[Tensor, "I 1"], Float[Tensor, "1 1"]]:
        return other_items(target, self.items, 1), torch.zeros(1, 1, device=target.device)


@dataclass(frozen=True)
class Questions:
    """Accounts at moments: the newest events before each, and the period that it lies in."""

    account: Int[Tensor, "I"]
    near: Near
    period: Int[Tensor, "I"]


@dataclass(frozen=True)
class Heard:
    """Who is not heard, and what is known already: by layer, the accounts of all edges as they were at each."""

    hidden: Bool[Tensor, "N"]
    known: dict[int, Float[Tensor, "E D"]]


class TGSRec(Model):
    """What comes next, by account and item as they are at the time of the question."""

    def __init__(self, config: TGSRecConfig, accounts: int, items: int, edges: RankEdges | DayEdges) -> None:
        super().__init__()
        both = config.width + config.time_width
        if both % config.heads:
            raise SettingError(
                f"tgsrec: {config.heads} heads cannot share width {both}, time included. Choose a divisor."
            )
        self.config, self.edges = config, edges
        self.accounts = nn.Parameter(_first(accounts, config.width))
        self.stranger = nn.Parameter(_first(config.width))
        self.items = nn.Parameter(_first(items, config.width))
        self.layers = nn.ModuleList(
            TemporalAttention(config.width, config.time_width, config.heads, config.dropout)
            for _ in range(config.layers)
        )
        self.time = TimeEncoding(config.time_width, *edges.frequencies) if config.layers else None
        self.score = LayeredScore(config.width) if config.score == "mlp" else DotScore()
        popularity = torch.bincount(edges.item, minlength=items)
        self.draw = {"softmax": SharedDraw, "bpr": OwnDraw}[config.loss](popularity, config.negatives)

    @classmethod
    def build(cls, config: TGSRecConfig, train: Training) -> "TGSRec":
        if config.time == "real" and train.times is None:
            raise SettingError("tgsrec: time=real needs times, and the dataset has none. Use auto or rank.")
        days = config.time != "rank" and train.times is not None
        return cls(
            config, train.accounts, train.items, edges_of_training(train, config.neighbours, config.period, days)
        )

    @classmethod
    def restore(cls, config: TGSRecConfig, tensors: dict[str, Tensor]) -> "TGSRec":
        edges = restored_edges(tensors, config.neighbours, config.period)
        model = cls(config, len(tensors["accounts"]), len(tensors["items"]), edges)
        model.load_state_dict(tensors)
        return model

    def carried(self) -> dict[str, str]:
        return {"items": "items", "accounts": "accounts"}

    def encode(self) -> "Catalogue":
        """Item vectors, computed when they are first asked for: a step of training needs only a few."""
        return Catalogue(self)

    def losses(self, encoded: "Catalogue", batch: TrainingBatch) -> dict[str, Float[Tensor, ""]]:
        """The mean over places drawn from those that count."""
        row, place = draw_places(batch.counts, self.config.cuts)
        stranger = torch.rand(len(row), device=row.device) < self.config.account_dropout
        questions, target = self._asked_in_training(batch, row, place), batch.next_item[row, place]
        wrong, expected = self.draw(target)
        account = torch.where(stranger & self.training, UNSEEN, questions.account)
        heard = self._heard_by(batch.account)
        asking = self.accounts_asking(account, questions.near, heard)
        candidates = torch.cat([target[:, None], wrong.expand(len(target), -1)], dim=1)
        scores = self.score.some(asking, *self.items_in(candidates, questions.period, heard)) - pad(expected, (1, 0))
        repeated = pad(wrong == target[:, None], (1, 0), value=False)  # a drawn target is no wrong item
        return {
            "next_item": softmax_loss(scores.masked_fill(repeated, torch.finfo(scores.dtype).min)),
            "penalty": self.config.penalty * self._size(account, target, wrong.flatten()),
        }

    def _asked_in_training(self, batch: TrainingBatch, row: Int[Tensor, "I"], place: Int[Tensor, "I"]) -> Questions:
        gaps = torch.zeros_like(batch.log, dtype=torch.float64) if batch.gaps is None else batch.gaps.double()
        days = gaps.cumsum(dim=1)
        elapsed = days[row, place]
        age = elapsed[:, None] - self._newest(days - gaps, row, place)
        return self.questions(batch.account, batch.log, row, place, age, elapsed)

    def _heard_by(self, account: Int[Tensor, "B"]) -> Heard:
        # Differs: where time does not tell what stands before a question, an account of the batch is no neighbour of
        # any item, or its own next event would tell the answer.
        hidden = torch.zeros(len(self.accounts), dtype=torch.bool, device=account.device)
        return Heard(hidden.index_fill(0, self.edges.undated(account), True), {})

    def _size(self, account: Tensor, target: Tensor, wrong: Tensor) -> Float[Tensor, ""]:
        if self.config.table_penalty:
            return torch.cat([self.accounts, self.stranger[None], self.items]).norm()
        rows = self.rows_of_accounts(account), embedding(target, self.items), embedding(wrong, self.items)
        return torch.cat(rows).square().sum(dim=1).mean() if len(account) else self.items.sum() * 0

    @torch.no_grad()
    def scores(self, encoded: "Catalogue", batch: Batch, domain: Domain) -> Float[Tensor, "B X"]:
        row = torch.arange(len(batch.length), device=batch.length.device)
        ages, elapsed = _days_to_question(batch)
        age = self._newest(ages, row, batch.length - 1)
        questions = self.questions(batch.account, batch.history, row, batch.length - 1, age, elapsed)
        accounts = self.accounts_asking(questions.account, questions.near, encoded.heard)
        found = accounts.new_empty(len(accounts), len(self.items))
        for period in torch.unique(questions.period).tolist():
            rows = (questions.period == period).nonzero()[:, 0]
            found[rows] = self.score.all(accounts[rows], encoded.items_in(period))
        return found[:, domain.start : domain.stop]

    @torch.no_grad()
    def fold_in_scores(self, encoded: "Catalogue", batch: Batch, domain: Domain) -> Float[Tensor, "B X"]:
        """Scores by the history alone, asked when training ends."""
        nameless = Batch(torch.full_like(batch.account, UNSEEN), batch.history, batch.length, batch.ages)
        return self.scores(encoded, nameless, domain)

    def questions(
        self,
        account: Int[Tensor, "B"],
        log: Int[Tensor, "B T"],
        row: Int[Tensor, "I"],
        place: Int[Tensor, "I"],
        age: Float[Tensor, "I S"],
        elapsed: Float[Tensor, "I"],
    ) -> Questions:
        """What is asked after some places of logs.

        Args:
            age: days from the newest events, in the order of `_newest`, to each question.
            elapsed: days from the first event of a log to each question; NaN where nobody knows.
        """
        items, known = histories_before(log, row, place, self.config.neighbours, newest_first=True)
        span, day, period = self.edges.asked(account[row], age * known, elapsed)
        return Questions(account[row], Near(items, known, span, day), period)

    def _newest(
        self, days: Float[Tensor, "B T"], row: Int[Tensor, "I"], place: Int[Tensor, "I"]
    ) -> Float[Tensor, "I S"]:
        """Days of the newest events, as `histories_before` has their items."""
        places = torch.arange(days.shape[1], device=days.device).expand_as(days)
        at, _ = histories_before(places, row, place, self.config.neighbours, newest_first=True)
        return days[row[:, None], at]

    def accounts_asking(
        self, account: Int[Tensor, "I"], near: Near, heard: Heard, layers: int | None = None
    ) -> Float[Tensor, "I D"]:
        """Accounts at the time of their questions."""
        layer = self.config.layers if layers is None else layers
        if layer == 0:
            return self.rows_of_accounts(account)
        node = self.accounts_asking(account, near, heard, layer - 1)
        return self._attend(layer, node, self.items_at(layer - 1, near.which, near.day, heard), near)

    def rows_of_accounts(self, account: Int[Tensor, "*any"]) -> Float[Tensor, "*any D"]:
        """e; all strangers share one."""
        rows = embedding(account.clamp(min=0), self.accounts)
        return torch.where((account >= 0)[..., None], rows, self.stranger)

    def items_in(
        self, item: Int[Tensor, "I C"], period: Int[Tensor, "I"], heard: Heard
    ) -> tuple[Float[Tensor, "V D"], Int[Tensor, "I C"]]:
        """Items as they are when a period begins, each pair of item and period once, and where to find each."""
        pairs, back = torch.unique(period[:, None] * len(self.items) + item, return_inverse=True)
        day = self.edges.begin_of(torch.div(pairs, len(self.items), rounding_mode="floor"))
        return self.items_at(self.config.layers, pairs % len(self.items), day, heard), back

    def items_at(
        self, layer: int, item: Int[Tensor, "*nodes"], day: Float[Tensor, "*nodes"], heard: Heard
    ) -> Float[Tensor, "*nodes D"]:
        """Items at moments, after so many layers; hidden accounts are not heard."""
        if layer == 0:
            return embedding(item, self.items)
        node = self.items_at(layer - 1, item, day, heard)
        near = self.edges.edges_of(item, day)
        near = Near(near.which, near.known & ~heard.hidden[self.edges.account[near.which]], near.span, near.day)
        return self._attend(layer, node, self.accounts_at(layer - 1, near.which, heard), near)

    def accounts_at(self, layer: int, edge: Int[Tensor, "*nodes"], heard: Heard) -> Float[Tensor, "*nodes D"]:
        """The accounts of edges, each as it was when it met the item; every edge is embedded once."""
        if layer == 0:
            return embedding(self.edges.account[edge], self.accounts)
        if layer in heard.known:
            return embedding(edge, heard.known[layer])
        distinct, back = torch.unique(edge, return_inverse=True)
        node, near = self.accounts_at(layer - 1, distinct, heard), self.edges.items_before(distinct)
        return embedding(back, self._attend(layer, node, self.items_at(layer - 1, near.which, near.day, heard), near))

    def _attend(
        self, layer: int, node: Float[Tensor, "*nodes D"], neighbours: Float[Tensor, "*nodes S D"], near: Near
    ) -> Float[Tensor, "*nodes D"]:
        assert self.time is not None
        now = self.time(node.new_zeros(()))  # Φ(0)
        flat = [
            table.flatten(0, -2 - extra) for table, extra in ((node, 0), (neighbours, 1), (self.time(near.span), 1))
        ]
        found = self.layers[layer - 1](flat[0], now, flat[1], flat[2], near.known.flatten(0, -2))
        return found.view_as(node)


class Catalogue:
    """The vectors of all items as periods begin, computed for the first question of a period and kept for the next."""

    def __init__(self, model: TGSRec) -> None:
        self.model = model
        self.kept: dict[int, Tensor] = {}

    @cached_property
    @torch.no_grad()
    def heard(self) -> Heard:
        """Everybody, at every edge: what neighbours were when they met does not depend on the question."""
        model, hidden = self.model, self.model.accounts.new_zeros(len(self.model.accounts), dtype=torch.bool)
        found = Heard(hidden, {})
        for layer in range(1, model.config.layers):
            edges = torch.arange(len(model.edges.account), device=hidden.device)
            found.known[layer] = torch.cat([model.accounts_at(layer, part, found) for part in self._parts(edges)])
        return found

    @torch.no_grad()
    def items_in(self, period: int) -> Float[Tensor, "M D"]:
        if period not in self.kept:
            if (len(self.kept) + 1) * self.model.items.numel() > KEPT_FLOATS:
                self.kept.clear()
            model, every = self.model, torch.arange(len(self.model.items), device=self.model.items.device)
            day = model.edges.begin_of(torch.full_like(every, period))
            pairs = zip(self._parts(every), self._parts(day), strict=True)
            found = [model.items_at(model.config.layers, item, then, self.heard) for item, then in pairs]
            self.kept[period] = torch.cat(found)
        return self.kept[period]

    def _parts(self, nodes: Tensor) -> Sequence[Tensor]:
        """Nodes in blocks, so that the neighbours of their neighbours are never too many."""
        config = self.model.config
        reach = config.neighbours ** min(2, config.layers) * (config.width + config.time_width)
        return torch.split(nodes, max(1, BLOCK_FLOATS // reach))


def _first(*shape: int) -> Float[Tensor, "..."]:
    return torch.empty(shape).uniform_(-FIRST_REACH, FIRST_REACH)


def _days_to_question(batch: Batch) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B"]]:
    """Days from each event to the question, and from the first one: NaN where nobody knows."""
    if batch.ages is None:
        unknown = torch.full_like(batch.length, torch.nan, dtype=torch.float64)
        return torch.zeros_like(batch.history, dtype=torch.float64), unknown
    ages = batch.ages.double()
    return ages, ages[:, :1].sum(dim=1).masked_fill(batch.length == 0, torch.nan)

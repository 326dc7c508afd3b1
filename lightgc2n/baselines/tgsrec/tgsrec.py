"""TGSRec (Fan et al., CIKM 2021): accounts and items are nodes of a temporal graph, embedded as of a given time.

A node attends to its earlier neighbours, each embedded as of the time of their interaction, for some layers.
Shapes: B batch, I queries, S neighbours, C candidates, K negatives, V item vectors, M items, N accounts, X items of
a domain, D width of a node, T of a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding, pad, relu

from lightgc2n.baselines.tgsrec.temporal_attention import TemporalAttention, TimeEncoding
from lightgc2n.baselines.tgsrec.timed_edges import DayEdges, Near, RankEdges, edges_of_training, restored_edges
from lightgc2n.config import setting
from lightgc2n.data.batches import Batch, TrainingBatch, draw_places, histories_before
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import UNSEEN, Training
from lightgc2n.errors import SettingError
from lightgc2n.layers.sampled_losses import other_items, softmax_loss
from lightgc2n.models.contract import Model

# Nodes are initialised uniformly between minus this and this. Time vectors have entries near one, so much shorter node
# vectors hardly count: they learn faster from large data, but collapse on small data.
FIRST_REACH = 1.0
BLOCK_FLOATS = 2**24  # size of the second-order neighbours that are gathered at once
CACHED_FLOATS = 2**27  # size of the item vectors that an evaluation caches


@dataclass(frozen=True, slots=True, kw_only=True)
class TGSRecConfig:
    """Values for logs of shared accounts; the paper's symbols in brackets."""

    width: int = setting(64, at_least=1, help="Width of a node [d].")
    time_width: int = setting(16, at_least=1, help="Width of a time [d_T].")
    layers: int = setting(2, at_least=0, at_most=3, help="Layers of attention; 0 is matrix factorisation [L].")
    heads: int = setting(2, at_least=1, help="Attention heads [H].")
    neighbours: int = setting(10, at_least=1, help="Neighbours of a node that are attended to [s].")
    time: str = setting(
        "auto", choices=("auto", "real", "rank"), help="Days, or places in the log; auto: days where there are times."
    )
    period: float = setting(7.0, at_least=0.001, help="Days whose queries share the item vectors.")
    score: str = setting("dot", choices=("dot", "mlp"), help="Score of account and item: dot product or MLP.")
    loss: str = setting(
        "softmax",
        choices=("softmax", "bpr"),
        help="Softmax over shared negatives, or BPR with one negative for each query.",
    )
    negatives: int = setting(256, at_least=1, help="Negatives that all queries of a step share (softmax).")
    cuts: int = setting(8, at_least=1, help="Random places of each log that are trained on in each epoch.")
    penalty: float = setting(1e-4, at_least=0.0, help="L2 weight of the embeddings of a step [λ].")
    table_penalty: bool = setting(False, help="Penalise the norm of the whole table, as in the authors' code.")
    account_dropout: float = setting(0.1, at_least=0.0, at_most=0.95, help="Share of accounts hidden in training.")
    dropout: float = setting(0.1, at_least=0.0, at_most=0.95, help="Share of features dropped in training.")


class DotScore(nn.Module):
    """The dot product of account and item."""

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
        account_vectors, there = self.account(accounts), self.item(items)
        rows = max(1, BLOCK_FLOATS // there.numel())
        return torch.cat([relu(part[:, None] + there) @ self.out[0] for part in torch.split(account_vectors, rows)])


class SharedDraw(nn.Module):
    """The same negatives for all queries of a step: half sampled uniformly, half by frequency.

    Uniform negatives alone teach little, since the items that outrank a target are mostly popular.
    """

    chance: Float[Tensor, "M"]

    def __init__(self, popularity: Int[Tensor, "M"], count: int) -> None:
        super().__init__()
        self.count = count
        evenly = torch.full(popularity.shape, 1 / len(popularity))
        self.register_buffer("chance", (evenly + popularity / popularity.sum().clamp(min=1)) / 2, persistent=False)

    def forward(self, target: Int[Tensor, "I"]) -> tuple[Int[Tensor, "1 K"], Float[Tensor, "1 K"]]:
        """The items, and the log of their expected counts, which is subtracted from the scores (logQ correction)."""
        drawn = torch.multinomial(self.chance, self.count, replacement=True)[None]
        return drawn, (self.count * self.chance[drawn]).log()


class OwnDraw(nn.Module):
    """One negative for each query, sampled uniformly: the softmax over two is BPR."""

    def __init__(self, popularity: Int[Tensor, "M"], count: int) -> None:
        super().__init__()
        self.items = len(popularity)

    def forward(self, target: Int[Tensor, "I"]) -> tuple[Int[Tensor, "I 1"], Float[Tensor, "1 1"]]:
        return other_items(target, self.items, 1), torch.zeros(1, 1, device=target.device)


@dataclass(frozen=True)
class TimedQueries:
    """Accounts at query times: the newest events before each, and its period."""

    account: Int[Tensor, "I"]
    near: Near
    period: Int[Tensor, "I"]


@dataclass(frozen=True)
class AccountVectors:
    """The hidden accounts, and the cached account vectors at all edges, by layer."""

    hidden: Bool[Tensor, "N"]
    known: dict[int, Float[Tensor, "E D"]]


class TGSRec(Model):
    """Scores of account and item vectors as of the time of the query."""

    def __init__(self, config: TGSRecConfig, accounts: int, items: int, edges: RankEdges | DayEdges) -> None:
        super().__init__()
        both = config.width + config.time_width
        if both % config.heads:
            raise SettingError(
                f"tgsrec: {config.heads} heads do not divide width {both}, time included. Choose a divisor of it."
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
            raise SettingError("tgsrec: time=real needs event times, and the dataset has none. Use auto or rank.")
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

    def warm_start_tensors(self) -> dict[str, str]:
        return {"items": "items", "accounts": "accounts"}

    def encode(self) -> "Catalogue":
        """A lazy catalogue of item vectors: a training step needs only a few."""
        return Catalogue(self)

    def losses(self, encoded: "Catalogue", batch: TrainingBatch) -> dict[str, Float[Tensor, ""]]:
        """The mean over sampled places."""
        row, place = draw_places(batch.counts, self.config.cuts)
        hidden = torch.rand(len(row), device=row.device) < self.config.account_dropout
        queries, target = self._training_queries(batch, row, place), batch.next_item[row, place]
        wrong, expected = self.draw(target)
        account = torch.where(hidden & self.training, UNSEEN, queries.account)
        accounts_known = self._accounts_known(batch.account)
        account_vectors = self.accounts_at_query(account, queries.near, accounts_known)
        candidates = torch.cat([target[:, None], wrong.expand(len(target), -1)], dim=1)
        scores = self.score.some(account_vectors, *self.items_in(candidates, queries.period, accounts_known)) - pad(
            expected, (1, 0)
        )
        repeated = pad(
            wrong == target[:, None], (1, 0), value=False
        )  # a sampled item that equals the target is ignored
        return {
            "next_item": softmax_loss(scores.masked_fill(repeated, torch.finfo(scores.dtype).min)),
            "penalty": self.config.penalty * self._size(account, target, wrong.flatten()),
        }

    def _training_queries(self, batch: TrainingBatch, row: Int[Tensor, "I"], place: Int[Tensor, "I"]) -> TimedQueries:
        gaps = torch.zeros_like(batch.log, dtype=torch.float64) if batch.gaps is None else batch.gaps.double()
        days = gaps.cumsum(dim=1)
        elapsed = days[row, place]
        age = elapsed[:, None] - self._newest(days - gaps, row, place)
        return self.queries(batch.account, batch.log, row, place, age, elapsed)

    def _accounts_known(self, account: Int[Tensor, "B"]) -> AccountVectors:
        # Differs: where the order of events is unknown, the accounts of the batch are neighbours of no item, because
        # their own next event would leak the target.
        hidden = torch.zeros(len(self.accounts), dtype=torch.bool, device=account.device)
        return AccountVectors(hidden.index_fill(0, self.edges.undated(account), True), {})

    def _size(self, account: Tensor, target: Tensor, wrong: Tensor) -> Float[Tensor, ""]:
        if self.config.table_penalty:
            return torch.cat([self.accounts, self.stranger[None], self.items]).norm()
        rows = self.rows_of_accounts(account), embedding(target, self.items), embedding(wrong, self.items)
        return torch.cat(rows).square().sum(dim=1).mean() if len(account) else self.items.sum() * 0

    @torch.no_grad()
    def scores(self, encoded: "Catalogue", batch: Batch, domain: Domain) -> Float[Tensor, "B X"]:
        row = torch.arange(len(batch.length), device=batch.length.device)
        ages, elapsed = _days_to_query(batch)
        age = self._newest(ages, row, batch.length - 1)
        queries = self.queries(batch.account, batch.history, row, batch.length - 1, age, elapsed)
        accounts = self.accounts_at_query(queries.account, queries.near, encoded.accounts_known)
        scores = accounts.new_empty(len(accounts), len(self.items))
        for period in torch.unique(queries.period).tolist():
            rows = (queries.period == period).nonzero()[:, 0]
            scores[rows] = self.score.all(accounts[rows], encoded.items_in(period))
        return scores[:, domain.start : domain.stop]

    @torch.no_grad()
    def fold_in_scores(self, encoded: "Catalogue", batch: Batch, domain: Domain) -> Float[Tensor, "B X"]:
        """Scores from the history alone, as of the end of training."""
        return self.scores(encoded, replace(batch.without_account, moment=None), domain)

    def queries(
        self,
        account: Int[Tensor, "B"],
        log: Int[Tensor, "B T"],
        row: Int[Tensor, "I"],
        place: Int[Tensor, "I"],
        age: Float[Tensor, "I S"],
        elapsed: Float[Tensor, "I"],
    ) -> TimedQueries:
        """The queries after the given places of logs.

        Args:
            age: days from the newest events, in the order of `_newest`, to each query.
            elapsed: days from the first event of a log to each query; NaN where unknown.
        """
        items, known = histories_before(log, row, place, self.config.neighbours, newest_first=True)
        span, day, period = self.edges.query_times(account[row], age * known, elapsed)
        return TimedQueries(account[row], Near(items, known, span, day), period)

    def _newest(
        self, days: Float[Tensor, "B T"], row: Int[Tensor, "I"], place: Int[Tensor, "I"]
    ) -> Float[Tensor, "I S"]:
        """Days of the newest events, in the order of `histories_before`."""
        places = torch.arange(days.shape[1], device=days.device).expand_as(days)
        at, _ = histories_before(places, row, place, self.config.neighbours, newest_first=True)
        return days[row[:, None], at]

    def accounts_at_query(
        self, account: Int[Tensor, "I"], near: Near, accounts_known: AccountVectors, layers: int | None = None
    ) -> Float[Tensor, "I D"]:
        """Account vectors at the times of their queries."""
        layer = self.config.layers if layers is None else layers
        if layer == 0:
            return self.rows_of_accounts(account)
        node = self.accounts_at_query(account, near, accounts_known, layer - 1)
        return self._attend(layer, node, self.items_at(layer - 1, near.which, near.day, accounts_known), near)

    def rows_of_accounts(self, account: Int[Tensor, "*any"]) -> Float[Tensor, "*any D"]:
        """e; all unseen accounts share one embedding."""
        rows = embedding(account.clamp(min=0), self.accounts)
        return torch.where((account >= 0)[..., None], rows, self.stranger)

    def items_in(
        self, item: Int[Tensor, "I C"], period: Int[Tensor, "I"], accounts_known: AccountVectors
    ) -> tuple[Float[Tensor, "V D"], Int[Tensor, "I C"]]:
        """Item vectors at the start of periods, one for each distinct pair, and the index of each pair."""
        pairs, back = torch.unique(period[:, None] * len(self.items) + item, return_inverse=True)
        day = self.edges.begin_of(torch.div(pairs, len(self.items), rounding_mode="floor"))
        return self.items_at(self.config.layers, pairs % len(self.items), day, accounts_known), back

    def items_at(
        self, layer: int, item: Int[Tensor, "*nodes"], day: Float[Tensor, "*nodes"], accounts_known: AccountVectors
    ) -> Float[Tensor, "*nodes D"]:
        """Item vectors at given times after `layer` layers; hidden accounts are left out."""
        if layer == 0:
            return embedding(item, self.items)
        node = self.items_at(layer - 1, item, day, accounts_known)
        near = self.edges.edges_of(item, day)
        near = Near(
            near.which, near.known & ~accounts_known.hidden[self.edges.account[near.which]], near.span, near.day
        )
        return self._attend(layer, node, self.accounts_at(layer - 1, near.which, accounts_known), near)

    def accounts_at(
        self, layer: int, edge: Int[Tensor, "*nodes"], accounts_known: AccountVectors
    ) -> Float[Tensor, "*nodes D"]:
        """The account vectors of edges as of the time of the edge; each edge is computed once."""
        if layer == 0:
            return embedding(self.edges.account[edge], self.accounts)
        if layer in accounts_known.known:
            return embedding(edge, accounts_known.known[layer])
        distinct, back = torch.unique(edge, return_inverse=True)
        node, near = self.accounts_at(layer - 1, distinct, accounts_known), self.edges.items_before(distinct)
        return embedding(
            back, self._attend(layer, node, self.items_at(layer - 1, near.which, near.day, accounts_known), near)
        )

    def _attend(
        self, layer: int, node: Float[Tensor, "*nodes D"], neighbours: Float[Tensor, "*nodes S D"], near: Near
    ) -> Float[Tensor, "*nodes D"]:
        assert self.time is not None
        now = self.time(node.new_zeros(()))  # Φ(0)
        flat = [
            table.flatten(0, -2 - extra) for table, extra in ((node, 0), (neighbours, 1), (self.time(near.span), 1))
        ]
        updated = self.layers[layer - 1](flat[0], now, flat[1], flat[2], near.known.flatten(0, -2))
        return updated.view_as(node)


class Catalogue:
    """The vectors of all items at the starts of periods, computed on first use and cached."""

    def __init__(self, model: TGSRec) -> None:
        self.model = model
        self.by_period: dict[int, Tensor] = {}

    @cached_property
    @torch.no_grad()
    def accounts_known(self) -> AccountVectors:
        """The account vectors at all edges, which do not depend on the query."""
        model, hidden = self.model, self.model.accounts.new_zeros(len(self.model.accounts), dtype=torch.bool)
        cached = AccountVectors(hidden, {})
        for layer in range(1, model.config.layers):
            edges = torch.arange(len(model.edges.account), device=hidden.device)
            cached.known[layer] = torch.cat([model.accounts_at(layer, part, cached) for part in self._parts(edges)])
        return cached

    @torch.no_grad()
    def items_in(self, period: int) -> Float[Tensor, "M D"]:
        if period not in self.by_period:
            if (len(self.by_period) + 1) * self.model.items.numel() > CACHED_FLOATS:
                self.by_period.clear()
            model, every = self.model, torch.arange(len(self.model.items), device=self.model.items.device)
            day = model.edges.begin_of(torch.full_like(every, period))
            pairs = zip(self._parts(every), self._parts(day), strict=True)
            parts = [model.items_at(model.config.layers, item, then, self.accounts_known) for item, then in pairs]
            self.by_period[period] = torch.cat(parts)
        return self.by_period[period]

    def _parts(self, nodes: Tensor) -> Sequence[Tensor]:
        """Nodes in blocks, which bounds the number of second-order neighbours."""
        config = self.model.config
        reach = config.neighbours ** min(2, config.layers) * (config.width + config.time_width)
        return torch.split(nodes, max(1, BLOCK_FLOATS // reach))


def _first(*shape: int) -> Float[Tensor, "..."]:
    return torch.empty(shape).uniform_(-FIRST_REACH, FIRST_REACH)


def _days_to_query(batch: Batch) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B"]]:
    """Days from each event to the query, and from the first one: NaN where unknown."""
    if batch.ages is None:
        unknown = torch.full_like(batch.length, torch.nan, dtype=torch.float64)
        return torch.zeros_like(batch.history, dtype=torch.float64), unknown
    ages = batch.ages.double()
    return ages, ages[:, :1].sum(dim=1).masked_fill(batch.length == 0, torch.nan)

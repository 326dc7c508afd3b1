"""LightGC²N-plus: subspaces identify who acts now; person state, transitions, repeats and trends score the items.

It keeps the paper's idea of latent users and adds order, transitions and repeats. There is no table of accounts: an
account is its log, so a new account is scored like a known one.
Shapes: B batch, T history, M items, N items of a domain, Q queries, A latent users, H views, D width.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lightgc2n.config import setting
from lightgc2n.data.batches import Batch, LabelledBatch, TrainingBatch, newest_part
from lightgc2n.data.dataset import Domain, Longs
from lightgc2n.data.splits import Training
from lightgc2n.devices import device_of
from lightgc2n.layers.crossentropy import linear_cross_entropy
from lightgc2n.layers.sparse import rows_of
from lightgc2n.metrics.ranking import SELECTION_CUTOFF
from lightgc2n.models.contract import LatentUsers, Model, Origin
from lightgc2n.models.plus.blend import Blend, LearnedScores, NoBlend
from lightgc2n.models.plus.item_numbering import renumber_items
from lightgc2n.models.plus.repeats import NoRepeatMemory, RankInputs, RepeatBonus, RepeatMemory, raise_earlier_items
from lightgc2n.models.plus.same_person import NewestEventState, OnePerson, PersonState, SamePerson
from lightgc2n.models.plus.training_blocks import Kept, TrainingQueries, sum_over_blocks
from lightgc2n.models.plus.transitions import (
    NoTransitions,
    OwnTransitions,
    PairCounts,
    Transitions,
    count_followers,
)
from lightgc2n.models.plus.trends import NoTrends, ScoredQueries, Trends

INITIAL_DEVIATION = 0.05  # standard deviation of the initial item vectors
Bonus = tuple[Int[Tensor, "Q W"], Float[Tensor, "Q W"]]  # items, and what is added to the score of each
# Tensors that a warm start remaps by item id or copies whole; an ablation lacks some of them.
WARM_START = {
    "items": "items",
    "bias": "items",
    "memory.readiness": "items",
    "memory.balance": "whole",
    "trends.chosen": "whole",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlusConfig:
    """Defaults; docs/research/log.md lists the values that were tried."""

    width: int = setting(32, at_least=1, help="Width of item vectors and states.")
    latent_users: int = setting(5, at_least=1, at_most=16, help="Latent users; each has a direction in every view.")
    views: int = setting(
        4, at_least=1, at_most=16, help="Ways to divide a log among people, each with its own rate of decay."
    )
    newest: int = setting(5, at_least=1, help="Newest events whose followers count.")
    followers: int = setting(64, at_least=1, help="Most frequent followers kept for each item.")
    reach: int = setting(
        1, at_least=1, at_most=20, help="Largest distance of a follower in events; one at distance d counts 1 / d."
    )
    trending: int = setting(
        128, at_least=1, help="Most frequent recent items kept in each snapshot, where times are known."
    )
    hidden: int = setting(16, at_least=1, help="Hidden width of the repeat memory.")
    max_length: int = setting(100, at_least=1, help="Newest events that are read; longer logs train in windows.")
    targets_per_log: int = setting(
        128,
        at_least=1,
        help="Mean number of targets per log in a training step; longer logs train on some windows, drawn every epoch.",
    )
    dropout: float = setting(0.2, at_least=0.0, at_most=0.95, help="Share of features dropped in training.")


@dataclass(frozen=True)
class Parts:
    """The parts that an ablation replaces."""

    same_person: SamePerson | OnePerson
    state: PersonState | NewestEventState
    followers: Transitions | NoTransitions
    memory: RepeatMemory | NoRepeatMemory
    trends: Trends | NoTrends
    blend: Blend | NoBlend


@dataclass(frozen=True)
class LogStates:
    """The states of logs after every event."""

    log: Int[Tensor, "B T"]
    states: Float[Tensor, "B T D"]
    likeness: Float[Tensor, "B T T"]  # the mean over the views


@dataclass(frozen=True)
class LogQueries:
    """Queries for the item that comes after an event of a log."""

    log: Int[Tensor, "B T"]
    row: Int[Tensor, "Q"]
    place: Int[Tensor, "Q"]
    likeness: Float[Tensor, "Q T"]  # the probability that each event of the log is of the person who acts

    @classmethod
    def at(cls, logs: LogStates, row: Int[Tensor, "Q"], place: Int[Tensor, "Q"]) -> "LogQueries":
        """The queries after the events at these places."""
        likeness = rows_of(logs.likeness.flatten(0, 1), row * logs.log.shape[1] + place)
        return cls(logs.log, row, place, likeness)


class LightGC2NPlus(Model):
    """The model; an ablation is the same class with another part."""

    learned: Float[Tensor, "M"]  # 1 for items with training events
    newer: Bool[Tensor, "M"]  # items with events after training

    def __init__(self, config: PlusConfig, log_popularity: Float[Tensor, "M"], longest: int, parts: Parts) -> None:
        super().__init__()
        self.config, self.longest = config, longest
        self.items = nn.Parameter(INITIAL_DEVIATION * torch.randn(len(log_popularity), config.width))
        self.bias = nn.Parameter(log_popularity)
        self.register_buffer("learned", torch.ones_like(log_popularity))
        self.same_person, self.state = parts.same_person, parts.state
        self.followers, self.memory, self.trends = parts.followers, parts.memory, parts.trends
        self.blend = parts.blend
        self.newer_followers: PairCounts | None = None  # counted up to a later time than training
        self.register_buffer("newer", torch.zeros(len(log_popularity), dtype=torch.bool), persistent=False)

    def warm_start_tensors(self) -> dict[str, str]:
        own = self.state_dict()
        return {name: kind for name, kind in WARM_START.items() if name in own}

    @property
    def cuda_graph_safe(self) -> bool:
        # Longer logs are cut into a varying number of rows, of which some are chosen.
        return self.longest <= min(self.config.max_length, self.config.targets_per_log)

    @property
    def has_latent_users(self) -> bool:
        return self.same_person.has_latent_users

    @property
    def stored_numbers(self) -> int:
        counted = (self.followers.pair_counts, self.trends, self.blend)
        small = (self.learned, *self.memory.buffers())
        return sum(part.stored_numbers for part in counted) + sum(tensor.numel() for tensor in small)

    def encode(self) -> Float[Tensor, "M D"]:
        """The item vectors, which are both the input and the output embedding."""
        return self.items

    def losses(self, encoded: Float[Tensor, "M D"], batch: TrainingBatch) -> dict[str, Float[Tensor, ""]]:
        """The mean cross-entropy over all places that count, against all items.

        A large batch is computed in blocks of windows, so that memory does not grow with the length of the logs.
        """
        queries = TrainingQueries.of(batch, self.config.max_length)
        queries = queries.sample(self.config.targets_per_log * len(batch.log))
        rows = self._blocks(queries)
        if len(rows) == 1:
            return {"next_item": self._loss(encoded, batch, queries)}
        queries = replace(queries, kept=self.state.draw_kept(*queries.log.shape))
        blocks = (queries.select(some) for some in rows)
        learned = {id(tensor): tensor for tensor in (encoded, *self.parameters()) if tensor.requires_grad}
        loss = sum_over_blocks(lambda block: self._loss(encoded, batch, block), blocks, list(learned.values()))
        return {"next_item": loss}

    def _blocks(self, queries: TrainingQueries) -> list[slice]:
        device = device_of(queries.log)
        if device.is_gpu and self.cuda_graph_safe:
            return [slice(0, len(queries.log))]  # a captured step has fixed shapes, so it is not divided
        return queries.blocks(device.history_cells)

    def _loss(self, encoded: Float[Tensor, "M D"], whole: TrainingBatch, block: TrainingQueries) -> Float[Tensor, ""]:
        logs = self.read(encoded, block.log, block.kept)
        queries = LogQueries.at(logs, block.row, block.place)
        transitions = self.transition_bonus(queries, self.followers.own_at(whole, block.whole_at))
        repeats = self.repeat_bonus(queries)
        trends = self.trends(block.moment, self.bias, len(block.at))
        bonuses = zip(transitions, trends, (repeats.items, repeats.added), strict=True)
        columns, values = (torch.cat(part, dim=1) for part in bonuses)
        states = rows_of(logs.states.flatten(0, 1), block.at)
        return linear_cross_entropy(states, encoded, block.target, block.share, self.bias, (columns, values))

    @torch.no_grad()
    def scores(self, encoded: Float[Tensor, "M D"], batch: Batch, domain: Domain) -> Float[Tensor, "B N"]:
        """Scores from the newest `max_length` events: the learned ones, blended with counted evidence."""
        if not self.blend.is_fitted:
            return self.learned_scores(encoded, batch, domain)
        learned = self.learned_scores(encoded, batch, Domain("all", 0, len(self.bias)))
        return self.blend(learned, self.shares(batch), self.rankable)[:, domain.start : domain.stop]

    @property
    def rankable(self) -> Bool[Tensor, "M"]:
        """The items that have events."""
        return (self.learned > 0) | self.newer

    def shares(self, batch: Batch) -> Iterator[Float[Tensor, "B M"]]:
        """The shares of all items by each counted source."""
        batch = newest_part(batch, self.config.max_length)
        trends = self.trends.shares(batch.moment, len(batch.length), len(self.bias))
        return self.blend.shares(batch, self.newer_followers or self.followers.pair_counts, trends)

    def learned_scores(self, encoded: Float[Tensor, "M D"], batch: Batch, domain: Domain) -> Float[Tensor, "B N"]:
        """Scores without the blend; from popularity alone for an empty history."""
        scores, trends, repeats = self._score_parts(encoded, batch)
        scores.scatter_add_(1, *trends).scatter_add_(1, repeats.items, repeats.added)
        within, repeats = scores[:, domain.start : domain.stop], repeats.within(domain)
        return raise_earlier_items(within, repeats.items, repeats.counts, self.memory.place)

    def read(self, encoded: Float[Tensor, "M D"], log: Int[Tensor, "B T"], kept: Kept = ()) -> LogStates:
        """The state after every event, and which events are of the same person."""
        events = rows_of(encoded, log)
        by_view, likeness = self.same_person(events)
        return LogStates(log, self.state(events, by_view, kept), likeness)

    def read_at(
        self, encoded: Float[Tensor, "M D"], log: Int[Tensor, "B T"], place: Int[Tensor, "B"]
    ) -> tuple[Float[Tensor, "B D"], LogQueries]:
        """The state after one event of each log, and the query there; few logs are read at once, to bound memory."""
        at_once, parts = max(1, device_of(log).history_cells // max(1, log.shape[1] ** 2)), []
        for first in range(0, max(1, len(log)), at_once):
            logs, where = self.read(encoded, log[first : first + at_once]), place[first : first + at_once]
            row = torch.arange(len(where), device=log.device)
            parts.append((logs.states[row, where], logs.likeness[row, where]))
        states, likeness = (torch.cat(part) for part in zip(*parts, strict=True))
        return states, LogQueries(log, torch.arange(len(log), device=log.device), place, likeness)

    def transition_bonus(self, queries: LogQueries, own: OwnTransitions | None = None) -> Bonus:
        """The followers of the newest events, and what is added to the score of each."""
        place = queries.place[:, None] - torch.arange(self.config.newest, device=queries.place.device)
        known, place = (place >= 0).float(), place.clamp(min=0)
        newest = queries.log[queries.row[:, None], place]
        return self.followers(newest, queries.likeness.gather(1, place), known, own)

    def repeat_bonus(self, queries: LogQueries) -> RepeatBonus:
        """The earlier items, and what is added to the score of each."""
        return self.memory(queries.log, queries.row, queries.place, queries.likeness)

    @torch.no_grad()
    def latent_users(self, encoded: Float[Tensor, "M D"], batch: Batch) -> LatentUsers:
        """The latent users of a history, in the first view, which starts with the slowest decay."""
        if not self.has_latent_users:
            return super().latent_users(encoded, batch)
        ownership = self.same_person.ownership(rows_of(encoded, batch.history))[:, 0].mT * batch.known[:, None, :]
        weight = ownership.sum(dim=-1) + 1e-9  # an empty history gives equal weights
        return LatentUsers(ownership, weight / weight.sum(dim=1, keepdim=True))

    def tensors_for(self, known: Training, place: Longs) -> dict[str, Tensor] | None:
        counts = bool(self.trends.half_lives) or self.blend.counts_events
        return renumber_items(self.state_dict(), torch.from_numpy(place)) if counts else None

    @torch.no_grad()
    def refresh(self, known: Training) -> bool:
        """Count trends, followers and neighbours of newer events; all other parts keep what they learned."""
        counted = self.trends.recount(known, self.config.trending), self.blend.recount(known)
        if not any(counted):
            return False
        self.newer_followers = count_followers(known, self.config.followers).to(self.bias.device)
        # Training pushed the vectors of items without events away from every state: a new item starts as the mean.
        new = torch.as_tensor(known.popularity > 0, device=self.bias.device) & (self.learned == 0)
        self.items[new] = self.items[self.learned > 0].mean(dim=0)
        self.newer.copy_(new)
        return True

    @property
    def is_finished(self) -> bool:
        return self.blend.is_finished

    @torch.no_grad()
    def finish(self, origins: Callable[[], Iterator[Origin]]) -> None:
        """Fit the blend to validation queries, on the learned weights as they are."""
        self.trends.use_all()  # the blend weighs each half-life itself
        self.blend.fit(one for origin in origins() for one in self._learned_at(origin))

    def _learned_at(self, origin: Origin) -> Iterator[LearnedScores]:
        """The learned scores of queries, with the counts known at the time of the query."""
        model = self
        if origin.known is not None:
            model = copy.deepcopy(self)
            model.refresh(origin.known)
        for labelled in origin.queries():
            everything = Domain("all", 0, len(self.bias))
            scores = model.learned_scores(model.items, labelled.batch, everything)
            domain = labelled.among or everything
            yield LearnedScores(scores, model.shares(labelled.batch), labelled.target, domain, model.rankable)

    def fitted(self) -> dict[str, float]:
        return self.trends.fitted() | self.memory.fitted() | self.blend.fitted()

    @torch.no_grad()
    def calibrate(self, validation: Callable[[], Iterator[LabelledBatch]]) -> None:
        """Select the trends by validation MRR@20, then the balance of repeated and new items by NDCG@20.

        MRR hardly distinguishes balances: it depends on the top of the list, and repeats matter below it as well.
        """
        self.memory.reset()  # an earlier calibration must not influence the choice of trends
        self.trends.calibrate(self._scored_without_trends(validation), self.bias)
        self.memory.calibrate(self._rank_inputs(validation))

    def _scored_without_trends(self, validation: Callable[[], Iterator[LabelledBatch]]) -> Iterator[ScoredQueries]:
        for labelled in validation():
            scores, _, repeats = self._score_parts(self.items, labelled.batch)
            scores.scatter_add_(1, repeats.items, repeats.added)
            domain = labelled.among or Domain("all", 0, scores.shape[1])
            yield ScoredQueries(scores, labelled.target, domain, labelled.batch.moment)

    def _rank_inputs(self, validation: Callable[[], Iterator[LabelledBatch]]) -> Iterator[RankInputs]:
        for labelled in validation():
            scores, trends, repeats = self._score_parts(self.items, labelled.batch)
            scores.scatter_add_(1, *trends)
            domain = labelled.among or Domain("all", 0, scores.shape[1])
            repeats, within = repeats.within(domain), scores[:, domain.start : domain.stop]
            target = labelled.target - domain.start
            yield RankInputs.of(within, repeats.items, repeats.bonus, repeats.counts, target, SELECTION_CUTOFF)

    def _score_parts(
        self, encoded: Float[Tensor, "M D"], batch: Batch
    ) -> tuple[Float[Tensor, "B M"], Bonus, RepeatBonus]:
        """The scores of all items from state and transitions, and the bonuses of trends and of repeats."""
        batch = newest_part(batch, self.config.max_length)
        known = batch.length > 0
        states, queries = self.read_at(encoded, batch.history, (batch.length - 1).clamp(min=0))
        states = states * known[:, None]
        (columns, values), repeats = self.transition_bonus(queries), self.repeat_bonus(queries)
        scores = torch.addmm(self.bias, states, encoded.T).scatter_add_(1, columns, values * known[:, None])
        trends = self.trends(batch.moment, self.bias, len(known))
        return scores, trends, replace(repeats, counts=repeats.counts & known[:, None])

"""Simple baselines that count: popularity, trends, recency, transitions, and a mixture of the last two."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightgc2n.baselines.simple import POPULARITY_WEIGHT, SimpleBaseline, sparse_tables
from lightgc2n.config import setting
from lightgc2n.data.batches import MICROSECONDS_A_DAY, Batch, LabelledBatch
from lightgc2n.data.dataset import Domain
from lightgc2n.data.split_types import transition_pairs
from lightgc2n.data.splits import Training
from lightgc2n.layers.sparse import SparseRows, count_pairs
from lightgc2n.metrics.ranking import SELECTION_CUTOFF, reciprocal_rank
from lightgc2n.metrics.ranks import rank_by_counting


class Popularity(SimpleBaseline):
    """The most frequent items."""

    def fill(self, scores: Float[Tensor, "B M"], batch: Batch) -> None:
        """Nothing to add: ties are ordered by popularity."""


class Trending(SimpleBaseline):
    """Recent popularity: an event counts half after each half-life.

    The half-life is selected on validation events. Without times it is popularity.
    """

    HALF_LIVES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, math.inf)  # days

    fitted_tensors = ("chosen",)
    lately: Float[Tensor, "G M"]  # the share of each item for each half-life
    chosen: Int[Tensor, ""]

    @classmethod
    def count(cls, config: Any, train: Training) -> dict[str, Tensor]:
        times = np.zeros(len(train.events), dtype=np.int64) if train.times is None else train.times
        days = (times.max(initial=0) - times) / MICROSECONDS_A_DAY
        weights = (0.5 ** (days / half_life) for half_life in cls.HALF_LIVES)
        lately = np.stack([np.bincount(train.events, weight, minlength=train.items) for weight in weights])
        shares = lately / np.maximum(lately.sum(axis=1, keepdims=True), 1e-9)
        return {"lately": torch.from_numpy(shares), "chosen": torch.tensor(len(cls.HALF_LIVES) - 1)}

    def fill(self, scores: Float[Tensor, "B M"], batch: Batch) -> None:
        scores += self.lately[self.chosen]

    def fitted(self) -> dict[str, float]:
        return {"half-life": self.HALF_LIVES[int(self.chosen)]}

    def refresh(self, known: Training) -> bool:
        self.lately = self.count(self.config, known)["lately"].to(self.lately.device)
        return True

    @torch.no_grad()
    def calibrate(self, validation: Callable[[], Iterator[LabelledBatch]]) -> None:
        """Select the half-life with the best validation MRR@20, the longest of equals."""
        gains = torch.zeros(len(self.HALF_LIVES), dtype=torch.float64, device=self.lately.device)
        for labelled in validation():
            among = labelled.among or Domain("all", 0, self.lately.shape[1])
            tie = self.popularity * POPULARITY_WEIGHT
            scores = (self.lately + tie)[:, among.start : among.stop]
            for half_life, row in enumerate(scores):
                rank = rank_by_counting(row.expand(len(labelled.target), -1), labelled.target - among.start)
                gains[half_life] += reciprocal_rank(rank, SELECTION_CUTOFF).sum()
        self.chosen.fill_(len(gains) - 1 - int(gains.flip(0).argmax()))


class Recency(SimpleBaseline):
    """The items of the history, the newest first."""

    def fill(self, scores: Float[Tensor, "B M"], batch: Batch) -> None:
        row, item, age = newest_events(batch)
        scores[row, item] += 1 / age


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkovConfig:
    """Reach 1 is a first-order Markov chain; a longer reach gives sequential rules."""

    reach: int = setting(
        1, at_least=1, at_most=100, help="Largest distance of a follower in events; one at distance g counts 1/g."
    )


class Markov(SimpleBaseline):
    """The items that most often followed the newest item."""

    settings = MarkovConfig
    steps: SparseRows

    @classmethod
    def count(cls, config: Any, train: Training) -> dict[str, Tensor]:
        before, after, weights = transition_pairs(train, config.reach)
        return sparse_tables("steps", count_pairs(before, after, train.items, train.items, weights))

    def fill(self, scores: Float[Tensor, "B M"], batch: Batch) -> None:
        self.steps.add_rows_to(scores, batch.last)


class AccountMarkov(SimpleBaseline):
    """The items that followed the newest item in the account's own training sequences, then in all.

    A pure look-up: it does well where test transitions occur in training.
    """

    steps: SparseRows
    own_steps: SparseRows  # one row for each pair of account and item, and an empty row for unknown pairs
    own_pairs: Int[Tensor, "P"]

    @classmethod
    def count(cls, config: Any, train: Training) -> dict[str, Tensor]:
        before, after, _ = transition_pairs(train, 1)
        owner = np.repeat(train.sequence_accounts, np.maximum(np.diff(train.offsets) - 1, 0)).astype(np.int64)
        pairs, pair = np.unique(owner * train.items + before, return_inverse=True)
        own = count_pairs(pair, after, len(pairs) + 1, train.items)
        everyone = count_pairs(before, after, train.items, train.items)
        # Below one, so that one transition of the account outranks any number of others.
        everyone.values /= everyone.values.sum() + 1
        return {
            "own_pairs": torch.from_numpy(pairs),
            **sparse_tables("own_steps", own),
            **sparse_tables("steps", everyone),
        }

    def fill(self, scores: Float[Tensor, "B M"], batch: Batch) -> None:
        self.steps.add_rows_to(scores, batch.last)
        wanted = batch.account * scores.shape[1] + batch.last
        place = torch.searchsorted(self.own_pairs, wanted)
        unknown = len(self.own_pairs)
        exists = self.own_pairs[place.clamp(max=max(unknown - 1, 0))] == wanted if unknown else wanted != wanted
        known = exists & (batch.account >= 0)
        self.own_steps.add_rows_to(scores, torch.where(known, place, unknown))


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkovRecencyConfig:
    """The weights are selected on validation events."""

    shrink: float = setting(
        5.0,
        at_least=0.0,
        help="Added to the count of transitions from an item, which shrinks the shares of rare items.",
    )


class MarkovRecency(SimpleBaseline):
    """The share of transitions from the newest item, plus weight / age^fade for the items of the history."""

    settings = MarkovRecencyConfig
    fitted_tensors = ("mixture",)
    steps: SparseRows
    mixture: Float[Tensor, "2"]  # weight, fade

    WEIGHTS = (0.0, 0.005, 0.01, 0.02, 0.035, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
    FADES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)

    @classmethod
    def count(cls, config: Any, train: Training) -> dict[str, Tensor]:
        before, after, _ = transition_pairs(train, 1)
        steps = count_pairs(before, after, train.items, train.items)
        leaving = np.bincount(before, minlength=train.items)
        share = steps.values / torch.from_numpy(np.repeat(leaving, np.diff(steps.offsets.numpy())) + config.shrink)
        return {
            "mixture": torch.tensor([0.05, 0.3], dtype=torch.float64),
            **sparse_tables("steps", SparseRows(steps.offsets, steps.columns, share)),
        }

    def fill(self, scores: Float[Tensor, "B M"], batch: Batch) -> None:
        self.steps.add_rows_to(scores, batch.last)
        row, item, age = newest_events(batch)
        weight, fade = self.mixture
        scores[row, item] += weight / age.pow(fade)

    def fitted(self) -> dict[str, float]:
        weight, fade = self.mixture.tolist()
        return {"weight": weight, "fade": fade}

    @torch.no_grad()
    def calibrate(self, validation: Callable[[], Iterator[LabelledBatch]]) -> None:
        """Select the weight and the fade with the best validation MRR@20."""
        grid = [(weight, fade) for weight in self.WEIGHTS for fade in self.FADES]
        gains = torch.zeros(len(grid), dtype=torch.float64)
        for labelled in validation():  # without any, the defaults stay
            search = _GridSearch(self, labelled)
            gains += torch.stack([search.gain(weight, fade) for weight, fade in grid]).cpu()
        if gains.any():
            self.mixture.copy_(torch.tensor(grid[int(gains.argmax())], dtype=torch.float64))


class _GridSearch:
    """One batch of validation queries, prepared so that the MRR of any weights is fast to compute.

    Only the scores of items of the history depend on the weights. All other items with a transition from the newest
    item are sorted once and counted by bisection. Items with neither always rank below.
    """

    def __init__(self, baseline: MarkovRecency, labelled: LabelledBatch) -> None:
        items = len(baseline.popularity)
        self.queries, tie = len(labelled.target), baseline.popularity * POPULARITY_WEIGHT
        row, place = baseline.steps.expand(labelled.batch.last)
        ranked = _is_ranked(baseline.steps.columns[place], labelled.among)
        row, place = row[ranked], place[ranked]
        step_key = row * items + baseline.steps.columns[place]
        step_score = baseline.steps.values[place] + tie[baseline.steps.columns[place]]
        self.row, item, self.age = newest_events(labelled.batch)
        ranked = _is_ranked(item, labelled.among)
        self.row, item, self.age = self.row[ranked], item[ranked], self.age[ranked]
        own_key = self.row * items + item
        self.base = _look_up(step_key, step_score, own_key, missing=tie[item])
        still = ~torch.isin(step_key, own_key)
        self.sorted_scores = (2 * row[still] + step_score[still]).sort().values  # a share never reaches 2
        self.ends = torch.searchsorted(
            self.sorted_scores, 2.0 * torch.arange(1, self.queries + 1, device=row.device).double()
        )
        target_key = torch.arange(self.queries, device=row.device) * items + labelled.target
        self.target_base = _look_up(step_key, step_score, target_key, missing=tie[labelled.target])
        self.target_age = _look_up(own_key, self.age, target_key, missing=torch.full_like(self.target_base, torch.inf))
        self.has_step = torch.isin(target_key, step_key)

    def gain(self, weight: float, fade: float) -> Float[Tensor, ""]:
        """The summed reciprocal ranks within the first 20."""
        moved = self.base + weight / self.age.pow(fade)
        bonus = torch.where(self.target_age.isfinite(), weight / self.target_age.pow(fade), 0.0)
        own = self.target_base + bonus
        position = 2 * torch.arange(self.queries, device=own.device) + own.clamp(max=1.5)
        # Ties share their ranks: each counts half. The target itself is one of them.
        above = (
            2 * self.ends
            - torch.searchsorted(self.sorted_scores, position)
            - torch.searchsorted(self.sorted_scores, position, right=True)
        )
        against = (moved > own[self.row]).double() + (moved >= own[self.row]).double()
        rank = 0.5 + above.double().index_add(0, self.row, against) / 2
        has_score = self.has_step | (self.target_age.isfinite() & (weight > 0))
        return torch.where(has_score, reciprocal_rank(rank, SELECTION_CUTOFF), 0.0).sum()


def _is_ranked(item: Int[Tensor, "N"], among: Domain | None) -> Bool[Tensor, "N"]:
    """Whether the target is ranked among these items."""
    if among is None:
        return torch.ones_like(item, dtype=torch.bool)
    return (item >= among.start) & (item < among.stop)


def _look_up(
    keys: Int[Tensor, "K"], values: Float[Tensor, "K"], wanted: Int[Tensor, "Q"], missing: Float[Tensor, "Q"]
) -> Float[Tensor, "Q"]:
    """The value of each wanted key; keys are sorted."""
    if len(keys) == 0:
        return missing
    place = torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)
    return torch.where(keys[place] == wanted, values[place], missing)


def newest_events(batch: Batch) -> tuple[Int[Tensor, "E"], Int[Tensor, "E"], Float[Tensor, "E"]]:
    """The distinct items of each history: the row, the item, and the age of its newest event (1 for the last event)."""
    row, place = torch.nonzero(batch.known, as_tuple=True)
    item = batch.history[row, place]
    key, order = torch.sort(row * (batch.history.max() + 1) + item, stable=True)
    newest = torch.ones_like(key, dtype=torch.bool)
    newest[:-1] = key[1:] != key[:-1]
    distinct = order[newest]
    return row[distinct], item[distinct], (batch.length[row[distinct]] - place[distinct]).double()

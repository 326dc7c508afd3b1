"""Floors that count: popularity, recency, what follows what, and a mixture of the last two."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightgc2n.baselines.floor import POPULARITY_WEIGHT, Floor, sparse_tables
from lightgc2n.config import setting
from lightgc2n.data.batches import MICROSECONDS_A_DAY, Asked, Batch
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import Training
from lightgc2n.graph.steps import steps_within
from lightgc2n.layers.ranking import rank_by_counting
from lightgc2n.layers.sparse import SparseRows, count_pairs


class Popularity(Floor):
    """The items that occur most often."""

    def fill(self, scores: Float[Tensor, "B M"], batch: Batch) -> None:
        """Popularity is what every floor starts from."""


class Trending(Floor):
    """What everybody has lately: how often an item came, an event counting half after each half-life.

    The half-life is fitted on validation events. Without times it is popularity.
    """

    HALF_LIVES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, math.inf)  # days

    lately: Float[Tensor, "G M"]  # for each half-life the share of each item
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
    def calibrate(self, validation: Callable[[], Iterator[Asked]]) -> None:
        """Takes the half-life with the best MRR@20 on the validation events; of equals the longest."""
        gains = torch.zeros(len(self.HALF_LIVES), dtype=torch.float64, device=self.lately.device)
        for asked in validation():
            among = asked.among or Domain("all", 0, self.lately.shape[1])
            tie = self.popularity * POPULARITY_WEIGHT
            scores = (self.lately + tie)[:, among.start : among.stop]
            for half_life, row in enumerate(scores):
                rank = rank_by_counting(row.expand(len(asked.target), -1), asked.target - among.start)
                gains[half_life] += torch.where(rank <= 20, 1 / rank, 0.0).sum()
        self.chosen.fill_(len(gains) - 1 - int(gains.flip(0).argmax()))


class Recency(Floor):
    """The account's own items, the newest first."""

    def fill(self, scores: Float[Tensor, "B M"], batch: Batch) -> None:
        row, item, age = newest_events(batch)
        scores[row, item] += 1 / age


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkovConfig:
    """First-order Markov with reach 1; sequential rules with a longer one."""

    reach: int = setting(1, at_least=1, at_most=100, help="Steps ahead that count; the g-th counts 1/g.")


class Markov(Floor):
    """What most often followed the newest item."""

    settings = MarkovConfig
    steps: SparseRows

    @classmethod
    def count(cls, config: Any, train: Training) -> dict[str, Tensor]:
        before, after, weights = steps_within(train, config.reach)
        return sparse_tables("steps", count_pairs(before, after, train.items, train.items, weights))

    def fill(self, scores: Float[Tensor, "B M"], batch: Batch) -> None:
        self.steps.add_rows_to(scores, batch.last)


class AccountMarkov(Floor):
    """What followed the newest item in the account's own training sequences, then in all.

    A pure look-up: where it does well, test steps stand in training.
    """

    steps: SparseRows
    own_steps: SparseRows  # one row for each pair of account and item, and an empty one for unknown pairs
    own_pairs: Int[Tensor, "P"]

    @classmethod
    def count(cls, config: Any, train: Training) -> dict[str, Tensor]:
        before, after, _ = steps_within(train, 1)
        owner = np.repeat(train.sequence_accounts, np.maximum(np.diff(train.offsets) - 1, 0)).astype(np.int64)
        pairs, pair = np.unique(owner * train.items + before, return_inverse=True)
        own = count_pairs(pair, after, len(pairs) + 1, train.items)
        everyone = count_pairs(before, after, train.items, train.items)
        # Below one, so that a step of the account's own outranks any number of steps of others.
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
        found = self.own_pairs[place.clamp(max=max(unknown - 1, 0))] == wanted if unknown else wanted != wanted
        known = found & (batch.account >= 0)
        self.own_steps.add_rows_to(scores, torch.where(known, place, unknown))


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkovRecencyConfig:
    """The weights are fitted on validation events."""

    shrink: float = setting(5.0, at_least=0.0, help="Imagined steps to nowhere: rare items' steps count less.")


class MarkovRecency(Floor):
    """The share of steps from the newest item, plus weight / age^fade for the account's own items."""

    settings = MarkovRecencyConfig
    steps: SparseRows
    mixture: Float[Tensor, "2"]  # weight, fade

    WEIGHTS = (0.0, 0.005, 0.01, 0.02, 0.035, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
    FADES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)

    @classmethod
    def count(cls, config: Any, train: Training) -> dict[str, Tensor]:
        before, after, _ = steps_within(train, 1)
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
    def calibrate(self, validation: Callable[[], Iterator[Asked]]) -> None:
        """Takes the weight and the fade with the best MRR@20 on the validation events."""
        grid = [(weight, fade) for weight in self.WEIGHTS for fade in self.FADES]
        gains = torch.zeros(len(grid), dtype=torch.float64)
        for asked in validation():  # none leaves the defaults as they are
            ladder = _Ladder(self, asked)
            gains += torch.stack([ladder.gain(weight, fade) for weight, fade in grid]).cpu()
        if gains.any():
            self.mixture.copy_(torch.tensor(grid[int(gains.argmax())], dtype=torch.float64))


class _Ladder:
    """One batch of validation events, laid out so that any weights are judged in a moment.

    Only items of the history move with the weights; all other items with a step from the newest item keep their
    score, so they are sorted once and counted by bisection. Items with neither stand below whatever the weights are.
    """

    def __init__(self, floor: MarkovRecency, asked: Asked) -> None:
        items = len(floor.popularity)
        self.queries, tie = len(asked.target), floor.popularity * POPULARITY_WEIGHT
        row, place = floor.steps.expand(asked.batch.last)
        ranked = _is_ranked(floor.steps.columns[place], asked.among)
        row, place = row[ranked], place[ranked]
        step_key = row * items + floor.steps.columns[place]
        step_score = floor.steps.values[place] + tie[floor.steps.columns[place]]
        self.row, item, self.age = newest_events(asked.batch)
        ranked = _is_ranked(item, asked.among)
        self.row, item, self.age = self.row[ranked], item[ranked], self.age[ranked]
        own_key = self.row * items + item
        self.base = _look_up(step_key, step_score, own_key, missing=tie[item])
        still = ~torch.isin(step_key, own_key)
        self.rungs = (2 * row[still] + step_score[still]).sort().values  # a share never reaches 2
        self.ends = torch.searchsorted(self.rungs, 2.0 * torch.arange(1, self.queries + 1, device=row.device).double())
        target_key = torch.arange(self.queries, device=row.device) * items + asked.target
        self.target_base = _look_up(step_key, step_score, target_key, missing=tie[asked.target])
        self.target_age = _look_up(own_key, self.age, target_key, missing=torch.full_like(self.target_base, torch.inf))
        self.has_step = torch.isin(target_key, step_key)

    def gain(self, weight: float, fade: float) -> Float[Tensor, ""]:
        """The summed reciprocal ranks within the first 20."""
        moved = self.base + weight / self.age.pow(fade)
        bonus = torch.where(self.target_age.isfinite(), weight / self.target_age.pow(fade), 0.0)
        own = self.target_base + bonus
        rung = 2 * torch.arange(self.queries, device=own.device) + own.clamp(max=1.5)
        # Equal scores share their places: each counts half. The target itself is one of them.
        above = 2 * self.ends - torch.searchsorted(self.rungs, rung) - torch.searchsorted(self.rungs, rung, right=True)
        against = (moved > own[self.row]).double() + (moved >= own[self.row]).double()
        rank = 0.5 + above.double().index_add(0, self.row, against) / 2
        in_sight = self.has_step | (self.target_age.isfinite() & (weight > 0))
        return torch.where(in_sight & (rank <= 20), 1 / rank, 0.0).sum()


def _is_ranked(item: Int[Tensor, "N"], among: Domain | None) -> Bool[Tensor, "N"]:
    """Whether each item is one that the target is ranked among."""
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
    """Each item of each history once: the row, the item, and the age of its newest event (1 for the last event)."""
    row, place = torch.nonzero(batch.known, as_tuple=True)
    item = batch.history[row, place]
    key, order = torch.sort(row * (batch.history.max() + 1) + item, stable=True)
    newest = torch.ones_like(key, dtype=torch.bool)
    newest[:-1] = key[1:] != key[:-1]
    kept = order[newest]
    return row[kept], item[kept], (batch.length[row[kept]] - place[kept]).double()

"""Nearest-neighbour baselines: items that occur in the same sequences, and sequences that share items.

Shapes: B batch, M items, N training sequences, K neighbours.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from lightgc2n.baselines.counting import newest_events
from lightgc2n.baselines.simple import SimpleBaseline, sparse_tables
from lightgc2n.config import setting
from lightgc2n.data.batches import Batch, LabelledBatch
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import Training
from lightgc2n.layers.sparse import SparseRows, count_pairs
from lightgc2n.metrics.ranking import SELECTION_CUTOFF, reciprocal_rank
from lightgc2n.metrics.ranks import rank_by_counting

QUERIES_PER_DOMAIN = 2_000
PAIRS_AT_ONCE = 4_000_000
CELLS_AT_ONCE = 4_000_000
TIE_BREAK = 1e-9
DECIMALS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemKnnConfig:
    """Cosine similarity of the sets of sequences of two items, damped for rare items."""

    neighbours: int = setting(100, at_least=1, help="Most similar items kept for each item.")
    damping: float = setting(20.0, at_least=0.0, help="Added to each item's count in the similarity.")
    fade: float = setting(
        0.8,
        at_least=0.0,
        at_most=1.0,
        help="Weight of an event relative to the one after it, where no validation events choose it.",
    )
    longest: int = setting(500, at_least=2, help="Newest distinct items of a sequence that count.")


class ItemKnn(SimpleBaseline):
    """Items similar to those of the history; newer items count more."""

    settings = ItemKnnConfig
    fitted_tensors = ("fade",)
    likeness: SparseRows
    fade: Float[Tensor, ""]

    FADES = (0.02, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 1.0)

    @classmethod
    def count(cls, config: Any, train: Training) -> dict[str, Tensor]:
        row, item = distinct_items(train, config.longest)
        support = np.bincount(item, minlength=train.items) + config.damping
        together = _together(row, item, train.items)
        left = np.repeat(np.arange(train.items), np.diff(together.offsets.numpy()))
        right = together.columns.numpy()
        likeness = together.values.numpy() / np.sqrt(support[left] * support[right])
        itself = left == right
        # The similarity of an item to itself is its share of immediate repeats, so that data decides on repeats.
        likeness[itself] = _self_step_share(train)[left[itself]]
        nearest = _largest_per_row(left, likeness, config.neighbours)
        table = count_pairs(left[nearest], right[nearest], train.items, train.items, likeness[nearest])
        return {"fade": torch.tensor(config.fade, dtype=torch.float64), **sparse_tables("likeness", table)}

    def fitted(self) -> dict[str, float]:
        return {"fade": float(self.fade)}

    @torch.no_grad()
    def calibrate(self, validation: Callable[[], Iterator[LabelledBatch]]) -> None:
        """Select the fade with the best MRR@20 on the first validation events of each domain."""
        gains, queries_so_far = torch.zeros(len(self.FADES), dtype=torch.float64), Counter[Domain | None]()
        for labelled in validation():
            if queries_so_far[labelled.among] < QUERIES_PER_DOMAIN:
                queries_so_far[labelled.among] += len(labelled.target)
                among = labelled.among or Domain("all", 0, len(self.popularity))
                for number, fade in enumerate(self.FADES):
                    self.fade.fill_(fade)
                    rank = rank_by_counting(self.scores(None, labelled.batch, among), labelled.target - among.start)
                    gains[number] += reciprocal_rank(rank, SELECTION_CUTOFF).sum().cpu()
        self.fade.fill_(self.FADES[int(gains.argmax())] if gains.any() else self.config.fade)

    def fill(self, scores: Float[Tensor, "B M"], batch: Batch) -> None:
        age = (batch.length[:, None] - 1 - torch.arange(batch.history.shape[1], device=scores.device)).clamp(min=0)
        weight = torch.where(batch.known, self.fade.to(scores.dtype).pow(age), 0.0)
        strong = weight > 1e-6  # older events cannot change the order
        owner, column = torch.nonzero(strong, as_tuple=True)
        event, place = self.likeness.expand(batch.history[owner, column])
        values = self.likeness.values[place] * weight[owner, column][event]
        scores.view(-1).index_add_(0, owner[event] * scores.shape[1] + self.likeness.columns[place], values)
        _round(scores)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionKnnConfig:
    """VSKNN: newer items of the history count more, both in the search for neighbours and in the scores."""

    neighbours: int = setting(100, at_least=1, help="Most similar training sequences used.")
    rarity: float = setting(0.0, at_least=0.0, help="Weight of an item's rarity in the score.")
    vector: bool = setting(True, help="Query items weigh position / length; otherwise all weigh the same (SKNN).")


class SessionKnn(SimpleBaseline):
    """Items of the training sequences that are most similar to the history."""

    settings = SessionKnnConfig
    rows: SparseRows  # sequence -> its distinct items
    lengths: Float[Tensor, "N"]
    rarity: Float[Tensor, "M"]

    @classmethod
    def count(cls, config: Any, train: Training) -> dict[str, Tensor]:
        row, item = distinct_items(train)
        support = np.bincount(item, minlength=train.items)
        rows = count_pairs(row, item, train.sequences, train.items)
        return {
            "lengths": torch.from_numpy(np.maximum(np.diff(rows.offsets.numpy()), 1).astype(np.float64)),
            "rarity": torch.from_numpy(np.log(max(train.sequences, 1) / np.maximum(support, 1))),
            **sparse_tables("rows", rows),
        }

    def fill(self, scores: Float[Tensor, "B M"], batch: Batch) -> None:
        # The similarity matrix is N x B: queries are scored in blocks that keep it small.
        size = max(1, CELLS_AT_ONCE // max(1, len(self.lengths)))
        for first in range(0, len(scores), size):
            part = slice(first, first + size)
            self._fill(scores[part], Batch(batch.account[part], batch.history[part], batch.length[part]))

    def _fill(self, scores: Float[Tensor, "B M"], batch: Batch) -> None:
        row, own, age = newest_events(batch)
        youth = torch.zeros_like(scores)  # 1 / age of the history's items
        youth[row, own] = 1 / age
        weight = self._query_weights(youth, batch)
        norm = weight.square().sum(dim=1).sqrt()
        likeness = self.rows.times(weight.T.contiguous()) / (norm * self.lengths.sqrt()[:, None])
        # Of equally similar sequences the earlier is taken, whatever else is in the batch.
        likeness -= torch.arange(len(likeness), device=scores.device)[:, None] * (TIE_BREAK / len(likeness))
        best, neighbour = likeness.topk(min(self.config.neighbours, len(self.lengths)), dim=0)
        pair, place = self.rows.expand(neighbour.T.reshape(-1))
        query = pair // len(neighbour)
        item = self.rows.columns[place]
        shared = youth[query, item]
        # 1 / step: how near the end of the query the newest shared item lies.
        decay = torch.zeros(neighbour.numel(), dtype=scores.dtype, device=scores.device)
        decay = decay.scatter_reduce_(0, pair, shared, "amax") if self.config.vector else torch.ones_like(decay)
        strength = (best.T.reshape(-1) * decay)[pair] * (1 + self.config.rarity * self.rarity[item])
        scores.view(-1).index_add_(0, query * scores.shape[1] + item, strength)
        _round(scores)

    def _query_weights(self, youth: Float[Tensor, "B M"], batch: Batch) -> Float[Tensor, "B M"]:
        if not self.config.vector:
            return (youth > 0).to(youth.dtype)
        length = batch.length[:, None].to(youth.dtype)
        return torch.where(youth > 0, (length + 1 - 1 / youth) / length, 0.0)


def _round(scores: Float[Tensor, "B M"]) -> None:
    """Round the scores, so that ties do not depend on the order of summation, which varies on a GPU."""
    torch.round(scores, decimals=DECIMALS, out=scores)


def distinct_items(train: Training, newest: int | None = None) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The distinct pairs (sequence, item); with `newest`, only the last so many items of each sequence."""
    row = np.repeat(np.arange(train.sequences, dtype=np.int64), np.diff(train.offsets))
    keys = row * train.items + train.events
    if newest is None:
        keys = np.unique(keys)
        return keys // train.items, keys % train.items
    backwards, first = np.unique(keys[::-1], return_index=True)  # the newest event of the pair
    order = np.lexsort((first, backwards // train.items))
    row, item = backwards[order] // train.items, backwards[order] % train.items
    start = np.searchsorted(row, np.arange(train.sequences))
    recent = np.arange(len(row)) - start[row] < newest
    return row[recent], item[recent]


def _together(row: npt.NDArray[np.int64], item: npt.NDArray[np.int64], items: int) -> SparseRows:
    """The number of sequences that contain both items of a pair, including pairs of an item with itself."""
    start = np.searchsorted(row, np.arange(int(row.max(initial=-1)) + 2))
    size = np.diff(start)
    totals: dict[str, npt.NDArray[Any]] = {"keys": np.empty(0, np.int64), "counts": np.empty(0, np.int64)}
    bounds = np.concatenate([[0], np.cumsum(size**2)])
    first = 0
    while first < len(size):  # in slices of sequences, because all pairs at once may not fit
        last = max(first + 1, int(np.searchsorted(bounds, bounds[first] + PAIRS_AT_ONCE, side="right")) - 1)
        owner = np.repeat(np.arange(first, last), size[first:last] ** 2)
        within = np.arange(len(owner)) - (bounds[owner] - bounds[first])
        left = item[start[owner] + within // size[owner]]
        right = item[start[owner] + within % size[owner]]
        keys, counts = np.unique(left * items + right, return_counts=True)
        merged, place = np.unique(np.concatenate([totals["keys"], keys]), return_inverse=True)
        weights = np.concatenate([totals["counts"], counts])
        totals = {"keys": merged, "counts": np.bincount(place, weights=weights).astype(np.int64)}
        first = last
    keys = totals["keys"]
    return count_pairs(keys // items, keys % items, items, items, totals["counts"].astype(np.float64))


def _self_step_share(train: Training) -> npt.NDArray[np.float64]:
    before, after = train.steps
    leaving = np.bincount(before, minlength=train.items)
    return np.bincount(before[before == after], minlength=train.items) / np.maximum(leaving, 1)


def _largest_per_row(row: npt.NDArray[np.int64], value: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.int64]:
    """The places of the `count` largest values of each row."""
    order = np.lexsort((-value, row))
    start = np.searchsorted(row[order], row[order])
    return order[np.arange(len(order)) - start < count]

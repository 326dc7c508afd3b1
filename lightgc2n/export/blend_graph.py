"""The graph of the blend: learned scores joined with counted shares, for the one query after the newest event.

The best items of the learned model and the items that sources name are blended; each of them has one slot. All other
items rank below them, in the learned order.
Shapes: B batch, T newest events, M items, C items that sources name, S sources, L newest events whose followers and
neighbours count, K followers or neighbours kept.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from lightgc2n.export.onnx_builder import (
    BOOL,
    FLOAT,
    INT32,
    INT64,
    LAST,
    NOTHING,
    Array,
    Events,
    Graph,
    Tables,
    Value,
    array,
    concat,
    where,
)
from lightgc2n.models.plus.blend import (
    BEHIND,
    FOLLOWER_FADE,
    FREQUENCY_FADE,
    HISTORY_SOURCES,
    LEARNED_CANDIDATES,
    LEAST_LOG,
    LEAST_SHARE,
    NEIGHBOUR_FADE,
    NEWEST,
    OWN_REACH,
    SCALES,
    Blend,
)
from lightgc2n.models.plus.plus import LightGC2NPlus
from lightgc2n.models.plus.transitions import SHRINKAGE, NoTransitions, PairCounts
from lightgc2n.models.plus.trends import Trends

Bonus = tuple[Value, Value]  # items [B, C], and what is added to the score of each
CODES, FEWEST_CODES = 256, 16  # codes of a byte, and the fewest that counts need
FALL = 0.85  # ratio of the shares of two consecutive codes
LOWEST_FALL = 1e-3  # smallest coded share, relative to the largest of a row; more codes only make smaller steps
SMALLEST_SUM = 1e-9
FOLLOWER, FOLLOWERS, NEIGHBOURS, OWN, RECENCY, FREQUENCY = range(1, len(HISTORY_SOURCES) + 1)
FIRST_TREND = len(HISTORY_SOURCES) + 1


@dataclass(frozen=True)
class Source:
    """Shares of items; an item that stands more than once has their sum, or the largest of them."""

    number: int  # as in `Blend.mixture`, where the learned score has 0
    shares: Value  # [B, W]
    largest: bool = False  # then the shares are divided by the sum over all items


@dataclass(frozen=True)
class Evidence:
    """Items, and their shares by each source."""

    items: Value  # [B, W]
    sources: Sequence[Source]


def write_blend(graph: Graph, tables: Tables, model: LightGC2NPlus, learned: Value, history: Value) -> Value:
    """The blended scores of all items, [B, M].

    Args:
        learned: the scores of the model without the blend, [B, M].
    """
    assert isinstance(model.blend, Blend)
    joining = Joining(model.blend, learned, _rankable(graph, model))
    best = joining.best(min(LEARNED_CANDIDATES, len(model.bias)))
    evidence = list(_evidence(graph, tables, model, history))
    columns = concat([best, *(one.items for one in evidence)], 1)
    slots = Slots.of(columns, learned)
    numbers, shares = slots.shares(evidence, best.size(1))
    is_best = slots.marked(best.size(1))
    return joining.scores(columns, slots, numbers, shares, is_best)


def write_leaving(tables: Tables, model: LightGC2NPlus) -> Value | None:
    """How often each item was followed, where the blend counts followers as the model itself does."""
    if model.newer_followers is not None or isinstance(model.followers, NoTransitions):
        return None
    return _totals(tables, "followers.leaving", array(model.followers.leaving))


def _totals(tables: Tables, name: str, totals: Array) -> Value:
    """A count for each item, in as few bytes as whole numbers need; become floats when the graph is loaded."""
    if (totals % 1).any():
        return tables.numbers(name, totals)
    return tables.graph.weight(name, totals.astype(np.min_scalar_type(int(totals.max(initial=0))))).cast(FLOAT)


def _evidence(graph: Graph, tables: Tables, model: LightGC2NPlus, history: Value) -> Iterator[Evidence]:
    """The evidence of each group of sources; the history is last, since its length varies."""
    longest = model.config.max_length
    newest = min(NEWEST, longest)
    # As many columns as the newest events take, however short the history is.
    events = Events.of(graph.add("Pad", history, [0, newest - 1, 0, 0], NOTHING)).newest(longest)
    recent = events.newest(newest)
    followers = model.newer_followers or model.followers.pair_counts
    if bool((followers.counts > 0).any()):
        # Newer counts are the blend's own; as long as there are none, it shares those that the model learned with.
        own = "followers" if model.newer_followers is None else "newer_followers"
        yield _followers(tables, followers, recent, newest, own)
    if isinstance(model.blend, Blend) and bool((model.blend.counts > 0).any()):
        yield _neighbours(tables, model.blend.neighbours, recent, newest)
    if isinstance(model.trends, Trends):
        yield _trends(tables, model.trends, recent)
    yield Evidence(events.items, list(_history(graph, events, longest)))


def _followers(tables: Tables, counted: PairCounts, recent: Events, newest: int, name: str) -> Evidence:
    pairs = Pairs(array(counted.columns), array(counted.counts), name)
    items, counts, there = pairs.after(tables.graph, tables.int8, recent.items)
    total = _totals(tables, f"{name}.leaving", array(counted.total)).gather(recent.items)
    shares = counts * there / (total + SHRINKAGE).unsqueeze(2)
    last = _one_row(shares.slice(-1, LAST, 1) * recent.there.slice(-1, LAST, 1).unsqueeze(2), pairs.most)
    # Only the followers of the newest event, the last columns, count here.
    nothing = [0, (newest - 1) * pairs.most, 0, 0]
    alone = tables.graph.add("Pad", last, nothing, 0.0)
    faded = _one_row(shares * _fading(recent, FOLLOWER_FADE, newest), newest * pairs.most)
    return Evidence(_one_row(items, newest * pairs.most), [Source(FOLLOWER, alone), Source(FOLLOWERS, faded)])


def _neighbours(tables: Tables, counted: PairCounts, recent: Events, newest: int) -> Evidence:
    shares = array(counted.counts / (counted.total + SHRINKAGE)[:, None])
    top = shares.max(axis=1)
    if tables.int8:
        shares = np.where(shares > 0, np.maximum(shares / np.maximum(top, SMALLEST_SUM)[:, None], _lowest(len(top))), 0)
    pairs = Pairs(array(counted.columns), shares, "neighbours", FEWEST_CODES)
    items, near, there = pairs.after(tables.graph, tables.int8, recent.items)
    near = near * there
    if tables.int8:
        near = near * tables.numbers("neighbours.top", top).gather(recent.items).unsqueeze(2)
    width = newest * pairs.most
    faded = _one_row(near * _fading(recent, NEIGHBOUR_FADE, newest), width)
    return Evidence(_one_row(items, width), [Source(NEIGHBOURS, faded)])


def _lowest(items: int) -> float:
    """The smallest part of its row's largest share that a neighbour can have, so that codes are close enough."""
    codes = room_in_bytes(items, FEWEST_CODES)[2]
    return max(FALL ** (codes - 1), LOWEST_FALL)


def _fading(recent: Events, fade: float, newest: int) -> Value:
    """The weight of each of the newest events, [B, L, 1]; the newest stands last."""
    by_age = (fade ** np.arange(newest - 1, -1, -1)).astype(np.float32)
    weight = recent.there * recent.there.graph.constant(by_age)
    return (weight / weight.sum(1, keep=True).at_least(SMALLEST_SUM)).unsqueeze(2)


def _one_row(pairs: Value, width: int) -> Value:
    return pairs.reshape(0, width)


def _trends(tables: Tables, trends: Trends, recent: Events) -> Evidence:
    """The frequent items of the last snapshot; no history is newer."""
    rates = array(trends.rates[-1]).T
    shares = rates / np.maximum(rates.sum(axis=1, keepdims=True), SMALLEST_SUM)
    real = (rates > 0).any(axis=0) | (np.arange(rates.shape[1]) == 0)  # one at least
    nobody = recent.items.slice(0, 1, 1) * 0  # [B, 1]
    items = tables.graph.weight("trends.items", array(trends.columns[-1])[real].astype(np.int32)).cast(INT64)
    table, zero = tables.numbers("trends.shares", shares[:, real]), nobody.cast(FLOAT)
    rows = [table.slice(number, number + 1, 0) + zero for number in range(len(rates))]
    return Evidence(items + nobody, [Source(FIRST_TREND + number, row) for number, row in enumerate(rows)])


def _history(graph: Graph, events: Events, longest: int) -> Iterator[Source]:
    """The items of the history by what came before them, by how new and by how frequent they are."""
    same = events.numbers.equal(events.numbers.slice(-1, LAST, 1)).cast(FLOAT) * events.there
    # What comes g events after an earlier occurrence of the newest item counts 1 / g.
    by_gap = np.array([[[*(1 / gap for gap in range(OWN_REACH, 0, -1)), 0]]], dtype=np.float32)
    following = graph.add("Conv", same.unsqueeze(1), graph.constant(by_gap), pads=[OWN_REACH, 0]).squeeze(1)
    yield Source(OWN, following / (following.sum(1, keep=True) + 1.0))
    ages = np.arange(longest, 0, -1, dtype=np.float32)
    age = graph.weight("memory.ages", ages).slice(events.numbers.size(1) * -1, LAST, 0)
    yield Source(RECENCY, events.there / age, largest=True)
    often = events.there * graph.add("Pow", age, -FREQUENCY_FADE)
    yield Source(FREQUENCY, often / often.sum(1, keep=True).at_least(SMALLEST_SUM))


@dataclass(frozen=True)
class Slots:
    """A slot for each item: the last column that holds it."""

    of_column: Value  # [B, C]
    empty: Value  # zeros, [B, C]

    @classmethod
    def of(cls, columns: Value, dense: Value) -> "Slots":
        """The slots of the items in `columns`; only the shape of `dense` is used, [B, M]."""
        graph = columns.graph
        number = graph.add("Range", 0, columns.size(1).reshape(), 1).cast(FLOAT)
        empty = columns.cast(FLOAT) * 0.0
        named = graph.add("ScatterElements", dense, columns, empty + number, axis=1)
        return cls(graph.add("GatherElements", named, columns, axis=1).cast(INT64), empty)

    def marked(self, count: Value) -> Value:
        """1 in the slots of the items of the first `count` columns, 0 in all others, [B, C]."""
        first = self.of_column.slice(0, count, 1)
        return first.graph.add("ScatterElements", self.empty, first, first.cast(FLOAT) * 0.0 + 1.0, axis=1)

    def shares(self, evidence: Sequence[Evidence], start: Value) -> tuple[list[int], Value]:
        """The number of each source, and the shares of the items by each of them, [B, S, C].

        Args:
            start: the first column of the evidence.
        """
        spread: dict[int, Value] = {}
        for one in evidence:
            stop = one.items.size(1) + start
            slots = self.of_column.slice(start, stop, 1)
            spread |= {source.number: self._spread(source, slots) for source in one.sources}
            start = stop
        return list(spread), concat([share.unsqueeze(1) for share in spread.values()], 1)

    def _spread(self, source: Source, slots: Value) -> Value:
        kind = "max" if source.largest else "add"
        spread = slots.graph.add("ScatterElements", self.empty, slots, source.shares, axis=1, reduction=kind)
        return spread / spread.sum(1, keep=True).at_least(SMALLEST_SUM) if source.largest else spread


class Joining:
    """The formula of `Blend.forward`, for the best items of the learned model and for those that sources name."""

    def __init__(self, blend: Blend, learned: Value, rankable: Value | None) -> None:
        """Of learned scores.

        Args:
            rankable: a flag for each item, or none where all items can be ranked.
        """
        self.graph, self.blend, self.rankable = learned.graph, blend, rankable
        if rankable is not None:
            learned = where(rankable, learned, -np.inf)
        self.logarithm = self.graph.add("LogSoftmax", learned, axis=-1)

    def best(self, count: int) -> Value:
        """The best items of the learned model, [B, count]."""
        return self.graph.add_many("TopK", 2, self.logarithm, [count], axis=1)[1]

    def scores(self, columns: Value, slots: Slots, numbers: list[int], shares: Value, is_best: Value) -> Value:
        """The scores of all items, [B, M]: blended for those in `columns`, and behind these for all others."""
        own = self.graph.add("GatherElements", self.logarithm, columns, axis=1)
        alone, mixed = own.at_least(LEAST_LOG), self._weighted(self.blend.mixture[numbers], shares)
        blended = alone * float(self.blend.weights[0]) + self._counted(numbers, shares)
        blended = blended + self._mixed(own.apply("Exp"), mixed)
        blended = where(self.graph.add("Greater", shares.max(1) + is_best, 0.0), blended, alone - BEHIND)
        if self.rankable is not None:
            blended = where(self.rankable.gather(columns), blended, alone - BEHIND)
        blended = self.graph.add("GatherElements", blended, slots.of_column, axis=1)
        others = self.logarithm.at_least(LEAST_LOG) - BEHIND
        return self.graph.add("ScatterElements", others, columns, blended, axis=1)

    def _counted(self, numbers: list[int], shares: Value) -> Value:
        """The weighted logarithms of the shares, at each scale."""
        resolved = concat([shares * (1 / scale) for scale in SCALES], 1)
        places = [2 * number - 1 + scale for scale in range(len(SCALES)) for number in numbers]
        return self._weighted(self.blend.weights[places], (resolved + 1.0).apply("Log"))

    def _mixed(self, own: Value, counted: Value) -> Value:
        total = own * float(self.blend.mixture[0]) + counted + LEAST_SHARE
        return total.apply("Log") * float(self.blend.weights[-1])

    def _weighted(self, weights: Tensor, shares: Value) -> Value:
        """The sum over sources, [B, C]."""
        return self.graph.add("MatMul", array(weights)[None], shares).squeeze(1)


def _rankable(graph: Graph, model: LightGC2NPlus) -> Value | None:
    """A flag for each item, eight in a byte; taken apart when the graph is loaded."""
    flags = array(model.rankable)
    if flags.all():
        return None
    places = graph.constant(2 ** np.arange(8, dtype=np.int32))
    bits = graph.weight("blend.rankable", np.packbits(flags, bitorder="little")).cast(INT32).unsqueeze(1) / places
    bits = graph.add("Mod", bits, graph.constant(np.array(2, dtype=np.int32)))
    return bits.reshape(-1).slice(0, len(flags), 0).cast(BOOL)


class Pairs:
    """The followers of all items in one array, without padding."""

    def __init__(self, columns: Any, counts: Any, name: str = "followers", fewest_codes: int | None = None) -> None:
        """Store the rows of a table of pairs.

        Args:
            name: of the weights in the graph.
            fewest_codes: that counts need where they are few bytes; fractions need more than whole counts.
        """
        self.name, self.fewest_codes = name, fewest_codes
        real = counts > 0
        kept = real.sum(axis=1)
        self.most = max(1, int(kept.max(initial=0)))
        self.kept = np.concatenate([[0], kept]).astype(np.uint8 if self.most <= np.iinfo(np.uint8).max else np.int32)
        self.items = len(columns)
        # At least one pair, since Gather needs a nonempty table.
        self.columns = columns[real].astype(np.int64) if real.any() else np.zeros(1, dtype=np.int64)
        self.counts = counts[real].astype(np.float32) if real.any() else np.zeros(1, dtype=np.float32)

    def after(self, graph: Graph, int8: bool, items: Value) -> tuple[Value, Value, Value]:
        """The followers of these items, how often each followed, and which of them are there, [..., C]."""
        first = self.first_in(graph)
        place = first.gather(items).unsqueeze(2) + graph.constant(np.arange(self.most, dtype=np.int32))
        there = (place < first.gather(items + 1).unsqueeze(2)).cast(FLOAT)
        place = place.at_most(graph.constant(np.array(len(self.columns) - 1, dtype=np.int32)))
        return *(self.packed_in if int8 else self.floats_in)(graph, place), there

    def first_in(self, graph: Graph) -> Value:
        """The offsets of the pairs of each item; summed when the graph is loaded."""
        return graph.add("CumSum", graph.weight(f"{self.name}.kept", self.kept).cast(INT32), 0)

    def floats_in(self, graph: Graph, place: Value) -> Bonus:
        """The followers at these indices, and their counts."""
        small = np.uint16 if self.items <= np.iinfo(np.uint16).max else np.int32
        columns = graph.weight(f"{self.name}.columns", self.columns.astype(small)).gather(place)
        return columns.cast(INT64), graph.weight(f"{self.name}.counts", self.counts).gather(place)

    def packed_in(self, graph: Graph, place: Value) -> Bonus:
        """The same, packed: the lower bits of a follower, and a byte with its higher bits and the code of its count."""
        whole = not (self.counts % 1).any()  # fractions, as of followers several steps on, want more codes
        fewest = self.fewest_codes or (FEWEST_CODES if whole else 4 * FEWEST_CODES)
        low, high, codes = room_in_bytes(self.items, fewest)
        code, values = coded(self.counts, codes)
        lower = (self.columns % low).astype(np.min_scalar_type(low - 1))
        byte = (self.columns // low + high * code).astype(np.uint8)
        packed = graph.weight(f"{self.name}.bytes", byte).gather(place).cast(INT64)
        columns = (
            graph.weight(f"{self.name}.lower", lower).gather(place).cast(INT64) + graph.add("Mod", packed, high) * low
        )
        return columns, graph.weight(f"{self.name}.values", values).gather(packed / high)


def room_in_bytes(items: int, fewest: int = FEWEST_CODES) -> tuple[int, int, int]:
    """The number of values of an item's lower bits, of its higher bits, and of codes in the rest of a byte."""
    for low in (2**8, 2**16, 2**32):
        high = int(2 ** ((items - 1) // low).bit_length())
        if high * fewest <= CODES:
            break
    return low, high, CODES // high


def coded(counts: Any, codes: int) -> tuple[Any, Any]:
    """A code for each count, and the count of each code: exact if there are few different counts, else the nearest."""
    values = np.unique(counts)
    if len(values) > codes:  # evenly on a logarithmic scale, which is how a count becomes a bonus
        values = np.unique(np.exp(np.linspace(np.log(values[0]), np.log(values[-1]), codes)).astype(np.float32))
    bounds = np.sqrt(values[1:] * values[:-1])
    return np.searchsorted(bounds, counts).astype(np.uint8), values.astype(np.float32)

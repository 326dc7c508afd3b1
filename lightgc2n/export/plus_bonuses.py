"""The score bonuses of LightGC²N-plus: for items that follow the newest events, and for items of the history.

Shapes: B batch, T newest events, M items, L newest events whose followers count, C followers kept, F pairs in all.
"""

from typing import Any

import numpy as np

from lightgc2n.export.onnx_builder import FLOAT, INT32, INT64, LAST, Events, Graph, Tables, Value, array, concat
from lightgc2n.models.plus.repeats import LEAK, RECENT, NoRepeatMemory, RepeatMemory
from lightgc2n.models.plus.transitions import NoTransitions, Transitions

Bonus = tuple[Value, Value]  # items [B, C], and what is added to the score of each
CODES, FEWEST_CODES = 256, 16  # codes of a byte, and the fewest that counts need
FAR = 1e30


def write_followers(
    graph: Graph,
    tables: Tables,
    followers: Transitions | NoTransitions,
    events: Events,
    like: Value,
    newest: int,
    leaving: Value | None = None,
) -> list[Bonus]:
    """The followers of each of the newest events, and the bonus of each.

    Args:
        leaving: how often each item was followed, where the graph has that table for other reasons too.
    """
    if isinstance(followers, NoTransitions):
        return []
    pairs = Pairs(array(followers.columns), array(followers.counts))
    newest_items, known, like = (value.slice(-newest, LAST, 1) for value in (events.items, events.there, like))
    columns, counts, there = pairs.after(graph, tables.int8, newest_items)
    # Parameters stand by age, columns by time: the newest event is the last one.
    by_age = {name: array(getattr(followers, name))[:newest][::-1].copy() for name in ("weight", "person", "floor")}
    left = _one_over_leaving(tables, followers, newest_items, leaving)
    share = counts * (left * graph.constant(np.exp(-by_age["floor"]))).unsqueeze(2)
    weight = (like * graph.constant(by_age["person"]) + graph.constant(by_age["weight"])) * known
    bonus = (share * there + 1.0).apply("Log") * weight.unsqueeze(2)
    return [(columns.reshape(0, newest * pairs.most), bonus.reshape(0, newest * pairs.most))]


def _one_over_leaving(tables: Tables, followers: Transitions, asked: Value, leaving: Value | None) -> Value:
    """What the counts of followers are multiplied with, [B, L]."""
    if leaving is not None:
        return (leaving.gather(asked) + float(followers.shrinking.exp())).apply("Reciprocal")
    # The root of one over a count is near enough to 1 for half precision, and squared here.
    left = tables.numbers("followers.left", array((followers.leaving + followers.shrinking.exp()).rsqrt())).gather(
        asked
    )
    return left * left


class Pairs:
    """The followers of all items in one array, without padding."""

    def __init__(self, columns: Any, counts: Any, name: str = "followers", fewest_codes: int | None = None) -> None:
        """Of the given table.

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

    def after(self, graph: Graph, int8: bool, asked: Value) -> tuple[Value, Value, Value]:
        """The followers of these items, how often each followed, and which of them are there, [..., C]."""
        first = self.first_in(graph)
        place = first.gather(asked).unsqueeze(2) + graph.constant(np.arange(self.most, dtype=np.int32))
        there = (place < first.gather(asked + 1).unsqueeze(2)).cast(FLOAT)
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


def write_memory(
    graph: Graph, tables: Tables, memory: RepeatMemory | NoRepeatMemory, events: Events, like: Value, longest: int
) -> list[Bonus]:
    """The items of the history, and the bonus of each at its newest event; calibrated on validation."""
    if isinstance(memory, NoRepeatMemory):
        return []
    added, times, _ = memory.balance.tolist()
    counts, features = _features(graph, events, like, longest)
    inner, outer = memory.inner, memory.outer
    map_, shift = tables.numbers("memory.inner", array(inner.weight).T), array(inner.bias)
    hidden = (features @ map_ + tables.numbers("memory.inner.bias", shift)).apply("Relu")
    out = tables.numbers("memory.outer", times * array(outer.weight).T)
    bonus = (hidden @ out).squeeze(2) + (times * float(outer.bias) + added)
    readiness = tables.numbers("memory.readiness", times * array(memory.readiness))
    return [(events.items, (bonus + readiness.gather(events.items)) * counts)]


def write_calibration(graph: Graph, memory: RepeatMemory | NoRepeatMemory, scores: Value, events: Events) -> Value:
    """The scores with repeat calibration: items of the history are pulled up to a rank chosen on validation."""
    if isinstance(memory, NoRepeatMemory) or memory.place == 0:
        return scores
    hidden = events.there * (-2 * FAR) + FAR  # padding hides no item
    others = graph.add("ScatterElements", scores, events.items, hidden, axis=1, reduction="min")
    best, _ = graph.add_many("TopK", 2, others, [min(memory.place, len(memory.readiness))], axis=1)
    place, own = best.slice(-1, LAST, 1), graph.add("GatherElements", scores, events.items, axis=1)
    drawn = (own - place).apply("LeakyRelu", alpha=LEAK) + place
    there = events.there * (place >= -FAR / 2).cast(FLOAT)  # a small catalogue may have fewer other items
    return graph.add(
        "ScatterElements", scores, events.items, drawn * there + (there - 1.0) * FAR, axis=1, reduction="max"
    )


def _features(graph: Graph, events: Events, like: Value, longest: int) -> tuple[Value, Value]:
    """The mask of each item's newest event [B, T], and the features of `repeats.describe` there."""
    numbers = events.numbers
    width = numbers.size(1)
    same = numbers.unsqueeze(2).equal(numbers.unsqueeze(1)).cast(FLOAT)
    ages = np.arange(longest, 0, -1, dtype=np.float32)  # of the columns: the newest event has age 1
    age = graph.weight("memory.ages", ages).slice(width * -1, LAST, 0)
    place = age * -1.0 + (longest + 1.0)
    newest = (same * place).max(2).equal(place).cast(FLOAT) * events.there
    order = graph.add("CumSum", newest, 1, reverse=1).at_least(1.0)  # 1 for the newest distinct item
    count, length = same.sum(2), events.count().at_least(1.0)
    now = same.slice(-1, LAST, 1)  # [B, 1, T]
    before = now.slice(0, -1, 2)
    followed = (before @ same.slice(1, LAST, 1)).squeeze(1)  # how often this came right after what is newest now
    earlier = before.sum(2)
    long, ones = order.apply("Log"), events.there
    features = (
        age.apply("Log") * ones, long, count.apply("Log"), length.apply("Log") * ones,
        age.equal(1.0).cast(FLOAT) * ones, (order < RECENT + 0.5).cast(FLOAT),
        (followed + 1.0).apply("Log"), followed / (earlier + 1.0), count / length, like, like * long,
    )  # fmt: skip
    return newest, concat([feature.unsqueeze(2) for feature in features], 2)

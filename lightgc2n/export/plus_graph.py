"""The graph of LightGC²N-plus and its ablations, for the query after the newest event.

Only the last row of each similarity table is needed, and linear maps are applied after the sums over a history.
Shapes: B batch, T newest events, M items, A latent users, H views, D width, L newest events whose followers count.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.functional import normalize

from lightgc2n.export.blend_graph import Bonus, Pairs, write_blend, write_leaving
from lightgc2n.export.onnx_builder import (
    FLOAT,
    LAST,
    NOTHING,
    ByteTable,
    Events,
    FloatTable,
    Graph,
    LatentUsers,
    ModelOutputs,
    Tables,
    Value,
    array,
    concat,
)
from lightgc2n.models.plus.plus import LightGC2NPlus
from lightgc2n.models.plus.repeats import LEAK, RECENT, NoRepeatMemory, RepeatMemory
from lightgc2n.models.plus.same_person import SHARPNESS, NewestEventState, OnePerson, PersonState, SamePerson
from lightgc2n.models.plus.transitions import NoTransitions, Transitions
from lightgc2n.models.plus.trends import Trends

SMALLEST_NORM = 1e-12
NORM_EPSILON = 1e-5
TINY = 1e-30


@dataclass(frozen=True)
class EncodedHistory:
    """Encoded histories, the newest event in the last column."""

    events: Events
    vectors: Value  # [B, T, D]
    like: Value  # similarity of each event to the current person, by view [B, T, H] or for all views [B, T, 1]

    @property
    def like_in_all_views(self) -> Value:
        return self.like.mean(2)


@torch.no_grad()
def write_plus(graph: Graph, tables: Tables, model: LightGC2NPlus, history: Value) -> ModelOutputs:
    """State, transitions, repeat memory and trends, and the latent users of each event."""
    config, items = model.config, tables.item_table("items", array(model.items))
    newest = min(config.newest, config.max_length)
    # Padded to the number of columns that transitions need.
    padded = Events.of(graph.add("Pad", history, [0, newest - 1, 0, 0], NOTHING))
    read, users = _encode_history(tables, model, items, padded, newest - 1)
    state = STATES[type(model.state)](graph, tables, model.state, read)
    scores = items.products(state, tables.numbers("bias", bias_and_trends(model)))
    leaving = write_leaving(tables, model) if model.blend.is_fitted else None
    bonuses = [
        *write_followers(graph, tables, model.followers, read.events, read.like_in_all_views, newest, leaving),
        *write_memory(graph, tables, model.memory, read.events, read.like_in_all_views, config.max_length),
    ]
    if bonuses:
        columns, added = (concat(parts, 1) for parts in zip(*bonuses, strict=True))
        scores = graph.add("ScatterElements", scores, columns, added, axis=1, reduction="add")
    scores = write_calibration(graph, model.memory, scores, read.events)
    if model.blend.is_fitted:
        scores = write_blend(graph, tables, model, scores, history)
    return ModelOutputs(scores, users, "items")


def bias_and_trends(model: LightGC2NPlus) -> Any:
    """The bias of each item with its trend at the end of training, which is later than any history."""
    bias = model.bias.detach().clone()
    if isinstance(model.trends, Trends):
        columns, bonus = model.trends(None, model.bias, 1)
        bias.scatter_add_(0, columns[0], bonus[0].detach())
    return array(bias)


def _encode_history(
    tables: Tables, model: LightGC2NPlus, items: FloatTable | ByteTable, padded: Events, extra: int
) -> tuple[EncodedHistory, LatentUsers | None]:
    vectors, longest = items.gather(padded.items), model.config.max_length
    events, newest = padded.newest(longest), vectors.slice(-longest, LAST, 1)
    if not isinstance(model.same_person, SamePerson):
        assert isinstance(model.same_person, OnePerson)
        return EncodedHistory(events, newest, events.there.unsqueeze(2)), None
    own = _ownership(tables, model.same_person, vectors)
    recent = own.slice(-longest, LAST, 1)
    like = (recent * recent.slice(-1, LAST, 1)).sum(3) * events.there.unsqueeze(2)
    first_view = own.slice(0, 1, 2).squeeze(2).slice(extra, LAST, 1) * padded.there.slice(extra, LAST, 1).unsqueeze(2)
    weight = first_view.sum(1) + 1e-9  # an empty history has equal weights
    users = LatentUsers(first_view.transpose(0, 2, 1), weight / weight.sum(1, keep=True))
    return EncodedHistory(events, newest, like), users


def _ownership(tables: Tables, same_person: SamePerson, vectors: Value) -> Value:
    """The share of each latent user in each event, by view [B, T, H, A]."""
    views, users, width = same_person.bases.shape
    sharpness = SHARPNESS * same_person.sharpness.exp()[:, None, None]
    bases = (sharpness * normalize(same_person.bases, dim=-1)).reshape(views * users, width)
    length = tables.graph.add("ReduceL2", vectors, [2]).at_least(SMALLEST_NORM)
    cosines = vectors / length @ tables.numbers("bases", array(bases).T)
    return cosines.reshape(0, 0, views, users).softmax()


def _person_state(graph: Graph, tables: Tables, state: PersonState, read: EncodedHistory) -> Value:
    """The state after the newest event, [B, D]."""
    width, views = state.width, state.views
    newest = read.vectors.slice(-1, LAST, 1).squeeze(1)
    # Ages count back from the newest event; padding has weight 0.
    fading = graph.weight("fading", np.ascontiguousarray(array(state.fading.exp())[:, ::-1].T))
    faded = read.like * fading.slice(read.events.numbers.size(1) * -1, LAST, 0)
    faded = faded / faded.sum(1, keep=True).at_least(TINY)
    pooled = (faded.transpose(0, 2, 1) @ read.vectors).reshape(0, views * width)
    # The maps of each view's values and of all views are merged into one, applied after the sums.
    values = array(state.value.weight).reshape(views, width, width).transpose(0, 2, 1)
    gathered = array(state.gather.weight).T.reshape(views, width, width)
    to_state = np.concatenate([(values @ gathered).reshape(views * width, width), array(state.own.weight).T])
    shift = array(state.own.bias + state.gather.bias)
    start = _gemm(tables, "state", concat([pooled, newest], 1), to_state, shift)
    ones, zeros = np.ones(width, dtype=np.float32), np.zeros(width, dtype=np.float32)
    plain = start.layer_norm(graph.constant(ones), graph.constant(zeros), NORM_EPSILON)
    inner = _gemm(tables, "inner", plain, array(state.inner.weight).T, array(state.inner.bias)).apply("Relu")
    outer = _gemm(tables, "outer", inner, array(state.outer.weight).T, array(state.outer.bias))
    return _normed(tables, state, start + outer)


def _newest_state(graph: Graph, tables: Tables, state: NewestEventState, read: EncodedHistory) -> Value:
    newest = read.vectors.slice(-1, LAST, 1).squeeze(1)
    return _normed(tables, state, _gemm(tables, "state", newest, array(state.own.weight).T, array(state.own.bias)))


STATES: dict[type, Callable[..., Value]] = {PersonState: _person_state, NewestEventState: _newest_state}


def _normed(tables: Tables, state: PersonState | NewestEventState, given: Value) -> Value:
    scale, shift = tables.numbers("norm", array(state.norm.weight)), tables.numbers("norm.bias", array(state.norm.bias))
    return given.layer_norm(scale, shift, state.norm.eps)


def _gemm(tables: Tables, name: str, given: Value, weight: Any, bias: Any) -> Value:
    return tables.graph.add("Gemm", given, tables.numbers(name, weight), tables.numbers(f"{name}.bias", bias))


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


def _one_over_leaving(tables: Tables, followers: Transitions, items: Value, leaving: Value | None) -> Value:
    """What the counts of followers are multiplied with, [B, L]."""
    if leaving is not None:
        return (leaving.gather(items) + float(followers.shrinking.exp())).apply("Reciprocal")
    # The root of one over a count is near enough to 1 for half precision, and squared here.
    roots = tables.numbers("followers.left", array((followers.leaving + followers.shrinking.exp()).rsqrt()))
    root = roots.gather(items)
    return root * root


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
    ages = np.arange(longest, 0, -1, dtype=np.float32)  # the ages of the columns: the newest event has age 1
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

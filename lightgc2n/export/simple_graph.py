"""The graphs of simple baselines: the counted tables and the history, in float64 as the baselines count.

Baselines that hold the logs of accounts (account-markov, session-knn) have no graph: a device part holds no logs.
Shapes: B batch, T history, M items, L newest events that count, C pairs of an item.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from lightgc2n.baselines.counting import Markov, MarkovRecency, Popularity, Recency, Trending
from lightgc2n.baselines.neighbours import DECIMALS, ItemKnn
from lightgc2n.baselines.simple import POPULARITY_WEIGHT, SimpleBaseline
from lightgc2n.export.blend_graph import Pairs
from lightgc2n.export.onnx_builder import INT64, LAST, Events, Graph, ModelOutputs, Tables, Value, array
from lightgc2n.layers.sparse import SparseRows

DOUBLE = onnx.TensorProto.DOUBLE
LEAST_WEIGHT = 1e-6  # smallest weight of an event in item-knn; events with less cannot change the order
PAIRS = "counted"


def write_simple(graph: Graph, tables: Tables, model: SimpleBaseline, history: Value) -> ModelOutputs:
    """The scores of a baseline; popularity orders ties."""
    events = Events.of(history)
    tie = graph.weight("tie", array(model.popularity * POPULARITY_WEIGHT).astype(np.float64))
    nothing = graph.add("Mul", events.items.slice(-1, LAST, 1).cast(DOUBLE), _double(0.0))
    scores = SCORES[type(model)](graph, model, events, nothing + tie)
    return ModelOutputs(scores, None, "", exact=True)


def _popularity(graph: Graph, model: Popularity, events: Events, scores: Value) -> Value:
    return scores


def _trending(graph: Graph, model: Trending, events: Events, scores: Value) -> Value:
    return scores + graph.weight("lately", array(model.lately[model.chosen]).astype(np.float64))


def _recency(graph: Graph, model: Recency, events: Events, scores: Value) -> Value:
    return scores + _at_newest(graph, events, graph.add("Div", _double(1.0), _ages(graph, events)), scores)


def _markov(graph: Graph, model: Markov, events: Events, scores: Value) -> Value:
    return _with_followers(graph, model.steps, events, scores)


def _markov_recency(graph: Graph, model: MarkovRecency, events: Events, scores: Value) -> Value:
    weight, fade = model.mixture.tolist()
    faded = graph.add("Div", _double(weight), graph.add("Pow", _ages(graph, events), _double(fade)))
    return _with_followers(graph, model.steps, events, scores) + _at_newest(graph, events, faded, scores)


def _item_knn(graph: Graph, model: ItemKnn, events: Events, scores: Value) -> Value:
    fade = float(model.fade)
    if fade < 1:
        weights = fade ** np.arange(1 + int(np.log(LEAST_WEIGHT) / np.log(fade)), dtype=np.float64)
        weights = weights[weights > LEAST_WEIGHT]
        events = events.newest(len(weights))
        weight = graph.constant(weights[::-1].copy()).slice(events.numbers.size(1) * -1, LAST, 0)
        strength = events.there.cast(DOUBLE) * weight
    else:
        strength = events.there.cast(DOUBLE)
    pairs = CountedPairs(model.likeness)
    items, likeness, there = pairs.after(graph, False, events.items)
    added = likeness * there.cast(DOUBLE) * strength.unsqueeze(2)
    scores = _added(graph, scores, items.reshape(0, -1), added.reshape(0, -1))
    rounded = graph.add("Mul", scores, _double(10.0**DECIMALS)).apply("Round")
    return graph.add("Div", rounded, _double(10.0**DECIMALS))


SCORES: dict[type, Callable[[Graph, Any, Events, Value], Value]] = {
    Popularity: _popularity,
    Trending: _trending,
    Recency: _recency,
    Markov: _markov,
    MarkovRecency: _markov_recency,
    ItemKnn: _item_knn,
}


class CountedPairs(Pairs):
    """The rows of a sparse table, as float64."""

    def __init__(self, rows: SparseRows) -> None:
        kept = np.diff(array(rows.offsets))
        columns, counts = array(rows.columns).astype(np.int64), array(rows.values).astype(np.float64)
        self.name, self.items, self.most = PAIRS, len(kept), max(1, int(kept.max(initial=0)))
        self.kept = np.concatenate([[0], kept]).astype(np.uint8 if self.most <= np.iinfo(np.uint8).max else np.int32)
        self.columns = columns if len(columns) else np.zeros(1, dtype=np.int64)  # Gather needs a nonempty table
        self.counts = counts if len(counts) else np.zeros(1)


def _with_followers(graph: Graph, steps: SparseRows, events: Events, scores: Value) -> Value:
    """The scores with the row of the newest item added."""
    known, newest = (value.slice(-1, LAST, 1) for value in (events.there, events.items))
    items, counts, there = CountedPairs(steps).after(graph, False, newest)
    added = counts * (there * known.unsqueeze(2)).cast(DOUBLE)
    return _added(graph, scores, items.squeeze(1), added.squeeze(1))


def _at_newest(graph: Graph, events: Events, values: Value, like: Value) -> Value:
    """For every item the largest value of its events, which is that of the newest; 0 without events [B, M]."""
    nothing = graph.add("Mul", like, _double(0.0))
    values = values * events.there.cast(DOUBLE)
    return graph.add("ScatterElements", nothing, events.items, values, axis=1, reduction="max")


def _ages(graph: Graph, events: Events) -> Value:
    """1 for the newest event, 2 for the one before ... [B, T]; at least 1 where there is none."""
    ones = graph.add("Add", graph.add("Mul", events.there.cast(DOUBLE), _double(0.0)), _double(1.0))
    return graph.add("CumSum", ones, 1, reverse=1)


def _added(graph: Graph, scores: Value, items: Value, values: Value) -> Value:
    return graph.add("ScatterElements", scores, items.cast(INT64), values, axis=1, reduction="add")


def _double(number: float) -> npt.NDArray[np.float64]:
    return np.array(number, dtype=np.float64)

"""The graph of LightGC²N-plus and its ablations, for the one question that comes after the newest event.

Only the last row of each table of likeness is ever needed, and what is linear is done after the sums over a log.
Shapes: B batch, T newest events, M items, A latent users, H views, D width, L newest events whose followers count.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.functional import normalize

from lightgc2n.export.blend_graph import write_blend, write_leaving
from lightgc2n.export.graph_interface import NOTHING, Answer, Events, LatentUsers, array
from lightgc2n.export.onnx_builder import LAST, Graph, Value, joined
from lightgc2n.export.onnx_tables import ByteTable, FloatTable, Tables
from lightgc2n.export.plus_bonuses import write_drawn_up, write_followers, write_memory
from lightgc2n.models.plus.plus import LightGC2NPlus
from lightgc2n.models.plus.same_person import SHARPNESS, NewestEventState, OnePerson, PersonState, SamePerson
from lightgc2n.models.plus.trends import Trends

SMALLEST_NORM = 1e-12
NORM_EPSILON = 1e-5
TINY = 1e-30


@dataclass(frozen=True)
class Read:
    """Logs as the model reads them, the newest event in the last column."""

    events: Events
    vectors: Value  # [B, T, D]
    like: Value  # how likely each event is of the person who acts now, [B, T, H] or the same for all views, [B, T, 1]

    @property
    def like_in_all_views(self) -> Value:
        return self.like.mean(2)


@torch.no_grad()
def write_plus(graph: Graph, tables: Tables, model: LightGC2NPlus, history: Value) -> Answer:
    """State, steps, memory and trends, and whose each event was."""
    config, items = model.config, tables.of_items("items", array(model.items))
    asked = min(config.newest, config.max_length)
    # As many columns as the steps ask for, however short the history is.
    padded = Events.of(graph.add("Pad", history, [0, asked - 1, 0, 0], NOTHING))
    read, users = _read(tables, model, items, padded, asked - 1)
    state = STATES[type(model.state)](graph, tables, model.state, read)
    scores = items.products(state, tables.numbers("bias", bias_and_trends(model)))
    leaving = write_leaving(tables, model) if model.blend.is_fitted else None
    bonuses = [
        *write_followers(graph, tables, model.followers, read.events, read.like_in_all_views, asked, leaving),
        *write_memory(graph, tables, model.memory, read.events, read.like_in_all_views, config.max_length),
    ]
    if bonuses:
        columns, added = (joined(parts, 1) for parts in zip(*bonuses, strict=True))
        scores = graph.add("ScatterElements", scores, columns, added, axis=1, reduction="add")
    scores = write_drawn_up(graph, model.memory, scores, read.events)
    if model.blend.is_fitted:
        scores = write_blend(graph, tables, model, scores, history)
    return Answer(scores, users, "items")


def bias_and_trends(model: LightGC2NPlus) -> Any:
    """What is said of items whoever asks: nobody's history is newer than the last look at what everybody has."""
    bias = model.bias.detach().clone()
    if isinstance(model.trends, Trends):
        columns, bonus = model.trends(None, model.bias, 1)
        bias.scatter_add_(0, columns[0], bonus[0].detach())
    return array(bias)


def _read(
    tables: Tables, model: LightGC2NPlus, items: FloatTable | ByteTable, padded: Events, extra: int
) -> tuple[Read, LatentUsers | None]:
    vectors, longest = items.rows(padded.items), model.config.max_length
    events, newest = padded.newest(longest), vectors.part(-longest, LAST, 1)
    if not isinstance(model.same_person, SamePerson):
        assert isinstance(model.same_person, OnePerson)
        return Read(events, newest, events.there.wider(2)), None
    own = _ownership(tables, model.same_person, vectors)
    recent = own.part(-longest, LAST, 1)
    like = (recent * recent.part(-1, LAST, 1)).sum(3) * events.there.wider(2)
    first_view = own.part(0, 1, 2).narrower(2).part(extra, LAST, 1) * padded.there.part(extra, LAST, 1).wider(2)
    weight = first_view.sum(1) + 1e-9  # nobody is there in an empty history: all alike
    users = LatentUsers(first_view.turned(0, 2, 1), weight / weight.sum(1, keep=True))
    return Read(events, newest, like), users


def _ownership(tables: Tables, same_person: SamePerson, vectors: Value) -> Value:
    """How far each event is each latent user's in each view, [B, T, H, A]."""
    views, users, width = same_person.bases.shape
    sharpness = SHARPNESS * same_person.sharpness.exp()[:, None, None]
    bases = (sharpness * normalize(same_person.bases, dim=-1)).reshape(views * users, width)
    length = tables.graph.add("ReduceL2", vectors, [2]).at_least(SMALLEST_NORM)
    cosines = vectors / length @ tables.numbers("bases", array(bases).T)
    return cosines.reshape(0, 0, views, users).softmax()


def _of_person(graph: Graph, tables: Tables, state: PersonState, read: Read) -> Value:
    """The state after the newest event, [B, D]."""
    width, views = state.width, state.views
    newest = read.vectors.part(-1, LAST, 1).narrower(1)
    # Ages count back from the newest event; the columns that only fill up are of no age and weigh nothing.
    fading = graph.weight("fading", np.ascontiguousarray(array(state.fading.exp())[:, ::-1].T))
    faded = read.like * fading.part(read.events.numbers.size(1) * -1, LAST, 0)
    faded = faded / faded.sum(1, keep=True).at_least(TINY)
    pooled = (faded.turned(0, 2, 1) @ read.vectors).reshape(0, views * width)
    # Sums come first and maps after them: of each view's values and of all views together, they are one map.
    values = array(state.value.weight).reshape(views, width, width).transpose(0, 2, 1)
    gathered = array(state.gather.weight).T.reshape(views, width, width)
    to_state = np.concatenate([(values @ gathered).reshape(views * width, width), array(state.own.weight).T])
    shift = array(state.own.bias + state.gather.bias)
    start = _gemm(tables, "state", joined([pooled, newest], 1), to_state, shift)
    ones, zeros = np.ones(width, dtype=np.float32), np.zeros(width, dtype=np.float32)
    plain = start.normed(graph.constant(ones), graph.constant(zeros), NORM_EPSILON)
    inner = _gemm(tables, "inner", plain, array(state.inner.weight).T, array(state.inner.bias)).apply("Relu")
    outer = _gemm(tables, "outer", inner, array(state.outer.weight).T, array(state.outer.bias))
    return _normed(tables, state, start + outer)


def _of_newest(graph: Graph, tables: Tables, state: NewestEventState, read: Read) -> Value:
    newest = read.vectors.part(-1, LAST, 1).narrower(1)
    return _normed(tables, state, _gemm(tables, "state", newest, array(state.own.weight).T, array(state.own.bias)))


STATES: dict[type, Callable[..., Value]] = {PersonState: _of_person, NewestEventState: _of_newest}


def _normed(tables: Tables, state: PersonState | NewestEventState, given: Value) -> Value:
    scale, shift = tables.numbers("norm", array(state.norm.weight)), tables.numbers("norm.bias", array(state.norm.bias))
    return given.normed(scale, shift, state.norm.eps)


def _gemm(tables: Tables, name: str, given: Value, weight: Any, bias: Any) -> Value:
    return tables.graph.add("Gemm", given, tables.numbers(name, weight), tables.numbers(f"{name}.bias", bias))

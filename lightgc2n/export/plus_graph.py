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

from lightgc2n.export.blend_graph import write_blend, write_leaving
from lightgc2n.export.onnx_builder import (
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
from lightgc2n.export.plus_bonuses import write_calibration, write_followers, write_memory
from lightgc2n.models.plus.plus import LightGC2NPlus
from lightgc2n.models.plus.same_person import SHARPNESS, NewestEventState, OnePerson, PersonState, SamePerson
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

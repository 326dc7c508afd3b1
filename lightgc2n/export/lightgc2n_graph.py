"""The graph of LightGC²N and its ablations: item representations are stored, the account is computed from its history.

Shapes: B batch, T history, N neighbours (items held, then the history), M items, A latent users, D capsule width.
The training code is in `models/lightgc2n/lightgc2n.py` and `models/lightgc2n/convolution.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from lightgc2n.export.onnx_builder import (
    ACCOUNT,
    FLOAT,
    HELD,
    INT64,
    LAST,
    Array,
    Events,
    Graph,
    LatentUsers,
    ModelOutputs,
    Tables,
    Value,
    array,
    concat,
    where,
)
from lightgc2n.layers.squash import SMALLEST_SQUARE
from lightgc2n.models.lightgc2n.capsules import DynamicRouting, SumOfUsers
from lightgc2n.models.lightgc2n.convolution import CapsuleConvolution, CapsuleLayer, NoConvolution, PlainConvolution
from lightgc2n.models.lightgc2n.lightgc2n import LightGC2N

BEYOND = np.iinfo(np.int64).max  # sorts after every item
TINY = 1e-30


@dataclass(frozen=True)
class Neighbours:
    """The neighbours of the accounts in the batch."""

    events: Events
    distinct: Value  # 1 for one occurrence of each item, 0 for others and for padding, [B, N]
    held: Value  # number of columns before the history


@torch.no_grad()
def write_lightgc2n(graph: Graph, tables: Tables, model: LightGC2N, history: Value) -> ModelOutputs:
    """Fold-in, alignment, head and ownership."""
    encoded, events = model.encode(), Events.of(history)
    account, users = ACCOUNTS[type(model.convolution)](graph, tables, model, history)
    rows = tables.item_table("rows", array(encoded.rows)).gather(events.items)  # after Eq. 15, 16 and 19
    share = events.there / events.count().at_least(1.0) if model.config.pooling == "mean" else events.there
    sequence = (share.unsqueeze(1) @ rows).squeeze(1)  # Eq. 14
    head = tables.item_table("head", array(model.head.weight))
    scores = head.products(concat([sequence, account], 1), tables.numbers("bias", array(model.head.bias)))  # Eq. 20
    return ModelOutputs(scores, users, "head")


def _from_capsules(graph: Graph, tables: Tables, model: LightGC2N, history: Value) -> tuple[Value, LatentUsers]:
    convolution = model.convolution
    assert isinstance(convolution, CapsuleConvolution)
    near, degrees = _neighbours(graph, history), _item_degrees(tables, convolution)
    start = _start(tables, model, convolution.to_users.project)  # type: ignore[arg-type]
    users = squash(start.reshape(0, model.config.latent_users, -1))  # Eq. 4
    total, weight = users, users
    layers = zip(convolution._layers(), model.encode().layers[:-1], strict=True)
    for number, (layer, capsules) in enumerate(layers):
        rows = tables.item_table(f"capsules.{number}", array(capsules)).gather(near.events.items)
        matched, weight = attend(users * float(layer.scale()), rows, near.distinct)
        users = _next_users(tables, f"layers.{number}", layer, _sum(rows, near, degrees), matched, users)
        total = total + users  # Eq. 11
    terms = TERMS[type(convolution.routing)](tables, convolution.routing, total)
    shares = weight / weight.sum(1, keep=True).at_least(TINY) * near.events.there.unsqueeze(1)
    own = shares.slice(near.held, LAST, 2)
    return terms.sum(1), LatentUsers(own, _lengths_of(terms))


def _from_nodes(graph: Graph, tables: Tables, model: LightGC2N, history: Value) -> tuple[Value, None]:
    """w/o C: an account is one node."""
    convolution = model.convolution
    assert isinstance(convolution, PlainConvolution)
    near, degrees = _neighbours(graph, history), _item_degrees(tables, convolution)
    total = _start(tables, model, convolution.project)
    for number, (layer, nodes) in enumerate(zip(convolution.layers, model.encode().layers[:-1], strict=True)):
        rows = tables.item_table(f"capsules.{number}", array(nodes)).gather(near.events.items)
        total = total + _sum(rows, near, degrees) @ _transposed(tables, f"layers.{number}", layer)
    return total, None


def _from_start(graph: Graph, tables: Tables, model: LightGC2N, history: Value) -> tuple[Value, None]:
    """w/o A: the embedding itself."""
    assert isinstance(model.convolution, NoConvolution)
    return _start(tables, model, model.convolution.project), None


ACCOUNTS: dict[type, Callable[..., tuple[Value, LatentUsers | None]]] = {
    CapsuleConvolution: _from_capsules,
    PlainConvolution: _from_nodes,
    NoConvolution: _from_start,
}


def _start(tables: Tables, model: LightGC2N, project: nn.Linear) -> Value:
    """The projected account embedding; the projection of the mean account is part of the bias."""
    mean = model._start(torch.tensor([-1]))[0]
    account = tables.graph.input(ACCOUNT, FLOAT, ["B", model.config.embedding_width])
    return account @ _transposed(tables, "start", project) + tables.numbers("start.bias", array(project(mean)))


def account_vectors(model: LightGC2N) -> Array:
    """The input `account` of every account [accounts, W]; zeros for one without training events."""
    with torch.no_grad():
        numbers = torch.arange(len(model.account_embeddings))
        learned = model.graph.held_offsets.diff() > 0
        start = model._start(torch.where(learned, numbers, -1))
        return array(start - model._start(torch.tensor([-1])))


def _neighbours(graph: Graph, history: Value) -> Neighbours:
    held = graph.input(HELD, INT64, ["B", "N"])
    events = Events.of(concat([held, history], 1))
    return Neighbours(events, distinct(events), held.size(1))


def distinct(events: Events) -> Value:
    """1 at one occurrence of each item and 0 elsewhere, by sorting: equal items are adjacent."""
    graph, numbers = events.numbers.graph, where(events.known, events.numbers, BEYOND)
    ordered, place = graph.add_many("TopK", 2, numbers, numbers.size(1), axis=1, largest=0)
    again = ordered.slice(1, LAST, 1).equal(ordered.slice(0, -1, 1)).cast(FLOAT)
    again = graph.add("Pad", again, [0, 1, 0, 0])  # the first is never a repetition
    return (graph.add("ScatterElements", again, place, again, axis=1) * -1.0 + 1.0) * events.there


def _item_degrees(tables: Tables, convolution: CapsuleConvolution | PlainConvolution) -> Value:
    return tables.numbers("degrees", array(convolution.graph.item_degrees.clamp(min=1).rsqrt()))


def _sum(rows: Value, near: Neighbours, degrees: Value) -> Value:
    """The sum of the neighbours, each divided by the root of both degrees [B, D]."""
    own_degree = near.distinct.sum(1, keep=True).at_least(1.0).apply("Sqrt")
    share = near.distinct * degrees.gather(near.events.items) / own_degree
    return (share.unsqueeze(1) @ rows).squeeze(1)


def attend(users: Value, items: Value, there: Value) -> tuple[Value, Value]:
    """The attended items of each latent user [B, A, D], and the attention weights [B, A, N]."""
    halves = ((users @ items.transpose(0, 2, 1)) * 0.5).apply("Exp")
    there = there.unsqueeze(1)
    weight = halves * halves / (halves * there).sum(2, keep=True).at_least(TINY)  # Eq. 5: exp(x) / Σ √exp(x)
    return (weight * there) @ items, weight


def _next_users(tables: Tables, name: str, layer: CapsuleLayer, summed: Value, matched: Value, users: Value) -> Value:
    messages = (summed @ _transposed(tables, f"{name}.items", layer.from_items)).unsqueeze(1)
    messages = messages + matched @ _transposed(tables, f"{name}.matches", layer.from_matches)  # Eq. 6
    return squash(messages + users @ _transposed(tables, f"{name}.self", layer.from_self))  # Eq. 7, 8


def _routed(tables: Tables, routing: DynamicRouting, users: Value) -> Value:
    coupling, agree = (
        tables.numbers("routing.start", array(routing.start)),
        _transposed(tables, "routing", routing.agree),
    )
    for _ in range(routing.steps - 1):
        account = squash(coupling * users).sum(1, keep=True)  # Eq. 12
        coupling = (users * account) @ agree + coupling  # Eq. 13
    return squash(coupling * users)  # Eq. 12


def _unrouted(tables: Tables, routing: SumOfUsers, users: Value) -> Value:
    return users


TERMS: dict[type, Callable[..., Value]] = {DynamicRouting: _routed, SumOfUsers: _unrouted}


def squash(vectors: Value) -> Value:
    """Vectors with the same direction and length |v|² / (1 + |v|²)."""
    square = (vectors * vectors).sum(-1, keep=True)
    return vectors * ((square + SMALLEST_SQUARE).apply("Sqrt") / (square + 1.0))


def _lengths_of(terms: Value) -> Value:
    lengths = ((terms * terms).sum(2) + SMALLEST_SQUARE).apply("Sqrt")
    return lengths / lengths.sum(1, keep=True)


def _transposed(tables: Tables, name: str, linear: nn.Module) -> Value:
    return tables.numbers(name, array(linear.weight).T)  # type: ignore[arg-type]

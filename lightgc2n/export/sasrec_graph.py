"""The graph of SASRec; the last block computes only the newest event.

Shapes: B batch, T newest events, M items, D width.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from lightgc2n.baselines.sasrec import NORM_EPSILON, Block, SASRec
from lightgc2n.export.onnx_builder import LAST, Events, Graph, ModelOutputs, Tables, Value, array, where

IMPOSSIBLE = -1e9  # a masked logit


@torch.no_grad()
def write_sasrec(graph: Graph, tables: Tables, model: SASRec, history: Value) -> ModelOutputs:
    """The state of the newest event, and its product with every item."""
    events, width = Events.of(history).newest(model.config.max_length), model.config.width
    read = tables.item_table("items", array(model.items))
    scored = read if model.second_items is None else tables.item_table("second_items", array(model.second_items))
    # Positions count back from the newest event, which stands in the last column.
    positions = tables.numbers("positions", array(model.positions)[::-1])
    places = positions.slice(events.numbers.size(1) * -1, LAST, 0)
    states = read.gather(events.items) * width**0.5 + places  # X_0
    hidden = _hidden(events)
    for number, block in enumerate(model.blocks):
        last = number == len(model.blocks) - 1
        states = _block(tables, f"blocks.{number}", block, states, hidden, first=-1 if last else 0)  # type: ignore[arg-type]
    newest = _norm(tables, "last_norm", model.last_norm)(states).squeeze(1)
    nothing = graph.constant(np.zeros(1, dtype=np.float32))
    table = "items" if model.second_items is None else "second_items"
    return ModelOutputs(scored.products(newest, nothing), None, table)  # score(i) = F_L · O_i


def _hidden(events: Events) -> Value:
    """The attention mask as logits [B, 1, T, T]: later events and padding are masked."""
    graph = events.numbers.graph
    place = graph.add("Range", 0, events.numbers.size(1).reshape(), 1)
    earlier = place.unsqueeze(1) >= place.unsqueeze(0)
    seen = graph.add("And", earlier, events.known.unsqueeze(1, 2))
    return where(seen, 0.0, IMPOSSIBLE)


def _block(tables: Tables, name: str, block: Block, events: Value, hidden: Value, first: int) -> Value:
    """Attention and feed-forward for the events from `first` on."""
    queries = _norm(tables, f"{name}.attention_norm", block.attention_norm)(events).slice(first, LAST, 1)
    mixed = queries + _attention(tables, name, block, queries, events, hidden.slice(first, LAST, 2))
    mixed = _norm(tables, f"{name}.forward_norm", block.forward_norm)(mixed)
    inner = _linear(tables, f"{name}.inner", block.inner)(mixed).apply("Relu")
    return mixed + _linear(tables, f"{name}.outer", block.outer)(inner)


def _attention(tables: Tables, name: str, block: Block, queries: Value, events: Value, hidden: Value) -> Value:
    attention = block.attention
    width, heads = attention.width, attention.heads
    to_query, to_both, root = attention.query, attention.key_value, (width // heads) ** 0.5
    parts = {
        "query": (queries, to_query.weight / root, to_query.bias / root),
        "key": (events, to_both.weight[:width], to_both.bias[:width]),
        "value": (events, to_both.weight[width:], to_both.bias[width:]),
    }
    query, key, value = (
        _mapped(tables, f"{name}.{part}", given, weight, bias).reshape(0, 0, heads, -1)
        for part, (given, weight, bias) in parts.items()
    )
    shares = (query.transpose(0, 2, 1, 3) @ key.transpose(0, 2, 3, 1) + hidden).softmax()
    return (shares @ value.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3).reshape(0, 0, width)


def _linear(tables: Tables, name: str, linear: nn.Linear) -> Callable[[Value], Value]:
    return lambda given: _mapped(tables, name, given, linear.weight, linear.bias)


def _mapped(tables: Tables, name: str, given: Value, weight: torch.Tensor, bias: torch.Tensor) -> Value:
    return given @ tables.numbers(name, array(weight).T) + tables.numbers(f"{name}.bias", array(bias))


def _norm(tables: Tables, name: str, norm: nn.LayerNorm) -> Callable[[Value], Value]:
    scale, shift = tables.numbers(name, array(norm.weight)), tables.numbers(f"{name}.bias", array(norm.bias))
    return lambda given: given.layer_norm(scale, shift, NORM_EPSILON)

"""Edge attention: messages weighted by a softmax over the cosines of the two ends of each edge.

Shapes: E edges, R rows (nodes), D width. The edges are stored by row and by column, so gradients need no atomics.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import normalize

from lightgc2n.devices import device_of
from lightgc2n.graph.sequential import Edges
from lightgc2n.layers.sparse import RowSums


class EdgeList(nn.Module):
    """The edges between nodes, by row and by column."""

    rows: Int[Tensor, "E"]
    order: Int[Tensor, "E"]  # the edges sorted by column

    def __init__(self, edges: Edges) -> None:
        super().__init__()
        self.to_rows, self.to_columns = RowSums(edges), RowSums(edges.transposed())
        rows = np.repeat(np.arange(len(edges.offsets) - 1), np.diff(edges.offsets))
        for name, array in (("rows", rows), ("order", np.lexsort((rows, edges.columns)))):
            self.register_buffer(name, torch.from_numpy(array), persistent=False)

    def sums(self, table: Float[Tensor, "R D"], weights: Float[Tensor, "E"]) -> Float[Tensor, "R D"]:
        """The weighted sum over the columns of each row."""
        return self.to_rows(table.contiguous(), weights)

    def sums_back(self, table: Float[Tensor, "R D"], weights: Float[Tensor, "E"]) -> Float[Tensor, "R D"]:
        """The weighted sum over the rows of each column."""
        return self.to_columns(table.contiguous(), weights[self.order])

    def products(self, rows: Float[Tensor, "R D"], columns: Float[Tensor, "R D"]) -> Float[Tensor, "E"]:
        """The dot product of the two ends of each edge."""
        return edge_products(rows, self.rows, columns, self.to_rows.columns)

    def totals(self, values: Float[Tensor, "E"]) -> Float[Tensor, "R"]:
        """The sum of the edge values of each row."""
        return torch.segment_reduce(values, "sum", offsets=self.to_rows.offsets, initial=0, unsafe=True)


def edge_products(
    first: Float[Tensor, "R D"], row: Int[Tensor, "E"], second: Float[Tensor, "S D"], column: Int[Tensor, "E"]
) -> Float[Tensor, "E"]:
    """first[row] · second[column], in blocks of edges: the vectors of all ends at once would not fit."""
    products = first.new_empty(len(row))
    size = device_of(first).edges_at_once
    for start in range(0, len(row), size):
        part = slice(start, start + size)
        ends = first.index_select(0, row[part]) * second.index_select(0, column[part])
        torch.sum(ends, dim=1, out=products[part])
    return products


class _Match(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, edges: EdgeList) -> Tensor:
        ctx.edges = edges
        ctx.save_for_backward(table)
        return edges.products(table, table)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (table,) = ctx.saved_tensors
        return ctx.edges.sums(table, gradients[0]) + ctx.edges.sums_back(table, gradients[0]), None


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, match: Tensor, edges: EdgeList) -> Tensor:
        ctx.edges = edges
        strength = match.exp()  # a cosine is at most 1, so exp cannot overflow
        weights = strength / edges.totals(strength)[edges.rows]
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (weights,) = ctx.saved_tensors
        flow = weights * gradients[0]
        return flow - weights * ctx.edges.totals(flow)[ctx.edges.rows], None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, weights: Tensor, edges: EdgeList) -> Tensor:
        ctx.edges = edges
        ctx.save_for_backward(table, weights)
        return edges.sums(table, weights)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        table, weights = ctx.saved_tensors
        to_weights = ctx.edges.products(gradients[0], table) if ctx.needs_input_grad[1] else None
        return ctx.edges.sums_back(gradients[0], weights), to_weights, None


def edge_softmax(table: Float[Tensor, "R D"], edges: EdgeList) -> Float[Tensor, "E"]:
    """The softmax over the edges of each row of the cosine of their ends."""
    match = _Match.apply(normalize(table), edges)  # type: ignore[no-untyped-call]
    return _Softmax.apply(match, edges)  # type: ignore[no-untyped-call]


def sum_along_edges(table: Float[Tensor, "R D"], weights: Float[Tensor, "E"], edges: EdgeList) -> Float[Tensor, "R D"]:
    """The weighted sum over the neighbours of each row."""
    return _Sum.apply(table, weights, edges)  # type: ignore[no-untyped-call]


class EvenWeights(nn.Module):
    """All edges have weight 1."""

    def __init__(self, edges: int) -> None:
        super().__init__()

    def forward(self, table: Float[Tensor, "R D"], edges: EdgeList) -> Float[Tensor, "E"]:
        return edges.to_rows.weights

    def refresh(self, table: Float[Tensor, "R D"], edges: EdgeList) -> None:
        pass

    def of_unseen(
        self, match: Float[Tensor, "P"], row: Int[Tensor, "P"], own: Float[Tensor, "B"]
    ) -> tuple[Float[Tensor, "P"], Float[Tensor, "B"]]:
        """The edge weights of accounts outside the graph, and the weight of each account's self-loop."""
        return torch.ones_like(match), torch.ones_like(own)


class AttentionWeights(EvenWeights):
    """Edge weights by attention, recomputed in every step with gradients."""

    def forward(self, table: Float[Tensor, "R D"], edges: EdgeList) -> Float[Tensor, "E"]:
        return edge_softmax(table, edges)

    def of_unseen(
        self, match: Float[Tensor, "P"], row: Int[Tensor, "P"], own: Float[Tensor, "B"]
    ) -> tuple[Float[Tensor, "P"], Float[Tensor, "B"]]:
        total = own.exp().index_add(0, row, match.exp())
        return match.exp() / total[row], own.exp() / total


class RefreshedWeights(AttentionWeights):
    """Edge weights by the attention at the start of the epoch, without gradients."""

    kept: Float[Tensor, "E"]

    def __init__(self, edges: int) -> None:
        super().__init__(edges)
        self.register_buffer("kept", torch.ones(edges))  # saved, because the embeddings change within the epoch

    def forward(self, table: Float[Tensor, "R D"], edges: EdgeList) -> Float[Tensor, "E"]:
        return self.kept

    @torch.no_grad()
    def refresh(self, table: Float[Tensor, "R D"], edges: EdgeList) -> None:
        self.kept.copy_(edge_softmax(table, edges))

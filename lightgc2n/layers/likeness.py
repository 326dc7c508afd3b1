"""Messages along edges whose weights vary: softmax over how alike the two ends of an edge are.

Shapes: E edges, R rows (nodes), D width. No gradient is added up by atomics: the edges are kept from both sides.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import normalize

from lightgc2n.graph.sequential import Edges
from lightgc2n.layers.propagation import RowSums

BLOCK = {"cpu": 2**14, "cuda": 2**20}  # edges whose ends are laid side by side at once


class EdgeList(nn.Module):
    """The edges between nodes, from both sides."""

    rows: Int[Tensor, "E"]
    order: Int[Tensor, "E"]  # the edges in the order of their columns

    def __init__(self, edges: Edges) -> None:
        super().__init__()
        self.to_rows, self.to_columns = RowSums(edges), RowSums(edges.transposed())
        rows = np.repeat(np.arange(len(edges.offsets) - 1), np.diff(edges.offsets))
        for name, array in (("rows", rows), ("order", np.lexsort((rows, edges.columns)))):
            self.register_buffer(name, torch.from_numpy(array), persistent=False)

    def sums(self, table: Float[Tensor, "R D"], weights: Float[Tensor, "E"]) -> Float[Tensor, "R D"]:
        """For each row the weighted sum over its columns."""
        return self.to_rows(table.contiguous(), weights)

    def sums_back(self, table: Float[Tensor, "R D"], weights: Float[Tensor, "E"]) -> Float[Tensor, "R D"]:
        """For each column the weighted sum over its rows."""
        return self.to_columns(table.contiguous(), weights[self.order])

    def products(self, rows: Float[Tensor, "R D"], columns: Float[Tensor, "R D"]) -> Float[Tensor, "E"]:
        """For each edge the product of its two ends."""
        return edge_products(rows, self.rows, columns, self.to_rows.columns)

    def totals(self, values: Float[Tensor, "E"]) -> Float[Tensor, "R"]:
        """For each row the sum of the values at its edges."""
        return torch.segment_reduce(values, "sum", offsets=self.to_rows.offsets, initial=0, unsafe=True)


def edge_products(
    first: Float[Tensor, "R D"], row: Int[Tensor, "E"], second: Float[Tensor, "S D"], column: Int[Tensor, "E"]
) -> Float[Tensor, "E"]:
    """first[row] · second[column], some edges at a time: the table of all ends would be far larger than the nodes."""
    found = first.new_empty(len(row))
    size = BLOCK[first.device.type]
    for start in range(0, len(row), size):
        part = slice(start, start + size)
        ends = first.index_select(0, row[part]) * second.index_select(0, column[part])
        torch.sum(ends, dim=1, out=found[part])
    return found


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
        strength = match.exp()  # a cosine is at most one, so nothing overflows
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


def likeness(table: Float[Tensor, "R D"], edges: EdgeList) -> Float[Tensor, "E"]:
    """Softmax over the edges of each row of the cosine of their two ends."""
    match = _Match.apply(normalize(table), edges)  # type: ignore[no-untyped-call]
    return _Softmax.apply(match, edges)  # type: ignore[no-untyped-call]


def heard_along(table: Float[Tensor, "R D"], weights: Float[Tensor, "E"], edges: EdgeList) -> Float[Tensor, "R D"]:
    """For each row the weighted sum over its neighbours."""
    return _Sum.apply(table, weights, edges)  # type: ignore[no-untyped-call]


class EvenWeights(nn.Module):
    """Every neighbour counts 1, so that a row hears a sum."""

    def __init__(self, edges: int) -> None:
        super().__init__()

    def forward(self, table: Float[Tensor, "R D"], edges: EdgeList) -> Float[Tensor, "E"]:
        return edges.to_rows.weights

    def refresh(self, table: Float[Tensor, "R D"], edges: EdgeList) -> None:
        pass

    def of_newcomers(
        self, match: Float[Tensor, "P"], row: Int[Tensor, "P"], own: Float[Tensor, "B"]
    ) -> tuple[Float[Tensor, "P"], Float[Tensor, "B"]]:
        """How much each neighbour of accounts outside the graph counts, and each account for itself."""
        return torch.ones_like(match), torch.ones_like(own)


class LikenessWeights(EvenWeights):
    """Neighbours count by their likeness now; gradients flow through it."""

    def forward(self, table: Float[Tensor, "R D"], edges: EdgeList) -> Float[Tensor, "E"]:
        return likeness(table, edges)

    def of_newcomers(
        self, match: Float[Tensor, "P"], row: Int[Tensor, "P"], own: Float[Tensor, "B"]
    ) -> tuple[Float[Tensor, "P"], Float[Tensor, "B"]]:
        total = own.exp().index_add(0, row, match.exp())
        return match.exp() / total[row], own.exp() / total


class RefreshedWeights(LikenessWeights):
    """Neighbours count by the likeness that they had at the start of the epoch."""

    kept: Float[Tensor, "E"]

    def __init__(self, edges: int) -> None:
        super().__init__(edges)
        self.register_buffer("kept", torch.ones(edges))  # saved: the table goes on to change within the epoch

    def forward(self, table: Float[Tensor, "R D"], edges: EdgeList) -> Float[Tensor, "E"]:
        return self.kept

    @torch.no_grad()
    def refresh(self, table: Float[Tensor, "R D"], edges: EdgeList) -> None:
        self.kept.copy_(likeness(table, edges))

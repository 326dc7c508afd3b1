"""What accounts hear of their items (Eq. 5) and the plain sum beside it, in one pass over the edges.

Shapes: N accounts, B accounts at hand, M items, E edges, A latent users, D width.
"""

from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

if TYPE_CHECKING:
    from lightgc2n.layers.propagation import EveryAccountListens

NEIGHBOURS = 16  # neighbours that one program reads at a time, for each latent user of its account


def listen(
    users: Float[Tensor, "B A D"],
    items: Float[Tensor, "M D"],
    graph: "EveryAccountListens",
    rows: Int[Tensor, "B"] | None = None,
) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B A D"]]:
    """For each account the weighted sum of its items, and what its latent users attend to.

    Nothing is subtracted before the exponential: a match is at most the scale of Eq. 5, for capsules are short.

    Args:
        rows: the row of each account among the edges; all rows in their order if it is left out.
    """
    return _Listen.apply(users.contiguous(), items.contiguous(), graph, rows)  # type: ignore[no-untyped-call]


class _Listen(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, users: Tensor, items: Tensor, graph: "EveryAccountListens", rows: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        heard, summed = torch.empty_like(users), users.new_empty(len(users), users.shape[2])
        halves = users.new_empty(users.shape[:2])
        edges = graph.plain.sums
        index = edges.offsets if rows is None else rows  # a pointer must be given even where it is not read
        given = (users, items, edges.columns, edges.weights, edges.offsets, index, heard, summed, halves)
        _listen[(len(users),)](*given, ALL=rows is None, **_sizes(users))
        ctx.save_for_backward(users, items, heard, halves, index)
        ctx.graph, ctx.everybody = graph, rows is None
        return summed, heard

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        users, items, heard, halves, index = ctx.saved_tensors
        edges = ctx.graph.plain.sums
        to_users = torch.empty_like(users)
        # Of all accounts each edge is told, to be summed in order; few accounts add to the items themselves.
        found = items.new_empty(len(edges.columns), items.shape[1]) if ctx.everybody else torch.zeros_like(items)
        to_summed, to_heard = (gradient.contiguous() for gradient in gradients)
        given = (users, items, edges.columns, edges.weights, edges.offsets, index, heard, halves, to_heard, to_summed)
        _listen_backward[(len(users),)](*given, to_users, found, ALL=ctx.everybody, **_sizes(users))
        return to_users, ctx.graph.edges_of_item(found) if ctx.everybody else found, None, None


def _sizes(users: Tensor) -> dict[str, int]:
    _, people, width = users.shape
    padded = {"AP": triton.next_power_of_2(people), "DP": triton.next_power_of_2(width)}
    return {"A": people, "D": width, "T": NEIGHBOURS, "num_warps": 1, **padded}


@triton.jit
def _listen(
    users, items, columns, weights, offsets, rows, heard, summed, halves,
    ALL: tl.constexpr, A: tl.constexpr, AP: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    account = tl.program_id(0)
    row = account if ALL else tl.load(rows + account)
    first = tl.load(offsets + row)
    last = tl.load(offsets + row + 1)
    person, column = tl.arange(0, AP), tl.arange(0, DP)
    somebody = (person[:, None] < A) & (column[None, :] < D)
    own = (account * A + person[:, None]) * D + column[None, :]
    user = tl.load(users + own, mask=somebody, other=0.0)
    total = tl.zeros((AP,), dtype=tl.float32)
    attended = tl.zeros((AP, DP), dtype=tl.float32)
    plain = tl.zeros((DP,), dtype=tl.float32)
    for start in range(first, last, T):
        edge = start + tl.arange(0, T)
        known = edge < last
        item = tl.load(columns + edge, mask=known, other=0)
        there = known[:, None] & (column[None, :] < D)
        vector = tl.load(items + item[:, None] * D + column[None, :], mask=there, other=0.0)
        plain += tl.sum(tl.load(weights + edge, mask=known, other=0.0)[:, None] * vector, axis=0)
        match = tl.sum(user[:, None, :] * vector[None, :, :], axis=2)
        root = tl.where(known[None, :], tl.exp(match * 0.5), 0.0)
        total += tl.sum(root, axis=1)
        attended += tl.sum((root * root)[:, :, None] * vector[None, :, :], axis=1)
    safe = tl.where(total > 0, total, 1.0)
    tl.store(heard + own, attended / safe[:, None], mask=somebody)
    tl.store(summed + account * D + column, plain, mask=column < D)
    tl.store(halves + account * A + person, safe, mask=person < A)


@triton.jit
def _listen_backward(
    users, items, columns, weights, offsets, rows, heard, halves, to_heard, to_summed, to_users, to_items,
    ALL: tl.constexpr, A: tl.constexpr, AP: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    account = tl.program_id(0)
    row = account if ALL else tl.load(rows + account)
    first = tl.load(offsets + row)
    last = tl.load(offsets + row + 1)
    person, column = tl.arange(0, AP), tl.arange(0, DP)
    somebody = (person[:, None] < A) & (column[None, :] < D)
    own = (account * A + person[:, None]) * D + column[None, :]
    user = tl.load(users + own, mask=somebody, other=0.0)
    gradient = tl.load(to_heard + own, mask=somebody, other=0.0)
    plain = tl.load(to_summed + account * D + column, mask=column < D, other=0.0)
    total = tl.load(halves + account * A + person, mask=person < A, other=1.0)
    along = tl.sum(gradient * tl.load(heard + own, mask=somebody, other=0.0), axis=1)
    to_user = tl.zeros((AP, DP), dtype=tl.float32)
    for start in range(first, last, T):
        edge = start + tl.arange(0, T)
        known = edge < last
        item = tl.load(columns + edge, mask=known, other=0)
        there = known[:, None] & (column[None, :] < D)
        vector = tl.load(items + item[:, None] * D + column[None, :], mask=there, other=0.0)
        match = tl.sum(user[:, None, :] * vector[None, :, :], axis=2)
        root = tl.where(known[None, :] & (person[:, None] < A), tl.exp(match * 0.5), 0.0)
        share = root / total[:, None]
        weight = root * share
        # w = e^m / Z with Z = Σ e^(m/2), so that a match moves its own weight, and all of them through Z.
        to_match = weight * tl.sum(gradient[:, None, :] * vector[None, :, :], axis=2) - 0.5 * share * along[:, None]
        to_user += tl.sum(to_match[:, :, None] * vector[None, :, :], axis=1)
        to_item = tl.sum(weight[:, :, None] * gradient[:, None, :] + to_match[:, :, None] * user[:, None, :], axis=0)
        to_item += tl.load(weights + edge, mask=known, other=0.0)[:, None] * plain[None, :]
        if ALL:
            tl.store(to_items + edge[:, None] * D + column[None, :], to_item, mask=there)
        else:
            tl.atomic_add(to_items + item[:, None] * D + column[None, :], to_item, mask=there)
    tl.store(to_users + own, to_user, mask=somebody)

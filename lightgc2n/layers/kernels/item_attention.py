"""Attention of latent users to the items of their account (Eq. 5), and the normalised sum, in one pass over the edges.

Shapes: N accounts, B accounts of a batch, M items, E edges, A latent users, D width.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from lightgc2n.layers.sparse import RowSums

NEIGHBOURS = 16  # neighbours that one program reads at a time, for each latent user of its account


def attend_and_sum(
    users: Float[Tensor, "B A D"],
    items: Float[Tensor, "M D"],
    edges: RowSums,
    edges_of_item: RowSums,
    rows: Int[Tensor, "B"] | None = None,
) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B A D"]]:
    """The weighted sum of the items of each account, and the attended items of its latent users.

    No maximum is subtracted before the exponential: capsules are short, so a match is at most the scale of Eq. 5.

    Args:
        rows: the row of each account among the edges; by default all rows in order.
    """
    return _AttendAndSum.apply(users.contiguous(), items.contiguous(), edges, edges_of_item, rows)  # type: ignore[no-untyped-call]


class _AttendAndSum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, users: Tensor, items: Tensor, edges: RowSums, edges_of_item: RowSums, rows: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        attended_out, summed = torch.empty_like(users), users.new_empty(len(users), users.shape[2])
        halves = users.new_empty(users.shape[:2])
        index = edges.offsets if rows is None else rows  # a kernel needs a pointer even where it is not read
        arguments = (users, items, edges.columns, edges.weights, edges.offsets, index, attended_out, summed, halves)
        _attend_and_sum[(len(users),)](*arguments, ALL=rows is None, **_sizes(users))
        ctx.save_for_backward(users, items, attended_out, halves, index)
        ctx.edges, ctx.edges_of_item, ctx.all_accounts = edges, edges_of_item, rows is None
        return summed, attended_out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        users, items, attended_out, halves, index = ctx.saved_tensors
        edges = ctx.edges
        to_users = torch.empty_like(users)
        # For all accounts, gradients are written by edge and summed in order; for a batch they are added by atomics.
        to_items_or_edges = (
            items.new_empty(len(edges.columns), items.shape[1]) if ctx.all_accounts else torch.zeros_like(items)
        )
        to_summed, to_attended = (gradient.contiguous() for gradient in gradients)
        arguments = (
            users,
            items,
            edges.columns,
            edges.weights,
            edges.offsets,
            index,
            attended_out,
            halves,
            to_attended,
            to_summed,
        )
        _attend_and_sum_backward[(len(users),)](
            *arguments, to_users, to_items_or_edges, ALL=ctx.all_accounts, **_sizes(users)
        )
        return (
            to_users,
            ctx.edges_of_item(to_items_or_edges) if ctx.all_accounts else to_items_or_edges,
            None,
            None,
            None,
        )


def _sizes(users: Tensor) -> dict[str, int]:
    _, people, width = users.shape
    padded = {"AP": triton.next_power_of_2(people), "DP": triton.next_power_of_2(width)}
    return {"A": people, "D": width, "T": NEIGHBOURS, "num_warps": 1, **padded}


@triton.jit
def _attend_and_sum(
    users, items, columns, weights, offsets, rows, attended_out, summed, halves,
    ALL: tl.constexpr, A: tl.constexpr, AP: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    account = tl.program_id(0)
    row = account if ALL else tl.load(rows + account)
    first = tl.load(offsets + row)
    last = tl.load(offsets + row + 1)
    person, column = tl.arange(0, AP), tl.arange(0, DP)
    inside = (person[:, None] < A) & (column[None, :] < D)
    own = (account * A + person[:, None]) * D + column[None, :]
    user = tl.load(users + own, mask=inside, other=0.0)
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
    tl.store(attended_out + own, attended / safe[:, None], mask=inside)
    tl.store(summed + account * D + column, plain, mask=column < D)
    tl.store(halves + account * A + person, safe, mask=person < A)


@triton.jit
def _attend_and_sum_backward(
    users, items, columns, weights, offsets, rows, attended_out, halves, to_attended, to_summed, to_users, to_items,
    ALL: tl.constexpr, A: tl.constexpr, AP: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    account = tl.program_id(0)
    row = account if ALL else tl.load(rows + account)
    first = tl.load(offsets + row)
    last = tl.load(offsets + row + 1)
    person, column = tl.arange(0, AP), tl.arange(0, DP)
    inside = (person[:, None] < A) & (column[None, :] < D)
    own = (account * A + person[:, None]) * D + column[None, :]
    user = tl.load(users + own, mask=inside, other=0.0)
    gradient = tl.load(to_attended + own, mask=inside, other=0.0)
    plain = tl.load(to_summed + account * D + column, mask=column < D, other=0.0)
    total = tl.load(halves + account * A + person, mask=person < A, other=1.0)
    along = tl.sum(gradient * tl.load(attended_out + own, mask=inside, other=0.0), axis=1)
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
        # w = e^m / Z with Z = Σ e^(m/2), so a match changes its own weight, and all weights through Z.
        to_match = weight * tl.sum(gradient[:, None, :] * vector[None, :, :], axis=2) - 0.5 * share * along[:, None]
        to_user += tl.sum(to_match[:, :, None] * vector[None, :, :], axis=1)
        to_item = tl.sum(weight[:, :, None] * gradient[:, None, :] + to_match[:, :, None] * user[:, None, :], axis=0)
        to_item += tl.load(weights + edge, mask=known, other=0.0)[:, None] * plain[None, :]
        if ALL:
            tl.store(to_items + edge[:, None] * D + column[None, :], to_item, mask=there)
        else:
            tl.atomic_add(to_items + item[:, None] * D + column[None, :], to_item, mask=there)
    tl.store(to_users + own, to_user, mask=inside)

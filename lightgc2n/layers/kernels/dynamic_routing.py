"""Dynamic routing (Eq. 12, 13), all iterations in one pass.

Shapes: N accounts, A latent users, D width, S iterations.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from lightgc2n.layers.kernels.squash import squashed, unsquash


def route(
    users: Float[Tensor, "N A D"], start: Float[Tensor, "A D"], weight: Float[Tensor, "D D"], steps: int
) -> Float[Tensor, "N D"]:
    """`models.lightgc2n.capsules.DynamicRouting`."""
    return _Route.apply(users.contiguous(), start, weight, steps)  # type: ignore[no-untyped-call]


class _Route(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, users: Tensor, start: Tensor, weight: Tensor, steps: int) -> Tensor:
        output, couplings = users.new_empty(len(users), users.shape[2]), users.new_empty(steps, *users.shape)
        grid, sizes = _launch(users)
        _route[grid](users, start, weight, couplings, output, len(users), S=steps, **sizes)
        ctx.save_for_backward(users, weight, couplings)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        users, weight, couplings = ctx.saved_tensors
        to_users = torch.empty_like(users)
        grid, sizes = _launch(users)
        partial = weight.new_empty(grid[0], *weight.shape)
        arguments = (users, weight, couplings, gradients[0].contiguous(), to_users, partial, len(users))
        _route_backward[grid](*arguments, S=len(couplings), **sizes)
        return to_users, None, partial.sum(dim=0), None


def _launch(users: Tensor) -> tuple[tuple[int], dict[str, Any]]:
    accounts, people, width = users.shape
    padded = triton.next_power_of_2(people)
    block = max(1, 16 // padded)  # tl.dot needs at least 16 x 16
    sizes = {"A": people, "AP": padded, "D": width, "DP": max(16, triton.next_power_of_2(width)), "R": block}
    return (max(1, triton.cdiv(accounts, block)),), sizes | {"num_warps": 1}


@triton.jit
def _over_people(rows, R: tl.constexpr, AP: tl.constexpr, DP: tl.constexpr):
    """The sum over the latent users of each account, broadcast to each of them."""
    total = tl.sum(tl.reshape(rows, (R, AP, DP)), axis=1)
    return tl.reshape(tl.broadcast_to(total[:, None, :], (R, AP, DP)), (R * AP, DP))


@triton.jit
def _route(
    users, start, weight, couplings, output, count,
    S: tl.constexpr, A: tl.constexpr, AP: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    line = tl.arange(0, R * AP)
    account, person, column = tl.program_id(0) * R + line // AP, line % AP, tl.arange(0, DP)
    there = ((account < count) & (person < A))[:, None] & (column[None, :] < D)
    place = (account * A + person)[:, None] * D + column[None, :]
    square = (column[:, None] < D) & (column[None, :] < D)
    across = tl.load(weight + column[None, :] * D + column[:, None], mask=square, other=0.0)
    user = tl.load(users + place, mask=there, other=0.0)
    coupling = tl.load(start + person[:, None] * D + column[None, :], mask=there, other=0.0)
    tl.store(couplings + place, coupling, mask=there)
    for step in tl.static_range(1, S):
        routed = _over_people(squashed(coupling * user), R, AP, DP)  # Eq. 12
        coupling += tl.dot(user * routed, across, input_precision="ieee")  # Eq. 13
        tl.store(couplings + step * count * A * D + place, coupling, mask=there)
    total = tl.sum(tl.reshape(squashed(coupling * user), (R, AP, DP)), axis=1)  # Eq. 12
    mine = tl.program_id(0) * R + tl.arange(0, R)
    inside = (mine[:, None] < count) & (column[None, :] < D)
    tl.store(output + mine[:, None] * D + column[None, :], total, mask=inside)


@triton.jit
def _route_backward(
    users, weight, couplings, gradients, to_users, partial, count,
    S: tl.constexpr, A: tl.constexpr, AP: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    line = tl.arange(0, R * AP)
    account, person, column = tl.program_id(0) * R + line // AP, line % AP, tl.arange(0, DP)
    there = ((account < count) & (person < A))[:, None] & (column[None, :] < D)
    place = (account * A + person)[:, None] * D + column[None, :]
    square = (column[:, None] < D) & (column[None, :] < D)
    down = column[:, None] * D + column[None, :]
    straight = tl.load(weight + down, mask=square, other=0.0)
    user = tl.load(users + place, mask=there, other=0.0)
    coupling = tl.load(couplings + (S - 1) * count * A * D + place, mask=there, other=0.0)
    gradient = tl.load(gradients + account[:, None] * D + column[None, :], mask=there, other=0.0)
    to_term = unsquash(coupling * user, gradient)
    to_coupling = to_term * user
    to_user = to_term * coupling
    to_weight = tl.zeros((DP, DP), dtype=tl.float32)
    for back in tl.static_range(1, S):
        coupling = tl.load(couplings + (S - 1 - back) * count * A * D + place, mask=there, other=0.0)
        routed = _over_people(squashed(coupling * user), R, AP, DP)
        agreed = tl.dot(to_coupling, straight, input_precision="ieee")
        to_weight += tl.dot(tl.trans(to_coupling), user * routed, input_precision="ieee")
        to_user += agreed * routed
        to_term = unsquash(coupling * user, _over_people(agreed * user, R, AP, DP))
        to_coupling += to_term * user
        to_user += to_term * coupling
    tl.store(to_users + place, to_user, mask=there)
    tl.store(partial + tl.program_id(0) * D * D + down, to_weight, mask=square)

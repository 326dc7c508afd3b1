"""π-Net's way from one domain to the other: a filter that splits an account among latent members, then a gated unit.

Shapes: B logs, X events of the source, Y of the target, Q questions, K members, E width of a member, H of a state.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import dropout, pad

from lightgc2n.layers.gated import GatedUnit, drawn, states_after
from lightgc2n.layers.unrolling import Parts, Prepared, side_by_side


class Members(nn.Module):
    """What each latent member adds to the gate and to the candidate of a filter."""

    def __init__(self, members: int, member_width: int, width: int) -> None:
        super().__init__()
        self.table = drawn(members, member_width)  # m
        self.to_gate = drawn(member_width, width)  # V_f
        self.to_candidate = drawn(member_width, width)  # V_c

    def forward(self) -> tuple[Float[Tensor, "K H"], Float[Tensor, "K H"]]:
        return self.table @ self.to_gate, self.table @ self.to_candidate


class MembersOfTheGate(nn.Module):
    """The slip of the released code: the candidate gets what the gate gets, and no map of its own."""

    def __init__(self, members: int, member_width: int, width: int) -> None:
        super().__init__()
        self.table = drawn(members, member_width)
        self.to_gate = drawn(member_width, width)

    def forward(self) -> tuple[Float[Tensor, "K H"], Float[Tensor, "K H"]]:
        gate = self.table @ self.to_gate
        return gate, gate


class SharedFilter(nn.Module):
    """The shared-account filter unit: one state for all members, who filter it together."""

    def __init__(self, width: int, members: nn.Module) -> None:
        super().__init__()
        self.width, self.members = width, members
        self.gate = drawn(3 * width, width)  # rows of p, q and s
        self.gate_bias = nn.Parameter(torch.ones(width))
        self.candidate = drawn(2 * width, width)  # rows of p and s
        self.candidate_bias = nn.Parameter(torch.ones(width))

    def forward(
        self,
        own: Float[Tensor, "B X H"],
        other: Float[Tensor, "B X H"],
        start: Float[Tensor, "B H"] | None = None,
    ) -> Float[Tensor, "B X H"]:
        """The state after every event of the source.

        Args:
            own: the source's state at the event, p.
            other: the target's state when the event came, q.
            start: the state before the first event, s_0; zeros if it is not given.
        """
        return self.prepared(own, other, start).run()

    def prepared(
        self,
        own: Float[Tensor, "B X H"],
        other: Float[Tensor, "B X H"],
        start: Float[Tensor, "B H"] | None = None,
        length: Int[Tensor, "B"] | None = None,
    ) -> Prepared:
        """The recurrence before its first event."""
        # The candidate does not see the other domain.
        candidate = pad(self.candidate[: self.width], (0, 0, 0, self.width))
        of_inputs = torch.cat([self.gate[: 2 * self.width], candidate], dim=1)
        bias = torch.cat([self.gate_bias, self.candidate_bias])
        of_state = torch.cat([self.gate[2 * self.width :], self.candidate[self.width :]], dim=1)
        weights = of_state, torch.cat(self.members(), dim=1)
        start = torch.zeros_like(own[:, 0]) if start is None else start
        return Prepared(Filtering(), torch.cat([own, other], dim=-1), of_inputs, bias, weights, start, length)


class Filtering:
    """The weights are those of the state and what each member adds, both for the gate and then for the candidate."""

    @staticmethod
    def step(given: Tensor, before: Tensor, of_state: Tensor, of_members: Tensor) -> tuple[Tensor, Parts]:
        told = torch.baddbmm(given, before, of_state)[:, :, None] + of_members[:, None]
        to_gate, to_candidate = told.chunk(2, dim=-1)
        gate = to_gate.sigmoid()  # f = σ(p W_p + q W_q + s W_s + m V_f + b_f)
        candidate = to_candidate.tanh()  # c = tanh(p C_p + s C_s + m V_c + b_c)
        after = torch.lerp(candidate, before[:, :, None], gate).mean(dim=2)  # Σ_k [f ⊙ s + (1 - f) ⊙ c] / K
        return after, (gate, candidate)

    @staticmethod
    def factors(before: Tensor, gate: Tensor, candidate: Tensor) -> Parts:
        """To gate and candidate, all members together, and to the old state."""
        return _to_members(before, gate, candidate).sum(dim=2), gate.mean(dim=2)

    @staticmethod
    def back(gradient: Tensor, factors: Parts, of_state: Tensor, of_members: Tensor) -> tuple[Tensor, Tensor]:
        inner = (gradient[:, :, None] * factors[0]).flatten(2)
        return torch.baddbmm(gradient * factors[1], inner, of_state.mT), inner

    @staticmethod
    def ends(gradient: Tensor, inner: Tensor, before: Tensor, parts: Parts, *weights: Tensor) -> Parts:
        of_members = (_to_members(before, *parts) * gradient[:, :, None, None]).sum(dim=1)
        return inner, before.mT @ inner, of_members.flatten(2)


def _to_members(
    before: Float[Tensor, "S N H"], gate: Float[Tensor, "S N K H"], candidate: Float[Tensor, "S N K H"]
) -> Float[Tensor, "S N K 2 H"]:
    """What the gradient of a state is multiplied with on its way to each member's gate and candidate."""
    new = (1 - gate) / gate.shape[2]
    to_gate = (before[:, :, None] - candidate) * gate * new
    return torch.stack([to_gate, (1 - candidate.square()) * new], dim=3)


@dataclass(frozen=True)
class Heard:
    """What one domain, the target, hears of another, the source."""

    source: Float[Tensor, "B X H"]  # the source's states, which drive the transfer
    beside: Float[Tensor, "B X H"]  # the target's state when each of the source's events came
    length: Int[Tensor, "B"]  # how many events of the source there are
    target: Float[Tensor, "B Y H"]  # the target's states
    source_shown: Int[Tensor, "B Q"]  # how many of the source's events came before each question
    target_shown: Int[Tensor, "B Q"]  # and how many of the target's


class Transfer(nn.Module):
    """Two recurrences along the source's events, and what they tell to a question."""

    def __init__(self, dropped: float) -> None:
        super().__init__()
        self.dropped = dropped

    @staticmethod
    def tell(transfers: Sequence[nn.Module], heard: Sequence[Heard]) -> list[Float[Tensor, "B Q _"]]:
        """For each transfer one vector a question."""
        units = [cast(Transfer, unit) for unit in transfers]
        first = side_by_side([unit.split_up(one) for unit, one in zip(units, heard, strict=True)])
        between = zip(units, first, heard, strict=True)
        second = side_by_side([unit.carry(states, one) for unit, states, one in between])
        return [unit.answer(states, one) for unit, states, one in zip(units, second, heard, strict=True)]

    @abstractmethod
    def split_up(self, heard: Heard) -> Prepared:
        """What the source's events say, by latent members."""

    @abstractmethod
    def carry(self, states: Tensor, heard: Heard) -> Prepared:
        """What is carried over of those states."""

    @abstractmethod
    def answer(self, states: Tensor, heard: Heard) -> Float[Tensor, "B Q _"]:
        """What a question is told."""

    def drop(self, states: Tensor) -> Tensor:
        return dropout(states, self.dropped, self.training)


class FilterTransfer(Transfer):
    """Filter, then the cross-domain transfer unit: what the source's events up to a question say of the target."""

    def __init__(self, width: int, members: nn.Module, dropped: float) -> None:
        super().__init__(dropped)
        self.filter, self.transfer = SharedFilter(width, members), GatedUnit(width, width)

    def split_up(self, heard: Heard) -> Prepared:
        return self.filter.prepared(self.drop(heard.source), self.drop(heard.beside), length=heard.length)

    def carry(self, states: Float[Tensor, "B X H"], heard: Heard) -> Prepared:
        return self.transfer.prepared(self.drop(states), length=heard.length)

    def answer(self, states: Float[Tensor, "B X H"], heard: Heard) -> Float[Tensor, "B Q H"]:
        return states_after(states, heard.source_shown)  # z


class NoTransfer(nn.Module):
    """The ablation: domains that know nothing of each other."""

    def __init__(self, width: int, members: nn.Module, dropped: float) -> None:
        super().__init__()

    @staticmethod
    def tell(transfers: Sequence[nn.Module], heard: Sequence[Heard]) -> list[Float[Tensor, "B Q 0"]]:
        return [one.source.new_zeros(*one.source_shown.shape, 0) for one in heard]

"""The transfer of π-Net: the shared-account filter unit (SFU) with latent members, then the cross-domain transfer unit.

Shapes: B logs, X events of the source, Y of the target, Q queries, K members, E width of a member, H of a state.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import dropout, pad

from lightgc2n.baselines.pi_net.batched_rnn import Parts, Prepared, side_by_side
from lightgc2n.baselines.pi_net.gated_unit import GatedUnit, drawn, states_after


class Members(nn.Module):
    """The contribution of each latent member to gate and candidate of the filter."""

    def __init__(self, members: int, member_width: int, width: int) -> None:
        super().__init__()
        self.table = drawn(members, member_width)  # m
        self.to_gate = drawn(member_width, width)  # V_f
        self.to_candidate = drawn(member_width, width)  # V_c

    def forward(self) -> tuple[Float[Tensor, "K H"], Float[Tensor, "K H"]]:
        return self.table @ self.to_gate, self.table @ self.to_candidate


class MembersOfTheGate(nn.Module):
    """As in the released code: gate and candidate share one map of the members."""

    def __init__(self, members: int, member_width: int, width: int) -> None:
        super().__init__()
        self.table = drawn(members, member_width)
        self.to_gate = drawn(member_width, width)

    def forward(self) -> tuple[Float[Tensor, "K H"], Float[Tensor, "K H"]]:
        gate = self.table @ self.to_gate
        return gate, gate


class FilterUnit(nn.Module):
    """The parameters of both filter units: a gate that reads p, q and s, and a candidate that reads p and s."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.gate = drawn(3 * width, width)  # rows of p, q and s
        self.gate_bias = nn.Parameter(torch.ones(width))
        self.candidate = drawn(2 * width, width)  # rows of p and s
        self.candidate_bias = nn.Parameter(torch.ones(width))

    def maps(self) -> tuple[Float[Tensor, "H_and_H H_and_H"], Float[Tensor, "H_and_H"], Float[Tensor, "H H_and_H"]]:
        """The map of [p ; q] to gate and candidate, its bias, and the map of s."""
        # The candidate does not depend on the other domain.
        candidate = pad(self.candidate[: self.width], (0, 0, 0, self.width))
        of_inputs = torch.cat([self.gate[: 2 * self.width], candidate], dim=1)
        of_state = torch.cat([self.gate[2 * self.width :], self.candidate[self.width :]], dim=1)
        return of_inputs, torch.cat([self.gate_bias, self.candidate_bias]), of_state


class SharedFilter(FilterUnit):
    """The shared-account filter unit: one state, filtered by all members."""

    def __init__(self, width: int, members: nn.Module) -> None:
        super().__init__(width)
        self.members = members

    def prepared(
        self,
        own: Float[Tensor, "B X H"],
        other: Float[Tensor, "B X H"],
        start: Float[Tensor, "B H"] | None = None,
        length: Int[Tensor, "B"] | None = None,
    ) -> Prepared:
        """The recurrence, ready to run; it returns the state after every event of the source.

        Args:
            own: the source's state at the event, p.
            other: the target's state at the time of the event, q.
            start: the initial state, s_0; zero by default.
        """
        of_inputs, bias, of_state = self.maps()
        weights = of_state, torch.cat(self.members(), dim=1)
        start = torch.zeros_like(own[:, 0]) if start is None else start
        return Prepared(Filtering(), torch.cat([own, other], dim=-1), of_inputs, bias, weights, start, length)


class Filtering:
    """The recurrence of `SharedFilter`; its weights are of the state and of the members, for gate and candidate."""

    @staticmethod
    def step(mapped: Tensor, before: Tensor, of_state: Tensor, of_members: Tensor) -> tuple[Tensor, Parts]:
        preactivation = torch.baddbmm(mapped, before, of_state)[:, :, None] + of_members[:, None]
        to_gate, to_candidate = preactivation.chunk(2, dim=-1)
        gate = to_gate.sigmoid()  # f = σ(p W_p + q W_q + s W_s + m V_f + b_f)
        candidate = to_candidate.tanh()  # c = tanh(p C_p + s C_s + m V_c + b_c)
        after = torch.lerp(candidate, before[:, :, None], gate).mean(dim=2)  # Σ_k [f ⊙ s + (1 - f) ⊙ c] / K
        return after, (gate, candidate)

    @staticmethod
    def factors(before: Tensor, gate: Tensor, candidate: Tensor) -> Parts:
        """The derivatives to gate and candidate, summed over members, and to the old state."""
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
    """The derivatives of the next state by the gate and the candidate of each member."""
    new = (1 - gate) / gate.shape[2]
    to_gate = (before[:, :, None] - candidate) * gate * new
    return torch.stack([to_gate, (1 - candidate.square()) * new], dim=3)


@dataclass(frozen=True)
class TransferInputs:
    """The inputs of a transfer from one domain, the source, to another, the target."""

    source: Float[Tensor, "B X H"]  # the source's states
    beside: Float[Tensor, "B X H"]  # the target's state at the time of each event of the source
    length: Int[Tensor, "B"] | None  # the number of events of the source; None: as many as places
    target: Float[Tensor, "B Y H"]  # the target's states
    source_shown: Int[Tensor, "B Q"]  # the number of events of the source before each query
    target_shown: Int[Tensor, "B Q"]  # the number of events of the target before each query


class Transfer(nn.Module):
    """Two recurrences along the source's events, and an output for each query."""

    def __init__(self, dropped: float) -> None:
        super().__init__()
        self.dropped = dropped

    @staticmethod
    def run_all(transfers: Sequence[nn.Module], inputs: Sequence[TransferInputs]) -> list[Float[Tensor, "B Q _"]]:
        """One vector for each query, for each transfer."""
        units = [cast(Transfer, unit) for unit in transfers]
        first = side_by_side([unit.first_recurrence(one) for unit, one in zip(units, inputs, strict=True)])
        between = zip(units, first, inputs, strict=True)
        second = side_by_side([unit.second_recurrence(states, one) for unit, states, one in between])
        return [unit.output(states, one) for unit, states, one in zip(units, second, inputs, strict=True)]

    @abstractmethod
    def first_recurrence(self, inputs: TransferInputs) -> Prepared:
        """The first recurrence: the source's events, by latent members."""

    @abstractmethod
    def second_recurrence(self, states: Tensor, inputs: TransferInputs) -> Prepared:
        """The second recurrence, along the states of the first."""

    @abstractmethod
    def output(self, states: Tensor, inputs: TransferInputs) -> Float[Tensor, "B Q _"]:
        """The output for each query."""

    def drop(self, states: Tensor) -> Tensor:
        return dropout(states, self.dropped, self.training)


class FilterTransfer(Transfer):
    """π-Net: the filter, then a GRU along its states."""

    def __init__(self, width: int, members: nn.Module, dropped: float) -> None:
        super().__init__(dropped)
        self.filter, self.transfer = SharedFilter(width, members), GatedUnit(width, width)

    def first_recurrence(self, inputs: TransferInputs) -> Prepared:
        return self.filter.prepared(self.drop(inputs.source), self.drop(inputs.beside), length=inputs.length)

    def second_recurrence(self, states: Float[Tensor, "B X H"], inputs: TransferInputs) -> Prepared:
        return self.transfer.prepared(self.drop(states), length=inputs.length)

    def output(self, states: Float[Tensor, "B X H"], inputs: TransferInputs) -> Float[Tensor, "B Q H"]:
        return states_after(states, inputs.source_shown)  # z


class NoTransfer(nn.Module):
    """Ablation: no transfer between domains."""

    def __init__(self, width: int, members: nn.Module, dropped: float) -> None:
        super().__init__()

    @staticmethod
    def run_all(transfers: Sequence[nn.Module], inputs: Sequence[TransferInputs]) -> list[Float[Tensor, "B Q 0"]]:
        return [one.source.new_zeros(*one.source_shown.shape, 0) for one in inputs]

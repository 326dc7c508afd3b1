"""π-Net's way from one domain to the other: a filter that splits an account among latent members, then a gated unit.

Shapes: B logs, X events of the source, Y of the target, Q questions, K members, E width of a member, H of a state.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import dropout

from lightgc2n.layers.gated import GatedUnit, drawn, states_after


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
        of_members = torch.cat(self.members(), dim=1)
        of_state = torch.cat([self.gate[2 * self.width :], self.candidate[self.width :]], dim=1)
        state, states = torch.zeros_like(own[:, 0]) if start is None else start, []
        for given in self._given(own, other).unbind():
            told = torch.addmm(given, state, of_state)[:, None] + of_members
            gate = told[..., : self.width].sigmoid()  # f = σ(p W_p + q W_q + s W_s + m V_f + b_f)
            candidate = told[..., self.width :].tanh()  # c = tanh(p C_p + s C_s + m V_c + b_c)
            state = torch.lerp(candidate, state[:, None], gate).mean(dim=1)  # Σ_k [f ⊙ s + (1 - f) ⊙ c] / K
            states.append(state)
        return torch.stack(states, dim=1)

    def _given(self, own: Float[Tensor, "B X H"], other: Float[Tensor, "B X H"]) -> Float[Tensor, "X B 2*H"]:
        """What does not depend on the state, for gate and candidate, event by event."""
        both = torch.cat([own, other], dim=-1).transpose(0, 1)
        gate = both @ self.gate[: 2 * self.width] + self.gate_bias
        candidate = own.transpose(0, 1) @ self.candidate[: self.width] + self.candidate_bias
        return torch.cat([gate, candidate], dim=-1)


class FilterTransfer(nn.Module):
    """Filter, then the cross-domain transfer unit: what the source's events up to a question say of the target."""

    def __init__(self, width: int, members: nn.Module, dropped: float) -> None:
        super().__init__()
        self.dropped = dropped
        self.filter, self.transfer = SharedFilter(width, members), GatedUnit(width, width)

    def forward(
        self,
        source: Float[Tensor, "B X H"],
        beside: Float[Tensor, "B X H"],
        target: Float[Tensor, "B Y H"],
        shown: tuple[Int[Tensor, "B Q"], Int[Tensor, "B Q"]],
    ) -> Float[Tensor, "B Q H"]:
        """One vector for each question.

        Args:
            source: the source's states, which drive the transfer.
            beside: the target's state when each of the source's events came.
            target: the target's states.
            shown: for each question, how many events of the source and of the target came before it.
        """
        own, other = (dropout(states, self.dropped, self.training) for states in (source, beside))
        filtered = dropout(self.filter(own, other), self.dropped, self.training)
        return states_after(self.transfer(filtered), shown[0])  # z


class NoTransfer(nn.Module):
    """The ablation: domains that know nothing of each other."""

    def __init__(self, width: int, members: nn.Module, dropped: float) -> None:
        super().__init__()

    def forward(
        self,
        source: Float[Tensor, "B X H"],
        beside: Float[Tensor, "B X H"],
        target: Float[Tensor, "B Y H"],
        shown: tuple[Int[Tensor, "B Q"], Int[Tensor, "B Q"]],
    ) -> Float[Tensor, "B Q 0"]:
        return source.new_zeros(*shown[0].shape, 0)

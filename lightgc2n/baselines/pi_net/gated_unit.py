"""The GRU of π-Net and PSJNet: the reset gate acts before the product with the old state, and there is one bias.

Shapes: B logs, T longest log, Q queries, I width of an input, H width of a state.
Padding is on the right and states are looked up by the number of events, so no step needs a mask.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from lightgc2n.baselines.pi_net.batched_rnn import Parts, Prepared


def drawn(rows: int, columns: int) -> nn.Parameter:
    """A matrix with Xavier normal initialisation."""
    return nn.Parameter(nn.init.xavier_normal_(torch.empty(rows, columns)))


class GatedUnit(nn.Module):
    """The unit; it returns a state for every event of a log."""

    def __init__(self, input_width: int, width: int) -> None:
        super().__init__()
        self.input_width, self.width = input_width, width
        self.gates = drawn(input_width + width, 2 * width)  # W_g, columns of r before those of u
        self.gates_bias = nn.Parameter(torch.ones(2 * width))
        self.candidate = drawn(input_width + width, width)  # W_c
        self.candidate_bias = nn.Parameter(torch.zeros(width))

    def prepared(
        self,
        inputs: Float[Tensor, "B T I"],
        start: Float[Tensor, "B H"] | None = None,
        length: Int[Tensor, "B"] | None = None,
    ) -> Prepared:
        """The recurrence, ready to run; it returns the state after every event, and starts at zero by default."""
        of_inputs = torch.cat([self.gates[: self.input_width], self.candidate[: self.input_width]], dim=1)
        bias = torch.cat([self.gates_bias, self.candidate_bias])
        of_state = self.gates[self.input_width :], self.candidate[self.input_width :]
        start = inputs.new_zeros(len(inputs), self.width) if start is None else start
        return Prepared(Gating(), inputs, of_inputs, bias, of_state, start, length)


class Gating:
    """The recurrence of `GatedUnit`; its weights are those of the state, for the gates and for the candidate."""

    @staticmethod
    def step(mapped: Tensor, before: Tensor, to_gates: Tensor, to_candidate: Tensor) -> tuple[Tensor, Parts]:
        for_gates, for_candidate = mapped.tensor_split((2 * before.shape[-1],), dim=-1)
        gates = torch.baddbmm(for_gates, before, to_gates).sigmoid()  # (r, u) = σ([x ; h] W_g + b_g)
        reset, update = gates.chunk(2, dim=-1)
        candidate = torch.baddbmm(for_candidate, reset * before, to_candidate).tanh()  # c = tanh([x ; r ⊙ h] W_c + b_c)
        return torch.lerp(candidate, before, update), (gates, candidate)  # u ⊙ h + (1 - u) ⊙ c

    @staticmethod
    def factors(before: Tensor, gates: Tensor, candidate: Tensor) -> Parts:
        """The derivatives to update gate, candidate and old state; and of the reset product to reset gate and state."""
        reset, update = gates.chunk(2, dim=-1)
        to_update = (before - candidate) * update * (1 - update)
        to_candidate = (1 - update) * (1 - candidate.square())
        to_reset = before * reset * (1 - reset)
        return torch.stack([to_update, to_candidate, update], dim=-2), torch.stack([to_reset, reset], dim=-2)

    @staticmethod
    def back(gradient: Tensor, factors: Parts, to_gates: Tensor, to_candidate: Tensor) -> tuple[Tensor, Tensor]:
        of_update, of_candidate, old_state = (gradient.unsqueeze(-2) * factors[0]).unbind(dim=-2)
        of_reset, passed = ((of_candidate @ to_candidate.mT).unsqueeze(-2) * factors[1]).unbind(dim=-2)
        inner = torch.cat([of_reset, of_update, of_candidate], dim=-1)
        return torch.baddbmm(old_state + passed, inner[..., : to_gates.shape[-1]], to_gates.mT), inner

    @staticmethod
    def ends(gradient: Tensor, inner: Tensor, before: Tensor, parts: Parts, *weights: Tensor) -> Parts:
        reset = parts[0][..., : before.shape[-1]]
        of_gates, of_candidate = inner.tensor_split((2 * before.shape[-1],), dim=-1)
        return inner, before.mT @ of_gates, (reset * before).mT @ of_candidate


def states_after(states: Float[Tensor, "B T H"], events: Int[Tensor, "B Q"]) -> Float[Tensor, "B Q H"]:
    """The states after the given numbers of events; zero after none."""
    return pad(states, (0, 0, 1, 0)).take_along_dim(events[..., None], dim=1)

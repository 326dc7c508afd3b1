"""The gated unit of π-Net and PSJNet: the reset comes before the product with the old state, and there is one bias.

Shapes: B logs, T longest log, Q questions, I width of an input, H width of a state.
Padding stands on the right and states are looked up by how many events came before, so no step needs a mask: the state
of a log that has ended is the one after its last event.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad


def drawn(rows: int, columns: int) -> nn.Parameter:
    """A matrix of normal values with variance 2 / (rows + columns)."""
    return nn.Parameter(nn.init.xavier_normal_(torch.empty(rows, columns)))


class GatedUnit(nn.Module):
    """A state for every event of a log."""

    def __init__(self, input_width: int, width: int) -> None:
        super().__init__()
        self.input_width, self.width = input_width, width
        self.gates = drawn(input_width + width, 2 * width)  # W_g, columns of r before those of u
        self.gates_bias = nn.Parameter(torch.ones(2 * width))
        self.candidate = drawn(input_width + width, width)  # W_c
        self.candidate_bias = nn.Parameter(torch.zeros(width))

    def forward(
        self, inputs: Float[Tensor, "B T I"], start: Float[Tensor, "B H"] | None = None
    ) -> Float[Tensor, "B T H"]:
        """The state after every event; zeros are where it starts, unless told otherwise."""
        to_gates, to_candidate = self.gates[self.input_width :], self.candidate[self.input_width :]
        state, states = inputs.new_zeros(len(inputs), self.width) if start is None else start, []
        for for_gates, for_candidate in zip(*self._given(inputs), strict=True):
            reset, update = torch.addmm(for_gates, state, to_gates).sigmoid().chunk(2, dim=1)  # σ([x ; h] W_g + b_g)
            candidate = torch.addmm(for_candidate, reset * state, to_candidate).tanh()  # tanh([x ; r ⊙ h] W_c + b_c)
            state = torch.lerp(candidate, state, update)  # u ⊙ h + (1 - u) ⊙ c
            states.append(state)
        return torch.stack(states, dim=1)

    def _given(self, inputs: Float[Tensor, "B T I"]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """What the inputs alone give to gates and candidate, event by event."""
        in_time = inputs.transpose(0, 1)
        gates = in_time @ self.gates[: self.input_width] + self.gates_bias
        candidate = in_time @ self.candidate[: self.input_width] + self.candidate_bias
        return gates.unbind(), candidate.unbind()


def states_after(states: Float[Tensor, "B T H"], events: Int[Tensor, "B Q"]) -> Float[Tensor, "B Q H"]:
    """The states after so many events; zeros after none."""
    return pad(states, (0, 0, 1, 0)).take_along_dim(events[..., None], dim=1)

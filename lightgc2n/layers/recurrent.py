"""Gated recurrent units over logs, what they read and what they answer with.

Shapes: B logs, T longest log, M items, D width of an input, H width of a state.
Padding stands on the right, so that it never reaches the state of an event: no layer here needs a mask.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import dropout

# A GPU would otherwise round the products of a recurrence to ten bits, and rank other items first than a CPU.
torch.backends.cudnn.allow_tf32 = False


def new_gru(input_width: int, width: int) -> nn.GRU:
    """One layer with every gate's block of weights drawn by its own size, and no bias to start with."""
    gru = nn.GRU(input_width, width, batch_first=True)
    start_gates(gru)
    return gru


@torch.no_grad()
def start_gates(gru: nn.GRU | nn.GRUCell) -> None:
    """Uniform within ± √(6 / (rows + columns)) of a gate's block, since the three blocks only share their storage."""
    for parameter in gru.parameters():
        if parameter.dim() == 1:
            nn.init.zeros_(parameter)
        else:
            for block in parameter.chunk(3):
                nn.init.xavier_uniform_(block)


def whole_row(gru: nn.GRU, inputs: Float[Tensor, "B T D"], start: Float[Tensor, "B H"]) -> Float[Tensor, "B T H"]:
    """The state after every event; gradients flow back through the whole row."""
    return gru(inputs, start[None].contiguous())[0]


def one_step(gru: nn.GRU, inputs: Float[Tensor, "B T D"], start: Float[Tensor, "B H"]) -> Float[Tensor, "B T H"]:
    """The same states, each with the state before it taken as a value: gradients flow back through one event."""
    with torch.no_grad():
        values = whole_row(gru, inputs, start)
    before = torch.cat([start[:, None], values[:, :-1]], dim=1)
    states = whole_row(gru, inputs.flatten(0, 1)[:, None], before.flatten(0, 1))
    return states.view_as(values)


class GRUStack(nn.Module):
    """Some layers, each fed with the states of the one below it; only the first one has a start other than zero.

    Args:
        run: `whole_row` or `one_step`.
    """

    def __init__(
        self, input_width: int, width: int, layers: int, dropped: float, run: Callable[..., Tensor] = whole_row
    ) -> None:
        super().__init__()
        self.dropped, self.run = dropped, run
        self.layers = nn.ModuleList(new_gru(input_width if layer == 0 else width, width) for layer in range(layers))

    def forward(self, inputs: Float[Tensor, "B T D"], start: Float[Tensor, "B H"]) -> Float[Tensor, "B T H"]:
        states = inputs
        for layer in self.layers:
            # Differs: the official code also carries the dropped state to the next event; here only what leaves the
            # layer is dropped, as in other recurrent layers, so that one fused call can run over the row.
            states = dropout(self.run(layer, states, start), self.dropped, self.training)
            start = torch.zeros_like(start)
        return states


@dataclass(frozen=True)
class ItemVectors:
    """What an item looks like as an input and as an answer."""

    inputs: Float[Tensor, "M D"]
    outputs: Float[Tensor, "M H"]
    bias: Float[Tensor, "M"]

    def logits(self, states: Float[Tensor, "B H"]) -> Float[Tensor, "B M"]:
        return torch.addmm(self.bias, states, self.outputs.T)


class SharedItems(nn.Module):
    """One vector an item, which is both its input and its answer."""

    def __init__(self, items: int, width: int) -> None:
        super().__init__()
        self.inputs = _drawn(items, width)
        self.bias = nn.Parameter(torch.zeros(items))

    def forward(self) -> ItemVectors:
        return ItemVectors(self.inputs, self.inputs, self.bias)


class SeparateItems(nn.Module):
    """One vector an item for the input, another for the answer."""

    def __init__(self, items: int, width: int, output_width: int) -> None:
        super().__init__()
        self.inputs = _drawn(items, width)
        self.outputs = _drawn(items, output_width)
        self.bias = nn.Parameter(torch.zeros(items))

    def forward(self) -> ItemVectors:
        return ItemVectors(self.inputs, self.outputs, self.bias)


def _drawn(rows: int, columns: int) -> nn.Parameter:
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(rows, columns)))


def last_states(
    states: Float[Tensor, "B T H"], start: Float[Tensor, "B H"], length: Int[Tensor, "B"]
) -> Float[Tensor, "B H"]:
    """The state after the last event of each log; an empty log is still at its start."""
    after = torch.cat([start[:, None], states], dim=1)
    return after.take_along_dim(length[:, None, None], dim=1)[:, 0]

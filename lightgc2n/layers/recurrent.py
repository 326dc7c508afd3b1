"""GRUs over logs, and the item embeddings that they read and score with.

Shapes: B logs, T longest log, M items, D width of an input, H width of a state.
Padding is on the right, so it never reaches the state of an event and no layer needs a mask.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import dropout

from lightgc2n.errors import SettingError

# TF32 rounds products to ten bits, so that a GPU would rank differently from a CPU.
torch.backends.cudnn.allow_tf32 = False


def new_gru(input_width: int, width: int) -> nn.GRU:
    """A GRU layer with Xavier-initialised gates and zero biases."""
    gru = nn.GRU(input_width, width, batch_first=True)
    start_gates(gru)
    return gru


@torch.no_grad()
def start_gates(gru: nn.GRU | nn.GRUCell) -> None:
    """Xavier initialisation of each gate's block by its own size; PyTorch stores the three blocks in one matrix."""
    for parameter in gru.parameters():
        if parameter.dim() == 1:
            nn.init.zeros_(parameter)
        else:
            for block in parameter.chunk(3):
                nn.init.xavier_uniform_(block)


def whole_row(gru: nn.GRU, inputs: Float[Tensor, "B T D"], start: Float[Tensor, "B H"]) -> Float[Tensor, "B T H"]:
    """The state after every event; gradients flow through the whole row."""
    return gru(inputs, start[None].contiguous())[0]


def one_step(gru: nn.GRU, inputs: Float[Tensor, "B T D"], start: Float[Tensor, "B H"]) -> Float[Tensor, "B T H"]:
    """The same states, each with the previous state detached: gradients flow through one event."""
    with torch.no_grad():
        values = whole_row(gru, inputs, start)
    before = torch.cat([start[:, None], values[:, :-1]], dim=1)
    states = whole_row(gru, inputs.flatten(0, 1)[:, None], before.flatten(0, 1))
    return states.view_as(values)


class GRUStack(nn.Module):
    """Stacked GRU layers; only the first has an initial state other than zero.

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
            # Differs: the official code also drops the state that goes to the next event; here only the output is
            # dropped, as in other recurrent layers, so that one fused call runs over the row.
            states = dropout(self.run(layer, states, start), self.dropped, self.training)
            start = torch.zeros_like(start)
        return states


@dataclass(frozen=True)
class ItemVectors:
    """The input embeddings, output embeddings and biases of the items."""

    inputs: Float[Tensor, "M D"]
    outputs: Float[Tensor, "M H"]
    bias: Float[Tensor, "M"]

    def logits(self, states: Float[Tensor, "B H"]) -> Float[Tensor, "B M"]:
        return torch.addmm(self.bias, states, self.outputs.T)


class SharedItems(nn.Module):
    """One embedding for each item, used as input and output."""

    def __init__(self, items: int, width: int) -> None:
        super().__init__()
        self.inputs = _drawn(items, width)
        self.bias = nn.Parameter(torch.zeros(items))

    def forward(self) -> ItemVectors:
        return ItemVectors(self.inputs, self.inputs, self.bias)


class SeparateItems(nn.Module):
    """Separate input and output embeddings for each item."""

    def __init__(self, items: int, width: int, output_width: int) -> None:
        super().__init__()
        self.inputs = _drawn(items, width)
        self.outputs = _drawn(items, output_width)
        self.bias = nn.Parameter(torch.zeros(items))

    def forward(self) -> ItemVectors:
        return ItemVectors(self.inputs, self.outputs, self.bias)


def new_items(
    embeddings: str, items: int, width: int, output_width: int, model: str, setting: str
) -> SharedItems | SeparateItems:
    """The item embeddings; raise an error if shared ones differ in width from the states they are multiplied with.

    Args:
        embeddings: shared or separate.
        setting: the name of the setting with the output width, for the error.
    """
    if embeddings == "separate":
        return SeparateItems(items, width, output_width)
    if width != output_width:
        raise SettingError(
            f"{model}: shared embeddings are multiplied with states, so both must have the same width; width is "
            f"{width} and {setting} is {output_width}. Leave {setting} at 0, or set embeddings=separate."
        )
    return SharedItems(items, width)


def _drawn(rows: int, columns: int) -> nn.Parameter:
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(rows, columns)))


def last_states(
    states: Float[Tensor, "B T H"], start: Float[Tensor, "B H"], length: Int[Tensor, "B"]
) -> Float[Tensor, "B H"]:
    """The state after the last event of each log; the initial state for an empty log."""
    after = torch.cat([start[:, None], states], dim=1)
    return after.take_along_dim(length[:, None, None], dim=1)[:, 0]

"""A batched RNN with a hand-written backward pass, for several recurrences at once.

Shapes: S sides (the domains of mixed logs, each with its own weights), B logs, X longest log, P events without padding,
I width of an input, G width of its linear map; a state has any shape.
Autograd would run some thirty small products for each event and side. Here the local derivatives of all events are
computed at once, a backward step takes a few products for all sides, and the gradients of the weights are computed at
once. Logs are sorted by length, so that the logs that are not finished are always the first rows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

Parts = tuple[Tensor, ...]


@runtime_checkable
class Recurrence(Protocol):
    """The forward and backward step of a recurrent unit.

    All tensors have the sides first. Rows are the logs at one event, or all events concatenated.
    """

    @property
    def step(self) -> Callable[..., tuple[Tensor, Parts]]:
        """(mapped input, previous states, weights) -> the next states, and the gates and candidates."""

    @property
    def factors(self) -> Callable[..., Parts]:
        """(previous states, gates and candidates) -> the local derivatives that `back` multiplies with."""

    @property
    def back(self) -> Callable[..., tuple[Tensor, Tensor]]:
        """(gradient of the next states, factors, weights) -> gradients of the previous states and of the
        pre-activations of gates and candidates.
        """

    @property
    def ends(self) -> Callable[..., Parts]:
        """(gradients of all states and pre-activations, previous states, gates, weights) -> gradients of the mapped
        inputs and of the weights.
        """


@dataclass(frozen=True)
class Prepared:
    """A recurrence that is ready to run."""

    unit: Recurrence
    inputs: Float[Tensor, "B X I"]
    of_inputs: Float[Tensor, "I G"]  # the inputs are mapped linearly before the recurrence
    bias: Float[Tensor, "G"]
    weights: Parts
    start: Float[Tensor, "B *state"]
    length: Int[Tensor, "B"] | None = None  # None: all logs have the same length; nothing then waits for a GPU

    def run(self) -> Float[Tensor, "B X *state"]:
        """The state after every event; arbitrary values after the end of a log."""
        return side_by_side([self])[0]


def side_by_side(prepared: Sequence[Prepared]) -> list[Tensor]:
    """Run several recurrences of the same unit over the same number of logs at once; the states of each."""
    turns = _turns(prepared)
    widest = max(one.inputs.shape[1] for one in prepared)
    inputs = torch.stack([pad(one.inputs, (0, 0, 0, widest - one.inputs.shape[1])) for one in prepared])
    of_inputs, bias = (torch.stack([getattr(one, name) for one in prepared]) for name in ("of_inputs", "bias"))
    mapped = torch.baddbmm(bias[:, None], turns.collect(inputs), of_inputs)
    start = torch.stack([one.start[order] for one, order in zip(prepared, turns.order, strict=True)])
    weights = tuple(torch.stack(same) for same in zip(*(one.weights for one in prepared), strict=True))
    if torch.is_grad_enabled():
        states = _Unrolled.apply(prepared[0].unit, turns.sizes, mapped, start, *weights)  # type: ignore[no-untyped-call]
    else:
        states = torch.cat(
            [after for after, *_ in _steps(prepared[0].unit, turns.sizes, mapped, start, weights)], dim=1
        )
    table = turns.spread(states, inputs.shape[:3])
    return [of_side[:, : one.inputs.shape[1]] for of_side, one in zip(table, prepared, strict=True)]


@dataclass(frozen=True)
class _Turns:
    """The active logs at each event, the longest logs first."""

    order: Int[Tensor, "S B"]
    sizes: list[int]  # the number of active logs at each event, on the side with the most
    at: Int[Tensor, "S P"]  # the place of each event in the table of logs, as (side * B + row) * X + place

    def collect(self, table: Float[Tensor, "S B X I"]) -> Float[Tensor, "S P I"]:
        return table.flatten(0, 2)[self.at]

    def spread(self, events: Float[Tensor, "S P *state"], shape: torch.Size) -> Float[Tensor, "S B X *state"]:
        table = events.new_zeros(shape.numel(), *events.shape[2:])
        return table.index_copy(0, self.at.flatten(), events.flatten(0, 1)).view(*shape, *events.shape[2:])


def _turns(prepared: Sequence[Prepared]) -> _Turns:
    widest, logs = max(one.inputs.shape[1] for one in prepared), len(prepared[0].inputs)
    place = torch.arange(widest, device=prepared[0].inputs.device)
    if all(one.length is None and one.inputs.shape[1] == widest for one in prepared):
        return _full_turns(len(prepared), logs, place)
    full = [place.new_full((logs,), one.inputs.shape[1]) if one.length is None else one.length for one in prepared]
    length, order = torch.stack(full).sort(dim=1, descending=True, stable=True)
    going = (length[:, :, None] > place).sum(dim=1).amax(dim=0)
    sizes = [size for size in going.tolist() if size] or [1]  # logs without events have one of padding
    of_event = torch.arange(logs, device=place.device) < place.new_tensor(sizes)[:, None]
    event, rank = of_event.nonzero(as_tuple=True)
    side = torch.arange(len(prepared), device=place.device)[:, None]
    return _Turns(order, sizes, (side * logs + order[:, rank]) * widest + event)


def _full_turns(sides: int, logs: int, place: Int[Tensor, "X"]) -> _Turns:
    """The turns of logs that all have an event at every place."""
    row = torch.arange(logs, device=place.device)
    side = torch.arange(sides, device=place.device)[:, None, None]
    at = (side * logs + row) * len(place) + place[:, None]
    return _Turns(row.expand(sides, -1), [logs] * len(place), at.flatten(1))


def _steps(
    unit: Recurrence, sizes: list[int], mapped: Tensor, start: Tensor, weights: Parts
) -> Iterator[tuple[Tensor, Tensor, Parts]]:
    """The next states, the previous states, and the gates and candidates at every event."""
    after = start
    for event in torch.split(mapped, sizes, dim=1):
        before = after[:, : event.shape[1]]
        after, parts = unit.step(event, before, *weights)
        yield after, before, parts


class _Unrolled(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, unit: Recurrence, sizes: list[int], mapped: Tensor, start: Tensor, *weights: Tensor
    ) -> Tensor:
        after, before, parts = zip(*_steps(unit, sizes, mapped, start, weights), strict=True)
        together = (torch.cat(part, dim=1) for part in (before, *zip(*parts, strict=True)))
        ctx.unit, ctx.sizes, ctx.weights, ctx.logs = unit, sizes, len(weights), start.shape[1]
        ctx.save_for_backward(*weights, *together)
        return torch.cat(after, dim=1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        weights, (before, *parts) = ctx.saved_tensors[: ctx.weights], ctx.saved_tensors[ctx.weights :]
        of_states = gradients[0].clone()
        by_event = (torch.split(table, ctx.sizes, dim=1) for table in (of_states, *ctx.unit.factors(before, *parts)))
        inner, flowing = [], of_states[:, :0]
        for gradient, *factors in zip(*map(reversed, by_event), strict=True):
            gradient[:, : flowing.shape[1]].add_(flowing)
            flowing, of_parts = ctx.unit.back(gradient, tuple(factors), *weights)
            inner.append(of_parts)
        ends = ctx.unit.ends(of_states, torch.cat(inner[::-1], dim=1), before, tuple(parts), *weights)
        of_start = flowing.new_zeros(flowing.shape[0], ctx.logs, *flowing.shape[2:])
        of_start[:, : flowing.shape[1]] = flowing
        return None, None, ends[0], of_start, *ends[1:]

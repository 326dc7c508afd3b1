"""Recurrences side by side: states and gradients against a graph of every step, log by log; and logs without events."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn, tensor
from torch.testing import assert_close

from lightgc2n.baselines.pi_net.batched_rnn import Prepared, side_by_side
from lightgc2n.baselines.pi_net.gated_unit import GatedUnit
from lightgc2n.baselines.pi_net.shared_filter import Members, SharedFilter
from lightgc2n.baselines.pi_net.split_and_join import SplitUnit

LENGTHS = tensor([[2, 0, 4, 1], [1, 5, 0, 5]])  # of four logs on two sides
WIDTHS = 4, 6  # the second side has a place more than any log needs


def a_gated_unit() -> tuple[nn.Module, int, tuple[int, ...]]:
    return GatedUnit(2, 3), 1, (3,)


def a_filter() -> tuple[nn.Module, int, tuple[int, ...]]:
    return SharedFilter(2, Members(3, 4, 2)), 2, (2,)


def a_split() -> tuple[nn.Module, int, tuple[int, ...]]:
    return SplitUnit(2, Members(3, 4, 2)), 2, (3, 2)


def slow_states(prepared: Prepared, length: Tensor) -> Tensor:
    """Every log alone and event by event, with a graph of all its steps; zeros behind its end."""
    rows = []
    weights = [weight[None] for weight in prepared.weights]
    for row, events in enumerate(length.tolist()):
        state, states = prepared.start[row], []
        for place in range(events):
            given = prepared.inputs[row, place] @ prepared.of_inputs + prepared.bias
            state = prepared.unit.step(given[None, None], state[None, None], *weights)[0][0, 0]
            states.append(state)
        states += [torch.zeros_like(state)] * (prepared.inputs.shape[1] - events)
        rows.append(torch.stack(states))
    return torch.stack(rows)


def drawn_sides(make: Callable[[], tuple[nn.Module, int, tuple[int, ...]]]) -> tuple[list[Prepared], list[Tensor]]:
    """Two prepared recurrences, and all that they learn or are given."""
    torch.manual_seed(0)
    sides, leaves = [], []
    for length, width in zip(LENGTHS, WIDTHS, strict=True):
        unit, inputs, state = make()
        unit.double()
        for parameter in unit.parameters():
            nn.init.normal_(parameter)
        read = [torch.randn(4, width, 2, dtype=torch.float64, requires_grad=True) for _ in range(inputs)]
        start = torch.randn(4, *state, dtype=torch.float64, requires_grad=True)
        sides.append(unit.prepared(*read, start=start, length=length))  # type: ignore[operator]
        leaves += [*unit.parameters(), *read, start]
    return sides, leaves


def weighed(states: list[Tensor]) -> Tensor:
    """A number in which every state of every log has its own weight."""
    actual = torch.zeros((), dtype=torch.float64)
    for of_side, length in zip(states, LENGTHS, strict=True):
        known = torch.arange(of_side.shape[1]) < length[:, None]
        known_states = of_side[known]
        actual = actual + (known_states * torch.arange(1.0, known_states.numel() + 1).view_as(known_states)).sum()
    return actual


@pytest.mark.parametrize("make", [a_gated_unit, a_filter, a_split])
def test_states_and_gradients_are_those_of_a_graph_of_every_step(
    make: Callable[[], tuple[nn.Module, int, tuple[int, ...]]],
) -> None:
    sides, leaves = drawn_sides(make)
    expected = [slow_states(one, length) for one, length in zip(sides, LENGTHS, strict=True)]
    of_graph = torch.autograd.grad(weighed(expected), leaves, retain_graph=True)
    actual = side_by_side(sides)
    for of_side, slow, length in zip(actual, expected, LENGTHS, strict=True):
        assert of_side.shape == slow.shape
        known = torch.arange(slow.shape[1]) < length[:, None]
        assert_close(of_side[known], slow[known])
    for gradient, slow_gradient in zip(torch.autograd.grad(weighed(actual), leaves), of_graph, strict=True):
        assert slow_gradient.any()
        assert_close(gradient, slow_gradient)


@pytest.mark.parametrize("make", [a_gated_unit, a_filter, a_split])
def test_states_without_gradients_are_the_same(
    make: Callable[[], tuple[nn.Module, int, tuple[int, ...]]],
) -> None:
    sides, _ = drawn_sides(make)
    with_graph = side_by_side(sides)
    with torch.no_grad():
        for actual, expected in zip(side_by_side(sides), with_graph, strict=True):
            assert_close(actual, expected, rtol=0, atol=0)


def test_logs_without_any_event_keep_their_shape() -> None:
    unit = GatedUnit(2, 3)
    nothing = torch.zeros(4, 1, 2, requires_grad=True)
    actual = unit.prepared(nothing, length=tensor([0, 0, 0, 0])).run()
    assert actual.shape == (4, 1, 3)
    actual[:0].sum().backward()  # type: ignore[no-untyped-call]
    assert nothing.grad is not None
    assert not nothing.grad.any()

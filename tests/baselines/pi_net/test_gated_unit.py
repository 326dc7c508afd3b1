"""The gated unit: one step with given numbers, whole logs against a slow loop, and states looked up."""

import torch
from torch import Tensor, tensor
from torch.testing import assert_close

from lightgc2n.baselines.pi_net.gated_unit import GatedUnit, states_after


def filled(rows: int, columns: int, offset: float) -> Tensor:
    """Element n, row by row, is 0.5 · sin(1 + 0.7 n + offset)."""
    return 0.5 * torch.sin(1 + 0.7 * torch.arange(rows * columns) + offset).view(rows, columns)


@torch.no_grad()
def test_one_step_with_given_numbers() -> None:
    unit = GatedUnit(2, 2)
    unit.gates.copy_(filled(4, 4, 0))
    unit.candidate.copy_(filled(4, 2, 1))
    actual = unit.prepared(tensor([[[0.3, -0.2]]]), start=tensor([[0.1, 0.4]])).run()
    assert_close(actual, tensor([[[0.102732, 0.343423]]]), rtol=0, atol=1e-6)


def slow_step(unit: GatedUnit, event: Tensor, state: Tensor) -> Tensor:
    both = torch.cat([event, state])
    reset, update = torch.sigmoid(both @ unit.gates.detach() + unit.gates_bias.detach()).chunk(2)
    reduced = torch.cat([event, reset * state])
    candidate = torch.tanh(reduced @ unit.candidate.detach() + unit.candidate_bias.detach())
    return update * state + (1 - update) * candidate


def test_logs_are_those_of_a_slow_loop() -> None:
    torch.manual_seed(0)
    unit = GatedUnit(3, 2)
    torch.nn.init.normal_(unit.candidate_bias)
    events = torch.randn(4, 5, 3)
    expected = torch.zeros(4, 5, 2)
    for row in range(4):
        state = torch.zeros(2)
        for place in range(5):
            state = expected[row, place] = slow_step(unit, events[row, place], state)
    assert_close(unit.prepared(events).run().detach(), expected)


def test_gates_start_open() -> None:
    unit = GatedUnit(3, 2)
    assert unit.gates_bias.tolist() == [1.0] * 4
    assert unit.candidate_bias.tolist() == [0.0] * 2


def test_states_after_by_hand() -> None:
    states = tensor([[[1.0], [2.0], [3.0]], [[4.0], [5.0], [6.0]]])
    actual = states_after(states, tensor([[0, 3, 1], [2, 2, 0]]))
    assert_close(actual[..., 0], tensor([[0.0, 3.0, 1.0], [5.0, 5.0, 0.0]]))

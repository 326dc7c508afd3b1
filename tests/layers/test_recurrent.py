"""Recurrent layers: states by hand, and how far gradients reach."""

import math

import pytest
import torch
from torch import Tensor, nn, tensor
from torch.testing import assert_close

from lightgc2n.layers.recurrent import (
    GRUStack,
    SeparateItems,
    SharedItems,
    last_states,
    new_gru,
    one_step,
    whole_row,
)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_a_state_by_hand() -> None:
    gru = new_gru(1, 1)
    with torch.no_grad():
        gru.weight_ih_l0.copy_(tensor([[0.5], [-1.0], [2.0]]))  # reset, update, candidate
        gru.weight_hh_l0.copy_(tensor([[1.0], [0.25], [-0.5]]))
    reset, update = sigmoid(0.5 * 3 + 1.0 * 0.4), sigmoid(-1.0 * 3 + 0.25 * 0.4)
    candidate = math.tanh(2.0 * 3 + reset * (-0.5 * 0.4))
    expected = (1 - update) * candidate + update * 0.4
    actual = whole_row(gru, tensor([[[3.0]]]), tensor([[0.4]]))
    assert_close(actual, tensor([[[expected]]]))


def test_every_gate_starts_by_its_own_size() -> None:
    gru = new_gru(40, 20)
    for weight, columns in ((gru.weight_ih_l0, 40), (gru.weight_hh_l0, 20)):
        bound = math.sqrt(6 / (20 + columns))  # a stacked block of 60 rows would give a smaller one
        for block in weight.chunk(3):
            assert 0.95 * bound < float(block.detach().abs().max()) <= bound
    assert not gru.bias_ih_l0.any()
    assert not gru.bias_hh_l0.any()


@pytest.mark.parametrize("run", [whole_row, one_step])
def test_a_stack_is_that_of_a_slow_loop(run: object) -> None:
    torch.manual_seed(0)
    stack = GRUStack(3, 4, layers=2, dropped=0.5, run=run).eval()  # type: ignore[arg-type]
    inputs, start = torch.randn(2, 5, 3), torch.randn(2, 4)
    low, high = start, torch.zeros(2, 4)  # only the first layer has a start
    expected = []
    for place in range(5):
        low = _cell(stack.layers[0])(inputs[:, place], low)
        high = _cell(stack.layers[1])(low, high)
        expected.append(high)
    assert_close(stack(inputs, start), torch.stack(expected, dim=1))


def _cell(layer: nn.Module) -> nn.GRUCell:
    """One step with the weights of a layer."""
    assert isinstance(layer, nn.GRU)
    cell = nn.GRUCell(layer.input_size, layer.hidden_size)
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in layer.state_dict().items()})
    return cell


def reach(run: object) -> Tensor:
    """For each event whether the last state's gradient gets to it, and then whether it gets to the start."""
    torch.manual_seed(0)
    stack = GRUStack(3, 4, layers=2, dropped=0.0, run=run)  # type: ignore[arg-type]
    inputs, start = torch.randn(1, 4, 3, requires_grad=True), torch.randn(1, 4, requires_grad=True)
    stack(inputs, start)[:, -1].sum().backward()
    assert inputs.grad is not None
    assert start.grad is not None
    return torch.cat([inputs.grad.abs().sum(dim=2)[0], start.grad.abs().sum(dim=1)]) > 0


def test_gradients_go_through_the_row_or_one_event() -> None:
    assert reach(whole_row).tolist() == [True, True, True, True, True]
    assert reach(one_step).tolist() == [False, False, False, True, False]


def test_the_start_learns_from_the_first_event_of_a_step() -> None:
    stack, start = GRUStack(3, 4, layers=1, dropped=0.0, run=one_step), torch.zeros(1, 4, requires_grad=True)
    stack(torch.randn(1, 4, 3), start)[:, 0].sum().backward()
    assert start.grad is not None
    assert start.grad.abs().max() > 0


def test_the_output_of_a_layer_is_dropped_in_training_alone() -> None:
    torch.manual_seed(0)
    stack = GRUStack(3, 50, layers=1, dropped=0.5)
    inputs, start = torch.randn(2, 4, 3), torch.zeros(2, 50)
    assert 0.3 < float((stack(inputs, start) == 0).float().mean()) < 0.7
    assert not (stack.eval()(inputs, start) == 0).any()


def test_last_states_by_hand() -> None:
    states = tensor([[[1.0], [2.0], [9.0]], [[9.0], [9.0], [9.0]], [[4.0], [5.0], [6.0]]])
    start = tensor([[-1.0], [-2.0], [-3.0]])
    assert_close(last_states(states, start, tensor([2, 0, 3])), tensor([[2.0], [-2.0], [6.0]]))


def test_logits_by_hand() -> None:
    items = SeparateItems(2, 5, 2)()
    with torch.no_grad():
        items.outputs.copy_(tensor([[1.0, 2.0], [3.0, -1.0]]))
        items.bias.copy_(tensor([0.5, 0.0]))
    assert_close(items.logits(tensor([[2.0, 1.0]])), tensor([[1 * 2 + 2 * 1 + 0.5, 3 * 2 - 1 * 1]]))


def test_shared_items_have_one_table() -> None:
    items = SharedItems(7, 3)()
    assert items.inputs is items.outputs

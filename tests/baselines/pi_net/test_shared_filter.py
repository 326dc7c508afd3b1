"""The shared-account filter: one step with given numbers, whole logs against a slow loop over members."""

import pytest
import torch
from torch import Tensor, tensor
from torch.testing import assert_close

from lightgc2n.baselines.pi_net.shared_filter import (
    FilterTransfer,
    Members,
    MembersOfTheGate,
    SharedFilter,
    Transfer,
    TransferInputs,
)
from tests.baselines.pi_net.test_gated_unit import filled


@torch.no_grad()
@pytest.mark.parametrize(
    ("kind", "expected"), [(Members, (0.384842, 0.272557)), (MembersOfTheGate, (0.368409, 0.259986))]
)
def test_one_step_with_given_numbers(kind: type, expected: tuple[float, float]) -> None:
    members = kind(2, 2, 2)
    for name, offset in (("table", 4), ("to_gate", 1), ("to_candidate", 3)):
        if hasattr(members, name):
            getattr(members, name).copy_(filled(2, 2, offset))
    unit = SharedFilter(2, members)
    unit.gate.copy_(filled(6, 2, 0))
    unit.candidate.copy_(filled(4, 2, 2))
    own, other, before = tensor([[[0.3, -0.2]]]), tensor([[[-0.1, 0.5]]]), tensor([[0.2, 0.1]])
    assert_close(unit.prepared(own, other, start=before).run()[0, 0], tensor(expected), rtol=0, atol=1e-6)


@torch.no_grad()
def slow_filter(unit: SharedFilter, own: Tensor, other: Tensor) -> Tensor:
    """Event by event and member by member, for one log."""
    to_gate, to_candidate = unit.members()
    state, states = torch.zeros(unit.width), []
    for p, q in zip(own, other, strict=True):
        parts = []
        for member in range(len(to_gate)):
            gate = torch.sigmoid(torch.cat([p, q, state]) @ unit.gate + to_gate[member] + unit.gate_bias)
            new = torch.tanh(torch.cat([p, state]) @ unit.candidate + to_candidate[member] + unit.candidate_bias)
            parts.append(gate * state + (1 - gate) * new)
        state = torch.stack(parts).mean(dim=0)
        states.append(state)
    return torch.stack(states)


@pytest.mark.parametrize("kind", [Members, MembersOfTheGate])
def test_logs_are_those_of_a_slow_loop(kind: type) -> None:
    torch.manual_seed(0)
    unit = SharedFilter(3, kind(4, 5, 3))
    own, other = torch.randn(2, 6, 3), torch.randn(2, 6, 3)
    expected = torch.stack([slow_filter(unit, *pair) for pair in zip(own, other, strict=True)])
    assert_close(unit.prepared(own, other).run().detach(), expected)


def told(unit: Transfer, heard: TransferInputs) -> Tensor:
    return unit.run_all([unit], [heard])[0]


def test_questions_get_the_state_after_what_they_are_shown() -> None:
    torch.manual_seed(0)
    unit = FilterTransfer(3, Members(2, 3, 3), dropped=0.5).eval()
    source, beside = torch.randn(1, 4, 3), torch.randn(1, 4, 3)
    shown = tensor([[0, 2, 4]])
    actual = told(unit, TransferInputs(source, beside, tensor([4]), source, shown, shown))
    assert not actual[0, 0].any()  # nothing is shown, nothing is told
    for query, events in ((1, 2), (2, 4)):
        alone = unit.transfer.prepared(unit.filter.prepared(source[:, :events], beside[:, :events]).run()).run()[:, -1]
        assert_close(actual[:, query], alone)


def test_every_unit_has_its_input_dropped_in_training_alone() -> None:
    torch.manual_seed(0)
    unit = FilterTransfer(3, Members(2, 3, 3), dropped=0.5)
    source, shown = torch.randn(1, 4, 3), tensor([[4]])
    heard = TransferInputs(source, source, tensor([4]), source, shown, shown)
    assert not torch.equal(told(unit, heard), told(unit, heard))
    unit.eval()
    assert torch.equal(told(unit, heard), told(unit, heard))

"""Split and join: a step and an attention with given numbers, whole logs against slow loops, and what is not shown."""

import pytest
import torch
from torch import Tensor, nn, tensor
from torch.testing import assert_close

from lightgc2n.baselines.pi_net.shared_filter import Members, MembersOfTheGate, TransferInputs
from lightgc2n.baselines.pi_net.split_and_join import (
    BestQueryAttention,
    SplitAndJoin,
    SplitUnit,
    attend_over_roles,
    attend_over_time,
    joined,
)
from tests.baselines.pi_net.test_gated_unit import filled
from tests.baselines.pi_net.test_shared_filter import told

WITH_MAP = ((0.360176, 0.344163), (0.166005, 0.254567))
WITH_SLIP = ((0.308325, 0.317258), (0.183038, 0.242946))


@torch.no_grad()
@pytest.mark.parametrize(("kind", "expected"), [(Members, WITH_MAP), (MembersOfTheGate, WITH_SLIP)])
def test_a_split_with_given_numbers(kind: type, expected: tuple[tuple[float, float], ...]) -> None:
    roles = kind(2, 2, 2)
    for name, offset in (("table", 4), ("to_gate", 1), ("to_candidate", 3)):
        if hasattr(roles, name):
            getattr(roles, name).copy_(filled(2, 2, offset))
    unit = SplitUnit(2, roles)
    unit.gate.copy_(filled(6, 2, 0))
    unit.candidate.copy_(filled(4, 2, 2))
    unit.nobody.copy_(filled(4, 2, 5))
    unit.nobody_state.copy_(filled(2, 2, 6))
    unit.nobody_roles.copy_(filled(2, 2, 7))
    before = tensor([[[0.2, 0.1], [-0.3, 0.05]]])
    actual = unit.prepared(tensor([[[0.3, -0.2]]]), tensor([[[-0.1, 0.5]]]), start=before).run()
    assert_close(actual[0, 0], tensor(expected), rtol=0, atol=1e-6)


@torch.no_grad()
def slow_split(unit: SplitUnit, own: Tensor, other: Tensor) -> Tensor:
    """Event by event and role by role, for one log."""
    to_gate, to_candidate = unit.roles()
    roles = range(len(to_gate))
    state, states = torch.zeros(len(to_gate), unit.width), []
    for p, q in zip(own, other, strict=True):
        gates = [torch.sigmoid(torch.cat([p, q, state[k]]) @ unit.gate + to_gate[k] + unit.gate_bias) for k in roles]
        kept = sum((state[k] @ unit.nobody_state) * unit.nobody_roles[k] for k in roles)
        nobody = torch.sigmoid(torch.cat([p, q]) @ unit.nobody + kept + unit.nobody_bias)
        total = sum(gates) + nobody
        new = [
            torch.tanh(torch.cat([p, state[k]]) @ unit.candidate + to_candidate[k] + unit.candidate_bias) for k in roles
        ]
        state = torch.stack([gates[k] / total * new[k] + nobody / total * state[k] for k in roles])
        states.append(state)
    return torch.stack(states)


@pytest.mark.parametrize("kind", [Members, MembersOfTheGate])
def test_splits_are_those_of_a_slow_loop(kind: type) -> None:
    torch.manual_seed(0)
    unit = SplitUnit(3, kind(4, 5, 3))
    own, other = torch.randn(2, 6, 3), torch.randn(2, 6, 3)
    expected = torch.stack([slow_split(unit, *pair) for pair in zip(own, other, strict=True)])
    assert_close(unit.prepared(own, other).run().detach(), expected)


def test_all_gates_share_each_feature_out() -> None:
    """Σ_k f_k + g = 1: candidates of one after states of zero show f, candidates of zero after states of one show g."""
    torch.manual_seed(0)
    gate, nobody = torch.rand(1, 5, 3, 4, dtype=torch.float64), torch.rand(1, 5, 1, 4, dtype=torch.float64)
    one, zero = torch.ones_like(gate), torch.zeros_like(gate)
    of_roles, _ = joined(zero, gate, one, nobody)
    kept, _ = joined(one, gate, zero, nobody)
    assert_close(of_roles.sum(dim=2) + kept[:, :, 0], one[:, :, 0], rtol=0, atol=1e-9)


def weighted(width: int, weight: Tensor) -> BestQueryAttention:
    attention = BestQueryAttention(width)
    attention.weight = nn.Parameter(weight.view(3, width))
    return attention


@torch.no_grad()
def test_an_attention_with_given_numbers() -> None:
    """Two of three queries and three of four keys are shown."""
    attention = weighted(2, filled(1, 6, 2))
    queries, keys = filled(3, 2, 0)[None, None], filled(4, 2, 1)[None, None]
    actual = attend_over_time(attention.fits(queries, keys), keys, tensor([[3]]), tensor([[2]]))
    assert_close(actual[0, 0, 0], tensor([-0.173934, -0.260976]), rtol=0, atol=1e-6)
    weights = tensor([0.198368, 0.364983, 0.436650])  # and the same, key by key
    assert_close(actual[0, 0, 0], weights @ keys[0, 0, :3], rtol=0, atol=1e-6)


@torch.no_grad()
def slow_attention(attention: BestQueryAttention, queries: Tensor, keys: Tensor) -> Tensor:
    """The weighted sum of the keys, by the formula as it is printed."""
    weight = attention.weight.flatten()
    best = []
    for key in keys:
        fits = [float(torch.cat([query, key, query * key]) @ weight) for query in queries]
        best.append(tensor(max(fits, default=0.0)).exp())
    return sum((b / sum(best) * key for b, key in zip(best, keys, strict=True)), torch.zeros(queries.shape[1]))


def test_a_join_is_that_of_a_slow_loop() -> None:
    """Questions with nothing of the source, nothing of the target, some of both, and all."""
    torch.manual_seed(0)
    unit = SplitAndJoin(3, Members(4, 5, 3), dropped=0.5).eval()
    source, beside, target = torch.randn(1, 5, 3), torch.randn(1, 5, 3), torch.randn(1, 4, 3)
    keys_shown, queries_shown = tensor([[0, 3, 2, 5]]), tensor([[2, 0, 3, 4]])
    actual = told(unit, TransferInputs(source, beside, tensor([5]), target, keys_shown, queries_shown)).detach()
    roles = slow_split(unit.split, source[0], beside[0])
    states = [unit.join.prepared(roles[None, :, role]).run()[0].detach() for role in range(4)]
    for query in range(4):
        queries = target[0, : queries_shown[0, query]]
        shown = [role_states[: keys_shown[0, query]] for role_states in states]
        by_role = torch.stack([slow_attention(unit.over_time, queries, keys) for keys in shown])
        assert_close(actual[0, query], slow_attention(unit.over_roles, queries, by_role))
    assert not actual[0, 0].any()  # no source, nothing is told


def test_strongly_negative_fits_stay_finite() -> None:
    """What overflows or vanishes in a product of exponentials must not in a softmax of maxima."""
    fits = torch.full((1, 1, 2, 3), -1e4, requires_grad=True)
    states = torch.ones(1, 1, 3, 2)
    by_role = attend_over_time(fits, states, tensor([[2, 0]]), tensor([[2, 2]]))
    assert_close(by_role[0, 0], tensor([[1.0, 1.0], [0.0, 0.0]]))
    attend_over_roles(fits[..., :2], by_role, tensor([[2, 0]])).sum().backward()  # type: ignore[no-untyped-call]
    assert fits.grad is not None
    assert torch.isfinite(fits.grad).all()


def test_one_role_one_event_and_one_log_keep_their_axes() -> None:
    unit = SplitAndJoin(3, Members(1, 3, 3), dropped=0.0)
    one, shown = torch.randn(1, 1, 3), tensor([[1]])
    assert told(unit, TransferInputs(one, one, tensor([1]), one, shown, shown)).shape == (1, 1, 3)

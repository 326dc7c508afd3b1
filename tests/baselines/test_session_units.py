"""Two recurrent levels: each gate by hand, and what the user's state reaches."""

import math

import torch
from torch import nn, tensor
from torch.testing import assert_close

from lightgc2n.baselines.hrnn import SessionAlone, SessionWithUser, SessionWithUserInTwoGates, UserLevel


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def randomised(module: nn.Module) -> nn.Module:
    """Biases start at zero and would hide a mistake."""
    torch.manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module


def test_a_session_alone_does_not_see_its_user() -> None:
    session, inputs, start = SessionAlone(3, 2, 4), torch.randn(2, 5, 3), torch.randn(2, 4)
    assert_close(session(inputs, torch.zeros(2, 2), start), session(inputs, torch.ones(2, 2), start), rtol=0, atol=0)


def test_the_user_enters_all_gates_by_hand() -> None:
    session = SessionWithUser(1, 1, 1)
    with torch.no_grad():
        session.gru.weight_ih_l0.copy_(tensor([[0.5, 0.1], [-1.0, 0.2], [2.0, -0.3]]))  # item, user
        session.gru.weight_hh_l0.copy_(tensor([[1.0], [0.25], [-0.5]]))
    item, user, state = 0.7, 2.0, 0.4
    reset = sigmoid(0.5 * item + 0.1 * user + 1.0 * state)
    update = sigmoid(-1.0 * item + 0.2 * user + 0.25 * state)
    candidate = math.tanh(2.0 * item - 0.3 * user + reset * -0.5 * state)
    actual = session(tensor([[[item]]]), tensor([[user]]), tensor([[state]]))
    assert_close(actual, tensor([[[(1 - update) * candidate + update * state]]]))


def test_in_the_released_code_the_user_enters_two_gates_by_hand() -> None:
    session = SessionWithUserInTwoGates(1, 1, 1)
    with torch.no_grad():
        session.cell.weight_ih.copy_(tensor([[0.5], [-1.0], [2.0]]))
        session.cell.weight_hh.copy_(tensor([[1.0], [0.25], [-0.5]]))
        session.from_user.weight.copy_(tensor([[0.1], [0.2]]))
    user, state, expected = 2.0, 0.4, []
    for item in (0.7, -1.5):
        reset = sigmoid(0.5 * item + 0.1 * user + 1.0 * state)
        update = sigmoid(-1.0 * item + 0.2 * user + 0.25 * state)
        candidate = math.tanh(2.0 * item + reset * -0.5 * state)
        state = (1 - update) * candidate + update * state
        expected.append([state])
    actual = session(tensor([[[0.7], [-1.5]]]), tensor([[user]]), tensor([[0.4]]))
    assert_close(actual, tensor([expected]))


def test_two_gates_are_three_with_a_user_that_the_candidate_does_not_hear() -> None:
    two, three = randomised(SessionWithUserInTwoGates(3, 2, 4)), SessionWithUser(3, 2, 4)
    from_user = torch.cat([two.from_user.weight, torch.zeros(4, 2)])
    weights = {
        "weight_ih_l0": torch.cat([two.cell.weight_ih, from_user], dim=1),
        "weight_hh_l0": two.cell.weight_hh,
        "bias_ih_l0": two.cell.bias_ih,
        "bias_hh_l0": two.cell.bias_hh,
    }
    three.gru.load_state_dict(weights)
    given = torch.randn(2, 5, 3), torch.randn(2, 2), torch.randn(2, 4)
    assert_close(two(*given), three(*given))


def test_the_user_level_by_hand() -> None:
    level = UserLevel(1, 1, 0.0, 0.0)
    with torch.no_grad():
        level.cell.weight_ih.copy_(tensor([[0.5], [-1.0], [2.0]]))
        level.cell.weight_hh.copy_(tensor([[1.0], [0.25], [-0.5]]))
        level.to_start.weight.fill_(3.0)
        level.to_start.bias.fill_(-0.2)
    reset, update = sigmoid(0.5 * 0.9 + 1.0 * 0.3), sigmoid(-1.0 * 0.9 + 0.25 * 0.3)
    user = (1 - update) * math.tanh(2.0 * 0.9 + reset * -0.5 * 0.3) + update * 0.3
    found_user, found_start = level(tensor([[0.9]]), tensor([[0.3]]))
    assert_close(found_user, tensor([[user]]))
    assert_close(found_start, tensor([[math.tanh(3.0 * user - 0.2)]]))

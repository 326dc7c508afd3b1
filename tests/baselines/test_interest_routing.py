"""Routing of events to interests, by hand and as the loops of the paper."""

import torch
from torch.testing import assert_close

from lightgc2n.baselines.comirec import route_interests
from lightgc2n.layers.squash import squash


def test_by_hand() -> None:
    """One event, two interests, width one: votes 4 and 0 are first halved, then shared by how far they agree."""
    votes = torch.tensor([[[4.0], [0.0]]])
    owner = torch.tensor([0])
    assert_close(route_interests(votes, owner, 1, steps=1), torch.tensor([[[4 / 5], [0.0]]]))  # squash(2) = 4/5
    share = torch.sigmoid(torch.tensor(4 * 4 / 5))  # softmax of the agreements 4·4/5 and 0
    first = (4 * share).square() / (1 + (4 * share).square())
    assert_close(route_interests(votes, owner, 1, steps=2), torch.stack([first, torch.tensor(0.0)]).view(1, 2, 1))


def by_loops(votes: torch.Tensor, steps: int) -> torch.Tensor:
    """The interests of one history, votes [event, interest, width]."""
    events, interests, _ = votes.shape
    logits = [[torch.zeros(()) for _ in range(interests)] for _ in range(events)]
    for step in range(steps):
        used = votes if step == steps - 1 else votes.detach()
        shares = [torch.softmax(torch.stack(row), dim=0) for row in logits]
        actual = [squash(sum(shares[t][k] * used[t, k] for t in range(events))) for k in range(interests)]
        logits = [[logits[t][k] + used[t, k] @ actual[k] for k in range(interests)] for t in range(events)]
    return torch.stack(actual)


def test_histories_gradients_and_all_as_loops() -> None:
    torch.manual_seed(0)
    votes = torch.randn(7, 3, 2, requires_grad=True)
    owner = torch.tensor([0, 1, 0, 2, 0, 2, 1])  # in no order
    actual = route_interests(votes, owner, 3, steps=3)
    expected = torch.stack([by_loops(votes[owner == history], 3) for history in range(3)])
    assert_close(actual, expected)
    weights = torch.randn_like(actual)
    (one,) = torch.autograd.grad((actual * weights).sum(), votes)
    (other,) = torch.autograd.grad((expected * weights).sum(), votes)
    assert_close(one, other)


def test_a_single_interest_takes_everything() -> None:
    votes, owner = torch.randn(4, 1, 3), torch.zeros(4, dtype=torch.long)
    assert_close(route_interests(votes, owner, 1, steps=3), squash(votes.sum(dim=0))[None])


def test_interests_are_shorter_than_one() -> None:
    votes, owner = 30 * torch.randn(60, 4, 3), torch.arange(60) % 10
    assert (route_interests(votes, owner, 10, steps=3).norm(dim=2) < 1).all()


def test_a_history_without_events_has_no_interest() -> None:
    actual = route_interests(torch.randn(1, 2, 3), torch.tensor([1]), 2, steps=3)
    assert_close(actual[0], torch.zeros(2, 3))

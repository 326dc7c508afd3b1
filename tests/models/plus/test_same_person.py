"""Who acts: likeness by hand, and a state that only the past reaches."""

import math

import torch
from torch import tensor
from torch.testing import assert_close

from lightgc2n.models.plus.same_person import SHARPNESS, NewestEventState, OnePerson, PersonState, SamePerson


def test_likeness_by_hand() -> None:
    layer = SamePerson(views=1, latent_users=2, width=2)
    with torch.no_grad():
        layer.bases.copy_(tensor([[[2.0, 0.0], [0.0, 0.5]]]))  # lengths do not matter
    events = tensor([[[3.0, 0.0], [0.0, 1.0], [1.0, 1.0]]])
    sure = 1 / (1 + math.exp(-SHARPNESS))
    assert_close(layer.ownership(events)[0, 0], tensor([[sure, 1 - sure], [1 - sure, sure], [0.5, 0.5]]))
    like = layer(events)[0][0, 0]
    assert_close(like[0, 0], tensor(sure**2 + (1 - sure) ** 2))
    assert_close(like[0, 1], tensor(2 * sure * (1 - sure)))
    assert_close(like[0, 2], tensor(0.5))


def test_the_mean_over_views_is_that_of_the_views() -> None:
    torch.manual_seed(0)
    by_view, mean = SamePerson(views=3, latent_users=2, width=4)(torch.randn(2, 5, 4))
    assert_close(mean, by_view.mean(dim=1))


def test_the_draws_of_a_whole_batch_are_those_of_dropout() -> None:
    state = PersonState(width=3, views=2, longest=5, drop=0.4)
    events, like = torch.randn(6, 4, 3), torch.rand(6, 2, 4, 4)
    torch.manual_seed(1)
    wanted = state(events, like)
    torch.manual_seed(1)
    kept = state.draw_kept(6, 4)
    assert_close(state(events, like, kept), wanted)
    halves = [state(events[part], like[part], tuple(mask[part] for mask in kept)) for part in (slice(4), slice(4, 6))]
    assert_close(torch.cat(halves), wanted)
    assert state.eval().draw_kept(6, 4) == ()


def test_the_weights_of_the_past_by_hand() -> None:
    state = PersonState(width=2, views=1, longest=3, drop=0.0)
    with torch.no_grad():
        state.fading.copy_(tensor([[0.0, math.log(0.5), math.log(0.25)]]))
    like = tensor([[[[1.0, 0.2, 0.4], [0.2, 1.0, 0.6], [0.4, 0.6, 1.0]]]])
    actual = state.weights(like)[0, 0]
    actual = actual / actual.sum(dim=-1, keepdim=True)
    assert_close(actual[0], tensor([1.0, 0.0, 0.0]))
    assert_close(actual[1], tensor([0.2 * 0.5, 1.0, 0.0]) / 1.1)
    assert_close(actual[2], tensor([0.4 * 0.25, 0.6 * 0.5, 1.0]) / 1.4)


def test_a_state_by_a_loop_over_events() -> None:
    torch.manual_seed(0)
    state, events = PersonState(width=3, views=2, longest=5, drop=0.0).eval(), torch.randn(1, 4, 3)
    like = torch.rand(1, 2, 4, 4)
    actual = state(events, like)[0]
    for now in range(4):
        heard = []
        for view in range(2):
            value = state.value.weight[3 * view : 3 * view + 3]
            parts = [like[0, view, now, then] * state.fading[view, now - then].exp() for then in range(now + 1)]
            told = [part * (value @ events[0, then]) for then, part in enumerate(parts)]
            heard.append(torch.stack(told).sum(dim=0) / torch.stack(parts).sum())
        whole = state.own(events[0, now]) + state.gather(torch.cat(heard))
        flat = (whole - whole.mean()) / (whole.var(unbiased=False) + 1e-5).sqrt()
        wanted = state.norm(whole + state.outer(torch.relu(state.inner(flat))))
        assert_close(actual[now], wanted, rtol=1e-4, atol=1e-5)


def test_the_future_never_reaches_a_state() -> None:
    torch.manual_seed(0)
    layer, state = SamePerson(2, 3, 4), PersonState(width=4, views=2, longest=6, drop=0.0).eval()
    events = torch.randn(1, 6, 4)
    other = events.clone()
    other[0, 4:] = torch.randn(2, 4)
    assert_close(state(events, layer(events)[0])[0, :4], state(other, layer(other)[0])[0, :4])


def test_what_is_put_in_their_places() -> None:
    events = torch.randn(2, 3, 4)
    by_view, mean = OnePerson(views=2)(events)
    assert_close(by_view, torch.ones(2, 2, 3, 3))
    assert_close(mean, torch.ones(2, 3, 3))
    newest = NewestEventState(4)
    assert_close(newest(events, torch.ones(2, 2, 3, 3)), newest.norm(newest.own(events)))

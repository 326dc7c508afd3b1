"""What follows what: counted by hand, and without the step that is asked for."""

import math

import pytest
import torch
from torch import tensor
from torch.testing import assert_close

from lightgc2n.layers.followers import Followers, NoFollowers, count_followers
from tests.graph.logs import training_of

# Steps: 0 to 1 three times, 0 to 2 once, 1 to 0 twice, 2 to 1 once; none leads from one log to the next.
LOGS = [[0, 1, 0, 1], [0, 2, 1], [0, 1, 0]]


def followers(kept: int = 4, newest: int = 2) -> Followers:
    tables = count_followers(training_of(LOGS, items=4), kept)
    return Followers(tables["columns"], tables["counts"], tables["leaving"], newest)


def test_the_most_frequent_followers_come_first() -> None:
    found = count_followers(training_of(LOGS, items=4), kept=3)
    assert found["columns"].tolist() == [[1, 2, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0]]
    assert found["counts"].tolist() == [[3, 1, 0], [2, 0, 0], [1, 0, 0], [0, 0, 0]]
    assert found["leaving"].tolist() == [4, 2, 1, 0]
    assert count_followers(training_of(LOGS, items=4), kept=1)["counts"].tolist() == [[3], [2], [1], [0]]


def test_the_bonus_by_hand() -> None:
    layer = followers()
    with torch.no_grad():
        layer.weight.copy_(tensor([2.0, 0.5]))
        layer.person.copy_(tensor([1.0, 4.0]))
        layer.floor.copy_(tensor([0.1, 0.2]).log())
        layer.shrinking.fill_(math.log(6.0))
    columns, bonus = layer(tensor([[0, 1]]), tensor([[0.5, 0.25]]), tensor([[1.0, 1.0]]))
    total = torch.zeros(1, 4).scatter_add(1, columns, bonus)[0]
    # The newest event 0 weighs 2 + 1 · 0.5 = 2.5, the one before, 1, weighs 0.5 + 4 · 0.25 = 1.5.
    assert_close(total[1], tensor(2.5 * math.log(1 + 3 / (4 + 6) / 0.1)))
    assert_close(total[2], tensor(2.5 * math.log(1 + 1 / (4 + 6) / 0.1)))
    assert_close(total[0], tensor(1.5 * math.log(1 + 2 / (2 + 6) / 0.2)))
    assert total[3] == 0


def test_the_step_that_is_asked_for_is_not_counted() -> None:
    layer = followers()
    one_less = followers()
    one_less.counts[0, 0] -= 1  # the step from 0 to 1
    one_less.leaving[0] -= 1
    events, like, known = tensor([[0, 0]]), tensor([[1.0, 0.0]]), tensor([[1.0, 0.0]])
    asked = layer(events, like, known, target=tensor([1]))
    assert_close(asked[1], one_less(events, like, known)[1])
    elsewhere = layer(events, like, known, target=tensor([3]))  # no such step: one less to anywhere
    assert_close(elsewhere[1][0, 0], one_less(events, like, known)[1][0, 0] * _ratio(layer))


def test_nor_is_it_counted_where_the_newest_item_stands_once_more() -> None:
    layer, one_less = followers(newest=3), followers(newest=3)
    one_less.counts[0, 0] -= 1  # the step from 0 to 1, the target
    one_less.leaving[0] -= 1
    events, like, known = tensor([[0, 1, 0]]), torch.ones(1, 3), torch.ones(1, 3)
    found = layer(events, like, known, target=tensor([1]))[1]
    assert_close(found, one_less(events, like, known)[1])  # item 1 keeps its counts


def _ratio(layer: Followers) -> float:
    shrinking, floor = layer.shrinking.exp().item(), layer.floor.exp()[0].item()
    return math.log1p(3 / (3 + shrinking) / floor) / math.log1p(2 / (3 + shrinking) / floor)


def test_events_that_are_not_there_add_nothing() -> None:
    _, bonus = followers()(tensor([[0, 1]]), torch.ones(1, 2), tensor([[1.0, 0.0]]))
    assert (bonus[0, :2] > 0).all()
    assert not bonus[0, 4:].any()


@pytest.mark.parametrize("target", [None, tensor([1])])
def test_without_followers_nothing_is_added(target: torch.Tensor | None) -> None:
    assert not NoFollowers()(tensor([[0, 1]]), torch.ones(1, 2), torch.ones(1, 2), target)[1].any()


def test_followers_up_to_two_steps_on_count_by_half() -> None:
    found = count_followers(training_of(LOGS, items=4), kept=3, reach=2)
    # Two steps on: 0 to 0 twice, 1 to 1 once, 0 to 1 once, each a half.
    assert found["columns"].tolist() == [[1, 0, 2], [0, 1, 0], [1, 0, 0], [0, 0, 0]]
    assert found["counts"].tolist() == [[3.5, 1, 1], [2, 0.5, 0], [1, 0, 0], [0, 0, 0]]
    assert found["leaving"].tolist() == [5.5, 2.5, 1, 0]


def test_no_step_to_the_target_is_counted_however_far_it_reaches() -> None:
    whole = count_followers(training_of(LOGS, items=4), kept=3, reach=2)
    without = count_followers(
        training_of([[0, 1, 0], *LOGS[1:]], items=4), kept=3, reach=2
    )  # the first log's last item
    layer, blind = (Followers(**tables, newest=3, reach=2) for tables in (whole, without))
    events, like, known = tensor([[0, 1, 0]]), torch.ones(1, 3), torch.ones(1, 3)  # newest first
    asked = _totals(layer(events, like, known, target=tensor([1])))
    assert_close(asked, _totals(blind(events, like, known)))


def _totals(found: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return torch.zeros(1, 4).scatter_add(1, *found)

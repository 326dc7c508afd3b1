"""What follows what: counted by hand, and without the step that is asked for."""

import math

import numpy as np
import pytest
import torch
from torch import tensor
from torch.testing import assert_close

from lightgc2n.data.batches import training_batches
from lightgc2n.models.plus import transitions
from lightgc2n.models.plus.transitions import (
    NoTransitions,
    OwnTransitions,
    Transitions,
    count_followers,
    count_neighbours,
    count_transitions,
)
from tests.graph.logs import training_of

# Steps: 0 to 1 three times, 0 to 2 once, 1 to 0 twice, 2 to 1 once; none leads from one log to the next.
LOGS = [[0, 1, 0, 1], [0, 2, 1], [0, 1, 0]]


def followers(kept: int = 4, newest: int = 2) -> Transitions:
    tables = count_transitions(training_of(LOGS, items=4), kept)
    return Transitions(tables["columns"], tables["counts"], tables["leaving"], newest)


def test_the_most_frequent_followers_come_first() -> None:
    actual = count_transitions(training_of(LOGS, items=4), kept=3)
    assert actual["columns"].tolist() == [[1, 2, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0]]
    assert actual["counts"].tolist() == [[3, 1, 0], [2, 0, 0], [1, 0, 0], [0, 0, 0]]
    assert actual["leaving"].tolist() == [4, 2, 1, 0]
    assert count_transitions(training_of(LOGS, items=4), kept=1)["counts"].tolist() == [[3], [2], [1], [0]]


@pytest.mark.parametrize("at_once", [1, 7, 40, 300])
def test_counting_a_range_of_items_at_a_time_changes_no_digit(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    logs = [random.integers(12, size=length).tolist() for length in random.integers(1, 20, size=40)]
    train = training_of(logs, items=13)
    wanted = count_neighbours(train), count_followers(train, kept=4)
    monkeypatch.setattr(transitions, "PAIRS_AT_ONCE", at_once)
    for one, other in zip((count_neighbours(train), count_followers(train, kept=4)), wanted, strict=True):
        for name in ("columns", "counts", "total"):
            assert torch.equal(getattr(one, name), getattr(other, name))


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


@pytest.mark.parametrize("reach", [1, 2, 3])
@pytest.mark.parametrize("log", [[0, 1, 0, 1], [0, 2, 1], [1, 1, 3, 1, 0, 1]])
def test_a_question_sees_no_step_to_its_target_or_over_it(log: list[int], reach: int) -> None:
    logs = [log, *LOGS]
    layer = _layer(logs, reach)
    for place in range(len(log) - 1):
        batch = next(iter(training_batches(training_of([log], items=4), rows_per_batch=1)))
        own = OwnTransitions.around(batch, tensor([place]), reach)
        # Cut there, the log is two logs: no step leads from one to the other.
        blind = _layer([log[: place + 1], log[place + 1 :], *LOGS], reach)
        asked = _newest(log[: place + 1])
        assert_close(_totals(layer(*asked, own)), _totals(blind(*asked)))


def test_a_question_behind_a_shorter_row_counts_nothing_from_its_padding() -> None:
    batch = next(iter(training_batches(training_of([[1, 2], [3, 0, 0, 2, 0]], items=4), rows_per_batch=2)))
    own = OwnTransitions.around(batch, tensor([0, 6]), reach=2)  # 1 to 2; and 3, 0, 0 to 2, 0
    assert own.before[1].tolist() == [0, 0]
    assert own.after[1].tolist() == [2, 0]
    assert own.before_known.tolist() == [[1, 0], [1, 1]]
    assert own.after_known.tolist() == [[1, 0], [1, 1]]
    assert own.weights.tolist() == [[1, 0.5], [0.5, 0]]


def _layer(logs: list[list[int]], reach: int) -> Transitions:
    return Transitions(**count_transitions(training_of(logs, items=4), kept=4, reach=reach), newest=3, reach=reach)


def _newest(log: list[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The three newest events as the model asks for them, how likely they are of who acts, and which are there."""
    known = tensor([[float(back < len(log)) for back in range(3)]])
    return tensor([[log[max(0, len(log) - 1 - back)] for back in range(3)]]), torch.ones(1, 3), known


def test_events_that_are_not_there_add_nothing() -> None:
    _, bonus = followers()(tensor([[0, 1]]), torch.ones(1, 2), tensor([[1.0, 0.0]]))
    assert (bonus[0, :2] > 0).all()
    assert not bonus[0, 4:].any()


def test_without_followers_nothing_is_added() -> None:
    assert not NoTransitions(items=2)(tensor([[0, 1]]), torch.ones(1, 2), torch.ones(1, 2))[1].any()


def test_followers_up_to_two_steps_on_count_by_half() -> None:
    actual = count_transitions(training_of(LOGS, items=4), kept=3, reach=2)
    # Two steps on: 0 to 0 twice, 1 to 1 once, 0 to 1 once, each a half.
    assert actual["columns"].tolist() == [[1, 0, 2], [0, 1, 0], [1, 0, 0], [0, 0, 0]]
    assert actual["counts"].tolist() == [[3.5, 1, 1], [2, 0.5, 0], [1, 0, 0], [0, 0, 0]]
    assert actual["leaving"].tolist() == [5.5, 2.5, 1, 0]


def _totals(actual: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return torch.zeros(1, 4).scatter_add(1, *actual)

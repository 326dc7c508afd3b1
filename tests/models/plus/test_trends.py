"""What everybody has lately: counted by a slow loop, and never ahead of its time."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import tensor
from torch.testing import assert_close

from lightgc2n.data.batches import MICROSECONDS_A_DAY
from lightgc2n.models.plus.trends import HALF_LIVES, STRENGTHS, NoTrends, Trends, count_trends, decayed_counts
from tests.models.small import SPLIT


def trends(chosen: tuple[float, float] = (1.0, 1.0)) -> Trends:
    """Looks on the days 10 and 20; two half-lives, a = (1, 2)."""
    columns = tensor([[3, 1], [2, 0]], dtype=torch.int32)
    rates = tensor([[[4.0, 1.0], [0.0, 2.0]], [[1.0, 1.0], [0.0, 0.0]]])
    model = Trends(tensor([10.0, 20.0]), columns, rates, mass=1.0).eval()
    with torch.no_grad():
        model.weight.copy_(tensor([1.0, 2.0]).log())
        model.chosen.copy_(tensor(chosen))
    return model


def test_the_bonus_by_hand() -> None:
    bias = tensor([0.0, 0.0, 0.0, np.log(2.0)])
    columns, bonus = trends()(tensor([9.9, 10.0, 19.9, 20.0, 99.0]), bias, 5)
    assert columns.tolist() == [[3, 1], [3, 1], [3, 1], [2, 0], [2, 0]]
    first = [np.log(1 + (4 + 2 * 1) / 2), np.log(1 + 2 * 2)]
    second = [np.log(1 + 1 + 2), 0.0]
    assert_close(bonus, tensor([[0.0, 0.0], first, first, second, second]))  # nothing is known before the first look


def test_a_question_without_a_moment_is_after_everything() -> None:
    columns, bonus = trends()(None, torch.zeros(4), 2)
    assert columns.tolist() == [[2, 0], [2, 0]]
    assert_close(bonus[:, 0], tensor([4.0, 4.0]).log())


def test_the_selection_counts_in_inference_and_not_in_training() -> None:
    model = trends(chosen=(0.0, 10.0))
    assert_close(model(None, torch.zeros(4), 1)[1][0, 0], tensor(1 + 10 * 2.0).log())
    assert_close(model.train()(None, torch.zeros(4), 1)[1][0, 0], tensor(4.0).log())


def test_the_choices() -> None:
    choices = trends().choices.tolist()
    assert choices[:2] == [[1.0, 1.0], [0.0, 0.0]]
    singles = [pair for loud in STRENGTHS for pair in ([loud, 0.0], [0.0, loud])]
    assert_close(trends().choices[2:], tensor(singles))


def test_decayed_counts_are_those_of_a_slow_loop() -> None:
    random = np.random.default_rng(0)
    days = np.sort(random.integers(0, 40, 60)).astype(np.float32)
    items = random.integers(0, 7, 60).astype(np.int32)
    looked = np.array([5, 17, 30, 41], dtype=np.float32)
    for look, actual in zip(looked, decayed_counts(days, items, 7, looked, 4.0), strict=True):
        slow = np.zeros(7)
        for day, item in zip(days, items, strict=True):
            slow[item] += 0.5 ** ((look - day) / 4.0) if day < look else 0.0
        assert actual == pytest.approx(slow)


def test_tables_hold_the_most_frequent_items_and_nothing_of_the_moment_itself() -> None:
    events = len(SPLIT.train.events)
    day = np.arange(events)[::-1] // 3  # three events a day, the last sequence first
    train = replace(SPLIT.train, times=(day * MICROSECONDS_A_DAY).astype(np.int64))
    tables = count_trends(train, 4)
    assert tables is not None
    for look, columns, rates in zip(*(tables[name] for name in ("looked", "columns", "rates")), strict=True):
        before = day < float(look)
        for number, half_life in enumerate(HALF_LIVES):
            weight = np.log(2) / half_life * 0.5 ** ((float(look) - day[before]) / half_life)
            slow = np.bincount(train.events[before], weight, minlength=train.items).astype(float)
            kept = rates[:, number] > 0
            assert_close(
                rates[kept, number].double(), torch.from_numpy(slow)[columns[kept].long()], rtol=1e-4, atol=1e-6
            )
            if number == 0:
                assert float(rates[0, 0]) == pytest.approx(slow.max(), rel=0.5)  # by the sum over half-lives
    assert float(tables["looked"][-1]) > day.max()  # the last look has seen everything
    assert set(tables["looked"][:-1].tolist()) <= set(day.tolist())


def test_without_times_there_are_no_trends() -> None:
    assert count_trends(SPLIT.train, 4) is None
    columns, bonus = NoTrends()(None, torch.zeros(5), 3)
    assert columns.shape == bonus.shape == (3, 1)
    assert not bonus.any()

"""Edges before a moment: by hand and against slow loops, with days and without."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import tensor
from torch.testing import assert_close

from lightgc2n.baselines.tgsrec.timed_edges import FARTHEST, DayEdges, RankEdges, draw_edges, edges_of_training
from lightgc2n.data.splits import SplitConfig, Training, split_dataset
from tests.worlds import dataset_of

DAY = 86_400


def training_of(*logs: list[tuple[int, int]], items: int = 5) -> Training:
    """One account a log; events are pairs (item, day). The last two of a log are no training events: they are added."""
    texts = [(f"a{row}", " ".join(f"i{item}" for item, _ in [*log, (0, 0), (0, 0)])) for row, log in enumerate(logs)]
    times = [[day * DAY for _, day in log] + [10**4 * DAY] * 2 for log in logs]
    data = dataset_of(texts, times=times, items=" ".join(f"i{item}" for item in range(items)))
    return split_dataset(data, SplitConfig()).train


LOGS = st.lists(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), min_size=1, max_size=6).map(
        lambda log: sorted(log, key=lambda event: event[1])
    ),
    min_size=1,
    max_size=4,
)


@given(LOGS, st.integers(0, 4), st.integers(-1, 12), st.integers(1, 4))
def test_edges_before_a_day_are_those_of_a_loop(
    logs: list[list[tuple[int, int]]], item: int, day: int, neighbours: int
) -> None:
    train = training_of(*logs)
    first = min(event[1] for log in logs for event in log)
    made = edges_of_training(train, neighbours, 1.0, days=True)
    actual = made.edges_of(tensor([item]), tensor([float(day)], dtype=torch.float64))
    events = [(then - first, row, what) for row, log in enumerate(logs) for what, then in log]
    expected = sorted((then for then, _, what in events if what == item and then < day), reverse=True)[:neighbours]
    known = actual.known[0]
    assert actual.day[0][known].tolist() == expected
    assert known.tolist() == [True] * len(expected) + [False] * (neighbours - len(expected))
    assert_close(actual.span[0][known], tensor([day - then for then in expected], dtype=torch.float32))
    assert (made.item[actual.which[0][known]] == item).all()


def test_the_items_before_an_edge_in_its_own_log() -> None:
    train = training_of([(1, 0), (2, 3), (1, 4)], [(3, 1), (4, 6)])
    edges = tensor([2, 3, 4])  # the third of the first log, the first and the second of the second
    with_days = edges_of_training(train, 2, 1.0, days=True).items_before(edges)
    without = edges_of_training(train, 2, 1.0, days=False).items_before(edges)
    for actual in (with_days, without):
        assert actual.known.tolist() == [[True, True], [False, False], [True, False]]
        assert actual.which[0].tolist() == [2, 1]  # the newest first
        assert actual.which[2, 0].tolist() == 3
    assert with_days.span[0].tolist() == [1, 4]
    assert with_days.span[2, 0].tolist() == 5
    assert without.span.tolist() == [[1, 2]] * 3


def test_edges_without_days_are_drawn_evenly_and_none_twice() -> None:
    """Six edges of item 1, six of item 2 and one of item 3, of which two each are drawn."""
    item = tensor([1, 2] * 6 + [3])
    seen = np.zeros(13)
    for seed in range(300):
        drawn = draw_edges(item, 5, 2, seed)
        known = drawn >= 0
        assert known.tolist() == [[False] * 2, [True] * 2, [True] * 2, [True, False], [False] * 2]
        assert (item[drawn[known]] == torch.arange(5)[:, None].expand(5, 2)[known]).all()
        assert drawn[1, 0] != drawn[1, 1]
        seen[drawn[known].numpy()] += 1 / 300
    np.testing.assert_allclose(seen[:12], 1 / 3, atol=0.1)


def test_edges_without_days_are_all_equally_far() -> None:
    made = edges_of_training(training_of([(1, 0), (2, 3), (1, 4)], [(1, 1), (4, 6)]), 4, 1.0, days=False)
    assert isinstance(made, RankEdges)
    actual = made.edges_of(tensor([1, 3]), torch.zeros(2))
    assert actual.known.tolist() == [[True, True, True, False], [False] * 4]
    assert sorted(actual.which[0, :3].tolist()) == [0, 2, 3]
    assert (actual.span == FARTHEST).all()


def test_the_time_of_a_query() -> None:
    """The second account began on day 2; eleven days later it is day 13, in the second week."""
    made = edges_of_training(training_of([(1, 0), (2, 9)], [(3, 2), (4, 6)]), 2, 7.0, days=True)
    assert isinstance(made, DayEdges)
    age, elapsed = tensor([[1.0, 11.0]] * 2, dtype=torch.float64), tensor([11.0, 11.0], dtype=torch.float64)
    span, day, period = made.query_times(tensor([1, -1]), age, elapsed)
    assert span.tolist() == age.tolist()
    assert period.tolist() == [1, 2]  # a stranger asks when training ends: the weeks that hold day 9 are over on day 14
    assert day.tolist() == [[12, 2], [13, 3]]
    assert made.begin_of(period).tolist() == [7, 14]


def test_the_query_time_of_an_account_with_several_logs_is_unknown() -> None:
    train = training_of([(1, 0), (2, 9)], [(3, 2), (4, 6)])
    twice = Training(**{**vars(train), "sequence_accounts": np.zeros(2, dtype=np.int32)})
    made = edges_of_training(twice, 2, 7.0, days=True)
    assert isinstance(made, DayEdges)
    assert made.begin.isnan().all()
    assert made.undated(tensor([0, 1])).tolist() == [0, 1]


def test_whose_questions_have_no_date() -> None:
    train = training_of([(1, 0), (2, 9)], [(3, 2), (4, 6)])
    assert edges_of_training(train, 2, 7.0, days=True).undated(tensor([1, 0])).tolist() == []
    assert edges_of_training(train, 2, 7.0, days=False).undated(tensor([1, 0])).tolist() == [1, 0]


def test_a_moment_that_is_only_rounded_up_hears_no_more() -> None:
    made = edges_of_training(training_of([(1, 0), (1, 5), (2, 9)]), 3, 7.0, days=True)
    for rounding, expected in ((1e-4, [0.0]), (0.1, [5.0, 0.0])):
        actual = made.edges_of(tensor([1]), tensor([5 + rounding], dtype=torch.float64))
        assert actual.day[actual.known].tolist() == expected

"""Questions at many places of mixed logs at once: by hand, and against the query that one cut asks."""

from dataclasses import replace

import torch
from hypothesis import given
from hypothesis import strategies as st

from lightgc2n.baselines.pi_net.domain_queries import queries_at_all_places, queries_at_the_end
from lightgc2n.layers.domain_views import cut_at, targets_after, view_of
from tests.layers.test_domain_views import DOMAINS, batch_of, training_of

LOGS = st.lists(st.lists(st.integers(0, 19), min_size=2, max_size=9), min_size=1, max_size=4)


def test_all_places_by_hand() -> None:
    asking, targets = queries_at_all_places(training_of([1, 11, 12, 2, 13], [14, 3]), DOMAINS, longest=5, most=0)
    assert targets[0].tolist() == [[2, 11], [2, 12], [2, 13], [-1, 13]]
    assert targets[1].tolist() == [[3, -1], [-1, -1], [-1, -1], [-1, -1]]  # one place, then padding
    assert [shown[0].tolist() for shown in asking.shown] == [[1, 1, 1, 2], [0, 1, 2, 2]]
    assert asking.crossed(0)[0].tolist() == [0, 2]


@given(LOGS)
def test_every_place_asks_what_a_cut_there_asks(logs: list[list[int]]) -> None:
    batch = training_of(*logs)
    asking, targets = queries_at_all_places(batch, DOMAINS, longest=9, most=0)
    for place in range(batch.log.shape[1]):
        rows = batch.seen[:, place]
        cut = cut_at(batch, torch.full((len(logs),), place))
        for number, domain in enumerate(DOMAINS):
            assert asking.shown[number][rows, place].equal(view_of(cut, domain).length[rows])
        assert targets[rows, place].equal(targets_after(batch, DOMAINS)[rows, place])


def test_the_last_target_of_a_part_is_in_the_next_part() -> None:
    """1 11 12 | 2 13 14 15, with one event of each domain a part at most 1 · 2 = 2: 1 | 11 12 | 2 13 | 14 -> 15."""
    log = [1, 11, 12, 2, 13, 14, 15]
    asking, targets = queries_at_all_places(training_of(log), DOMAINS, longest=1, most=0)
    assert targets.tolist() == [[[2, 11], [2, 12]], [[2, 13], [-1, 13]], [[-1, 14], [-1, 15]]]
    assert asking.shown[1].tolist() == [[0, 1], [1, 1], [1, 2]]


def test_drawn_places_are_some_of_all() -> None:
    torch.manual_seed(0)
    batch = training_of([1, 11, 12, 2, 13, 3], [14, 4])
    _, every = queries_at_all_places(batch, DOMAINS, longest=9, most=0)
    drawn = set()
    for _ in range(30):
        asking, targets = queries_at_all_places(batch, DOMAINS, longest=9, most=2)
        assert targets.shape == (2, 2, 2)
        assert (targets[1] >= 0).any(dim=-1).sum() == 1  # the second log has one place that counts
        for query in range(2):
            place = int(asking.shown[0][0, query] + asking.shown[1][0, query]) - 1
            assert targets[0, query].equal(every[0, place])
            drawn.add(place)
    assert drawn == {0, 1, 2, 3, 4}


def test_only_places_that_count_are_queries() -> None:
    batch = training_of([1, 11, 12, 2])
    last = replace(batch, counts=torch.tensor([[False, False, True]]))
    assert queries_at_all_places(last, DOMAINS, longest=9, most=0)[1].tolist() == [[[-1, -1], [-1, -1], [2, -1]]]


def test_given_targets_follow_the_whole_log() -> None:
    batch = training_of([1, 11, 12, 2], [14, 3], given=[[5, 15], [6, -1]])
    asking, targets = queries_at_all_places(batch, DOMAINS, longest=2, most=0)
    assert targets.tolist() == [[[5, 15]], [[6, -1]]]
    assert [shown.tolist() for shown in asking.shown] == [[[2], [1]], [[2], [1]]]


def test_the_end_shows_the_newest_events_of_each_domain() -> None:
    asking = queries_at_the_end(batch_of([1, 2, 11, 3, 12], [13]), DOMAINS, longest=2)
    assert asking.views[0].items[0].tolist() == [2, 3]
    assert [shown.tolist() for shown in asking.shown] == [[[2], [0]], [[2], [1]]]
    assert asking.crossed(0)[0].tolist() == [0, 1]


def test_a_domain_that_is_alone_is_crossed_by_itself() -> None:
    asking = queries_at_the_end(batch_of([1, 2, 3]), DOMAINS[:1], longest=9)
    assert asking.crossed(0).tolist() == [[0, 1, 2]]

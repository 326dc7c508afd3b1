"""Who acts now: shares from what came before, and from nothing else."""

import numpy as np
import pytest

from lightgc2n.people.finder import PeopleFinder
from lightgc2n.people.sessions import DAY, HOUR, Logs
from lightgc2n.people.who_acts_now import Followed, events_of, follow
from tests.people.test_finder import history
from tests.people.test_pair_evidence import world


@pytest.fixture(scope="module")
def logs() -> Logs:
    return world(40)[0]


@pytest.fixture(scope="module")
def finder(logs: Logs) -> PeopleFinder:
    return PeopleFinder.learn(logs, np.random.default_rng(0))


def test_what_comes_later_changes_nothing(finder: PeopleFinder, logs: Logs) -> None:
    items, times = history(logs, 3)
    whole = follow(finder, items, times, 15, 3, count=2)
    other = items.copy()
    other[22:] = items[:8]
    changed = follow(finder, other, times, 15, 3, count=2)
    for place in range(15, 23):
        assert changed.chances(place) == pytest.approx(whole.chances(place))
        assert changed.shares(place) == pytest.approx(whole.shares(place))
        assert whole.shares(place).shape == (place, 2)
        assert whole.chances(place).sum() == pytest.approx(1)


def test_one_person_always_acts(finder: PeopleFinder, logs: Logs) -> None:
    items, times = history(logs, 3)
    found = follow(finder, items, times, 15, 3, count=1)
    assert found.chances(20).tolist() == [1.0]
    assert [len(own) for own in events_of(found.shares(20))] == [20]


def followed(times: list[int], session: list[int], share: list[list[float]], shares: list[list[float]]) -> Followed:
    """Two people, found in the events that have a share."""
    from lightgc2n.people.finder import People

    known = len(share)
    people = People(2, 1.0, np.eye(5)[1], np.array(share), np.array(session[:known]))
    return Followed(known, people, np.array(session), np.array(times), np.array(shares))


def test_a_session_that_goes_on_decides_by_what_it_has_so_far() -> None:
    days = [0, 10 * DAY, 10 * DAY, 10 * DAY]
    found = followed(days, [0, 1, 1, 1], [[1.0, 0.0]], [[0.4, 0.6], [0.2, 0.8], [0.1, 0.9]])
    assert [found.going_on(place) for place in (1, 2, 3)] == [False, True, True]
    assert found.chances(2).tolist() == [0.4, 0.6]
    assert found.chances(3).tolist() == [0.2, 0.8]
    # The first event of the session is seen anew with each that follows.
    assert found.shares(3).tolist() == [[1.0, 0.0], [0.2, 0.8], [0.2, 0.8]]
    assert [own.tolist() for own in events_of(found.shares(3))] == [[0], [1, 2]]


def test_when_a_session_begins_recent_activity_decides() -> None:
    """The first person acted 20 days ago, the second 10 days ago: a quarter against a half."""
    found = followed([0, 10 * DAY, 20 * DAY], [0, 1, 2], [[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5]])
    assert found.chances(2) == pytest.approx([1 / 3, 2 / 3])


def test_the_same_hour_counts_more() -> None:
    """Twenty days and a half ago against ten days ago: e^-1 and e^1 beside the halves."""
    times = [12 * HOUR, 10 * DAY + 24 * HOUR, 21 * DAY]
    found = followed(times, [0, 1, 2], [[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5]])
    weight = np.array([0.5**2.05 * np.exp(-1), 0.5 * np.exp(1)])
    assert found.chances(2) == pytest.approx(weight / weight.sum())

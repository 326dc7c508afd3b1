"""Households of users of the same period, and households of every size that have equally long logs."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from lightgc2n.errors import DataError
from lightgc2n.synthetic.matched_users import AHEAD, TOLERANCE, Activity, balanced_households, overlapping_households
from lightgc2n.synthetic.merged_accounts import simulate
from tests.synthetic.test_merged_accounts import options, rows, written


def drawn(users: int = 400) -> Activity:
    random = np.random.default_rng(0)
    first = random.integers(0, 100, users)
    last = first + random.integers(20, 100, users)
    done = np.clip((np.arange(0, 200, 2) - first[:, None]) / (last - first)[:, None], 0, 1)  # evenly active
    return Activity(first, last, random.integers(10, 90, users), done.astype(np.float32))


def test_overlap_by_hand():
    activity = Activity(np.array([0, 5, 20, 3]), np.array([10, 15, 30, 3]), np.array([9, 9, 9, 1]), np.zeros((4, 2)))
    # Days 0 to 10 and 5 to 15 share 5 of 15 days; 20 to 30 shares none; an instant shares nothing of 10 days.
    assert activity.overlap(0).tolist() == [1.0, 5 / 15, 0.0, 0.0]
    assert activity.overlap(3)[3] == 1.0


def test_shares_of_events_by_hand():
    # Ann has one event at 0 and three at 9, Bob three at 0 and one at 9: after time 0 Bob is half his events ahead.
    account, times = np.array([0, 0, 0, 0, 1, 1, 1, 1, 2, 2]), np.array([0, 9, 9, 9, 0, 0, 0, 9, 0, 9])
    activity = Activity.of(account, times, 4)
    assert activity.events.tolist() == [4, 4, 2, 0]
    assert (activity.first.tolist(), activity.last.tolist()) == ([0, 0, 0, 0], [9, 9, 9, 0])
    assert activity.done[:3, [0, -1]].tolist() == [[0.25, 1], [0.75, 1], [0.5, 1]]
    assert activity.together(0, 0.8).tolist() == [True, False, True, False]
    assert activity.together(0, 0.0).tolist() == [True] * 4  # nothing is asked for


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_every_two_members_overlap(share):
    activity = drawn()
    household = overlapping_households(activity, activity.events > 12, (2, 4), share, np.random.default_rng(1))
    sizes = Counter(household[household >= 0].tolist())
    assert len(sizes) > 40
    assert set(sizes.values()) == {2, 3, 4}
    assert set(sizes) == set(range(len(sizes)))
    assert (activity.events[household >= 0] > 12).all()
    for number in sizes:
        for one, other in combinations(np.flatnonzero(household == number), 2):
            shared = min(activity.last[one], activity.last[other]) - max(activity.first[one], activity.first[other])
            union = max(activity.last[one], activity.last[other]) - min(activity.first[one], activity.first[other])
            assert shared / union >= share
            assert np.abs(activity.done[one] - activity.done[other]).max() <= AHEAD


def test_balanced_households_of_every_size_are_equally_long():
    activity = drawn(2000)
    household = balanced_households(activity, activity.events >= 10, (1, 4), 0.3, np.random.default_rng(1))
    members = [np.flatnonzero(household == number) for number in range(household.max() + 1)]
    sizes = Counter(map(len, members))
    assert set(sizes) == {1, 2, 3, 4}
    assert len(set(sizes.values())) == 1  # one of every size for each total
    assert all(np.ptp(np.log(activity.events[one])) <= 2 * np.log(TOLERANCE) for one in members)
    totals = {size: np.mean([activity.events[one].sum() for one in members if len(one) == size]) for size in sizes}
    assert max(totals.values()) < TOLERANCE * min(totals.values())


def test_simulate_merges_users_of_one_period(tmp_path):
    early, late = ([(item, day + 2 * item) for item in range(6)] for day in (0, 100))
    rest = [[(item, day + 2 * item) for item in range(6)] for day in (1, 99)]
    users = {"ann": early, "bob": late, "cy": rest[0], "di": rest[1]}
    source = written(tmp_path / "in", users)
    manifest = simulate(source, options(members="2", overlap=0.8), tmp_path / "out")
    homes = {frozenset(member for account, member, *_ in rows(tmp_path / "out") if account == home) for home in
             {account for account, *_ in rows(tmp_path / "out")}}  # fmt: skip
    assert homes == {frozenset({"ann", "cy"}), frozenset({"bob", "di"})}
    assert "The spans of every two users of an account overlap by at least 0.8 of their union." in manifest["notes"]


def test_no_household_is_an_error(tmp_path):
    source = written(tmp_path / "in", {"ann": [(0, 0), (1, 9)], "bob": [(0, 50), (1, 59)]})
    with pytest.raises(DataError, match="no household can be made of the 2 users"):
        simulate(source, options(members="2", overlap=0.5), tmp_path / "out")
    assert not (tmp_path / "out").exists()

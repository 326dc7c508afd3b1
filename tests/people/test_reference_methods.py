"""Floors: what each one looks at, and what none of them may see or change."""

import dataclasses

import numpy as np
import pytest

from lightgc2n.experiments.identify_latent import strongest
from lightgc2n.people.reference_methods import REFERENCE_METHODS, at_random, one_person
from lightgc2n.people.sessions import CELLS_AT_ONCE, DAY, HOUR, Logs, account_points, dates, hours, tastes
from tests.people.accounts import logs_of, same_groups

TASTES = np.eye(4)[[0, 0, 1, 1, 2, 2]]  # items 0 and 1, 2 and 3, 4 and 5 are alike


def household(hours_differ: bool = False) -> tuple[Logs, np.ndarray]:
    """Twenty days of two people, each with sessions of two items of their own kind; and a second account of one."""
    items, times, who = [], [], []
    for day in range(20):
        person = day % 2
        start = day * DAY + (20 if person and hours_differ else 8) * HOUR
        items += [2 * person, 2 * person + 1]
        times += [start, start + HOUR // 2]
        who += [person, person]
    return logs_of([items, [4, 5, 4]], TASTES, [times, [0, 1, 2 * DAY]]), np.array(who)


def found(name: str, logs: Logs, count: list[int] | None) -> np.ndarray:
    given = None if count is None else np.array(count)
    return REFERENCE_METHODS[name].find(logs, given, np.random.default_rng(0))


@pytest.mark.parametrize("name", [name for name, one in REFERENCE_METHODS.items() if one.given and "dates" not in name])
def test_two_tastes_are_told_apart_with_the_count_given(name: str) -> None:
    logs, who = household(hours_differ=True)
    label = found(name, logs, [2, 1])
    if name == "one-person" or name.startswith("random"):
        assert not same_groups(label[:40], who)
    else:
        assert same_groups(label[:40], who)
        assert len(set(label[40:].tolist())) == 1


@pytest.mark.parametrize(
    "name", [name for name in REFERENCE_METHODS if "k-means" in name or "mixture" in name or "dbscan" in name]
)
def test_the_count_of_clear_tastes_is_found(name: str) -> None:
    logs, who = household(hours_differ=True)
    assert logs.times is not None
    logs = dataclasses.replace(logs, times=logs.times // DAY * 7 * DAY + logs.times % DAY)  # never at a weekend
    assert same_groups(found(name, logs, None)[:40], who)


def test_hours_tell_people_of_one_taste_apart() -> None:
    logs, who = household(hours_differ=True)
    logs = dataclasses.replace(logs, vectors=np.ones_like(logs.vectors))
    assert same_groups(found("session-k-means-hours", logs, [2, 1])[:40], who)
    assert not same_groups(found("session-k-means", logs, [2, 1])[:40], who)


def test_dates_tell_one_after_the_other_apart() -> None:
    logs = logs_of([[0] * 6], TASTES, [[0, DAY, 2 * DAY, 90 * DAY, 91 * DAY, 92 * DAY]])
    assert same_groups(found("session-dates", logs, [2]), np.array([0, 0, 0, 1, 1, 1]))


def test_sessions_stay_whole() -> None:
    logs, _ = household()
    for name in REFERENCE_METHODS:
        if name.startswith(("session", "random-sessions")):
            pairs = set(zip(logs.session.tolist(), found(name, logs, None).tolist(), strict=True))
            assert len(pairs) == len(set(logs.session.tolist())), name


def test_chance_is_even() -> None:
    logs = logs_of([[0] * 4000, [0] * 4000], TASTES)
    label = at_random(logs, np.array([4, 1]), np.random.default_rng(0))
    assert np.bincount(label[:4000]) / 4000 == pytest.approx([0.25] * 4, abs=0.03)
    assert not label[4000:].any()
    many = logs_of([[0] * 50] * 500, TASTES)
    drawn = at_random(many, None, np.random.default_rng(0)).reshape(500, 50)
    counts = np.array([len(np.unique(row)) for row in drawn])
    assert np.bincount(counts)[1:] / 500 == pytest.approx([0.2] * 5, abs=0.06)
    assert not one_person(logs, None, np.random.default_rng(0)).any()


@pytest.mark.parametrize("name", REFERENCE_METHODS)
def test_the_same_seed_gives_the_same_people(name: str) -> None:
    random = np.random.default_rng(0)
    times = np.sort(random.integers(0, 90 * DAY, size=(6, 25)), axis=1).tolist()
    logs = logs_of(random.integers(6, size=(6, 25)).tolist(), random.standard_normal((6, 4)), times)
    for count in ([1, 2, 3, 4, 5, 2], None):
        assert np.array_equal(found(name, logs, count), found(name, logs, count))
        people = [len(np.unique(found(name, logs, count)[logs.account == one])) for one in range(6)]
        if count is not None:
            assert (
                all(most >= number for most, number in zip(count, people, strict=True))
                or not REFERENCE_METHODS[name].given
            )


def test_features_by_hand() -> None:
    logs = logs_of([[0, 2], [4]], TASTES, [[6 * HOUR, 7 * HOUR], [2 * DAY + 12 * HOUR]])
    assert logs.session.tolist() == [0, 0, 1]
    assert tastes(logs, logs.session).tolist() == [[0.5, 0.5, 0, 0], [0, 0, 1, 0]]
    # 6 in the morning of a Thursday, and noon of the Saturday that follows.
    assert hours(logs, logs.session) == pytest.approx(np.array([[0, 1, 0], [-1, 0, 1]]), abs=1e-6)
    assert dates(logs, logs.event)[:, 0].tolist() == pytest.approx([-1, 1, 0])  # one day of three is all its spread


def test_accounts_come_in_parts_of_bounded_size() -> None:
    random = np.random.default_rng(0)
    sizes = random.integers(0, 400, size=300)
    owner, features = np.repeat(np.arange(300), sizes), random.standard_normal((sizes.sum(), 8)).astype(np.float32)
    seen = np.zeros(len(features), dtype=int)
    for rows, places, points in account_points(features, owner, 300):
        assert points.vectors.size <= CELLS_AT_ONCE
        assert points.known.sum(axis=1).tolist() == sizes[rows].tolist()
        assert np.array_equal(points.vectors[points.known], features[places])
        assert not points.vectors[~points.known].any()
        seen[places] += 1
    assert (seen == 1).all()


def test_the_strongest_share_by_hand() -> None:
    logs = logs_of([[0, 1, 2], [3]], TASTES)
    shares = np.array([[0.5, 0.3, 0.2], [0.1, 0.4, 0.5], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]], dtype=np.float32)
    assert strongest(shares, logs, None).tolist() == [0, 2, 1, 2]
    # Of the first account the users hold 0.7, 1.3 and 1.0; with two people the first user is left out.
    assert strongest(shares, logs, np.array([2, 1])).tolist() == [1, 2, 1, 2]

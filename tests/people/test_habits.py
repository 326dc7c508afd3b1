"""Habits: every score is what a session adds to the likelihood of a person's sessions, and planted people are found."""

import math

import numpy as np
import pytest

from lightgc2n.people.assigning import assign, likelihoods
from lightgc2n.people.habits import Counts, Habits, Hours, View, Weights, calendar, log_gamma
from lightgc2n.people.session_features import Sessions
from lightgc2n.people.sessions import DAY, HOUR

KINDS = np.log([0.25, 0.75])


def hard(person: list[int], people: int) -> np.ndarray:
    return np.eye(people)[person][None]


def test_log_gamma() -> None:
    values = np.array([0.05, 0.5, 1.0, 2.0, 7.5, 300.0])
    assert log_gamma(values) == pytest.approx([math.lgamma(value) for value in values], abs=1e-4)


def test_the_calendar_by_hand() -> None:
    # The first day of 1970 was a Thursday; half past six in the evening, then Saturday at midnight.
    hour, weekend, weekday = calendar(np.array([18.5 / 24, 2.0]))
    assert hour.tolist() == [18, 0]
    assert weekend.tolist() == [0, 1]
    assert weekday.tolist() == [3, 5]
    assert calendar((19000 * DAY + np.arange(24) * HOUR) / DAY)[0].tolist() == list(range(24))


def test_counts_of_one_person_by_hand() -> None:
    # The other session has one event of group 0: after weights of 1/2 the next is of group 0 with chance 3/4.
    counts = np.array([[[1.0, 0.0], [1.0, 0.0]]])
    assert np.exp(Counts.of(counts, counts, 0.5).scores(hard([0, 0], 1)))[0, 0, 0] == pytest.approx(0.75, abs=1e-4)
    # Both together: 1/2 for the first, 3/4 for the second.
    assert np.exp(Counts.of(counts, counts, 0.5).totals(hard([0, 0], 1)))[0, 0] == pytest.approx(0.375, abs=1e-4)


def test_hours_of_a_person_who_has_none_are_those_of_any_type() -> None:
    hours = Hours(np.log([[[0.5, 0.1]]]), KINDS)
    assert np.exp(hours.scores(np.ones((1, 1, 1))))[0, 0, 0] == pytest.approx(0.25 * 0.5 + 0.75 * 0.1)
    assert np.exp(hours.totals(np.ones((1, 1, 1))))[0, 0] == pytest.approx(0.25 * 0.5 + 0.75 * 0.1)


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_a_score_is_what_a_session_adds_to_the_likelihood(place: int) -> None:
    random = np.random.default_rng(place)
    counts = random.integers(0, 3, size=(1, 4, 5)).astype(np.float64)
    hours = np.log(random.dirichlet(np.ones(3), (1, 4))[..., :2])
    person = [0, 1, 1, 0]
    for kind in (Counts.of(counts, counts, 0.3), Hours(hours, KINDS)):
        for target in (0, 1):
            moved = [target if other == place else one for other, one in enumerate(person)]
            there, gone = hard(moved, 2), hard(moved, 2)
            gone[0, place] = 0
            gain = (kind.totals(there) - kind.totals(gone)).sum()
            assert kind.scores(hard(person, 2))[0, place, target] == pytest.approx(gain, abs=1e-3)


def test_accounts_and_counts_of_people_do_not_affect_each_other() -> None:
    random = np.random.default_rng(0)
    counts, belongs = random.integers(0, 3, size=(2, 5, 4)).astype(np.float64), random.dirichlet(np.ones(3), (2, 5))
    both = Counts.of(counts, counts, 0.1).scores(np.concatenate([belongs, belongs[..., :2]], axis=-1))
    for account in range(2):
        alone = Counts.of(counts[[account]], counts[[account]], 0.1).scores(belongs[[account]])[0]
        assert both[account, :, :3] == pytest.approx(alone)
        assert both[account, :, 3:] == pytest.approx(alone[:, :2])


def planted(sessions: int = 24) -> tuple[View, np.ndarray]:
    """Two people with a group, a day and an hour of their own each."""
    person = np.arange(sessions) % 2
    taste = 2 * np.eye(4)[2 * person + np.arange(sessions) // 2 % 2][None]  # each likes two groups, which go together
    together = np.kron(np.eye(2), np.full((2, 2), 0.5))
    days = np.eye(7)[person][None]
    hours = Hours(np.log(np.array([[0.9, 0.1], [0.1, 0.9]]))[person][None], np.log([0.5, 0.5]))
    kinds = (Counts.of(taste, taste @ together, 0.1), Counts.of(days, days, 1.2), hours)
    return View(kinds, Weights(1.0, 0.1, 1.0, 1.0, 1.0)), person


def test_planted_people_are_found_and_a_third_explains_nothing() -> None:
    view, person = planted()
    size = np.ones((1, len(person)), dtype=np.int64)
    some = np.random.default_rng(0).normal(0, 0.1, (len(person), len(person)))
    pairs = ((some + some.T) * (1 - np.eye(len(person))))[None]  # says nothing
    assigned = [assign(pairs, size, people, view) for people in (1, 2, 3)]
    assert assigned[1].sum(axis=-1) == pytest.approx(np.ones((1, len(person))))
    assert len(set(zip(assigned[1][0].argmax(axis=1).tolist(), person.tolist(), strict=True))) == 2
    one, two, three = likelihoods(pairs, size, assigned, view)[0]
    assert two - one > 10
    assert three - two < 5
    blind = View(view.kinds, Weights(1.0, 0.1))
    assert blind.scores(assigned[1]).tolist() == np.zeros((1, len(person), 2)).tolist()


def sessions_of(items: list[list[int]], begun: list[float] | None) -> Sessions:
    size = np.array([len(one) for one in items])
    number = len(items)
    return Sessions(
        owner=np.zeros(number, dtype=np.int64),
        size=size,
        begun=None if begun is None else np.array(begun),
        taste=np.zeros((number, 2)),
        traits=np.zeros((number, 2)),
        first=np.cumsum(size) - size,
        items=np.concatenate(items).astype(np.int64),
        held=np.zeros(0, dtype=np.int64),
        catalogue=4,
    )


def test_habits_of_sessions_by_hand() -> None:
    group = np.array([[0, 1, 1, 2], [2, 2, 2, 2]], dtype=np.uint8)  # nobody in fold 0 has item 3
    together = np.stack([np.array([[0.5, 0.5], [0.0, 1.0]]), np.eye(2)])
    hours = np.log(np.arange(1, 49).reshape(1, 2, 24) / 48)
    habits = Habits(group, together, hours, np.zeros(1), Weights(1.0, 0.0, 1.0, 1.0, 1.0))
    sessions = sessions_of([[0, 1, 2], [3], [0]], [0.5, 2.0, 3.25])  # Thursday noon, Saturday midnight, Sunday at six
    view = habits.of(sessions, np.array([0]), np.array([[0, 1, 2]]))
    tastes, weekdays, of_hours = view.kinds
    assert isinstance(tastes, Counts)
    assert isinstance(weekdays, Counts)
    assert isinstance(of_hours, Hours)
    assert tastes.spread.tolist() == [[[0.5, 2.5], [0, 0], [0.5, 0.5]]]
    assert list(zip(tastes.row, tastes.group, tastes.count, strict=True)) == [(0, 0, 1), (0, 1, 2), (2, 0, 1)]
    assert weekdays.group.tolist() == [3, 5, 6]
    assert np.exp(of_hours.chance[0, :, 0]) * 48 == pytest.approx([13, 25, 31])
    assert habits.of(sessions_of([[0], [1]], None), np.array([0]), np.array([[0, 1]])).kinds[1:] == (None, None)

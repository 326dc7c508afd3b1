"""The mixture: every score is the difference of two likelihoods, and planted people are found."""

import math

import numpy as np
import pytest

from lightgc2n.people.assigning import softmax
from lightgc2n.people.mixture import (
    TASTE,
    Account,
    Mixture,
    counts_score,
    counts_total,
    kinds_score,
    kinds_total,
    log_gamma,
)

KINDS = np.log([0.25, 0.75])


def hard(person: list[int], people: int) -> np.ndarray:
    return np.eye(people)[person][None]


def test_log_gamma() -> None:
    values = np.array([0.05, 0.5, 1.0, 2.0, 7.5, 300.0])
    assert log_gamma(values) == pytest.approx([math.lgamma(value) for value in values], abs=1e-4)


def test_counts_of_one_person_by_hand() -> None:
    # The other session has one event of group 0: after weights of 1/2 the next is of group 0 with chance 3/4.
    counts = np.array([[1.0, 0.0], [1.0, 0.0]])
    assert np.exp(counts_score(hard([0, 0], 1), counts, counts, 0.5))[0, 0, 0] == pytest.approx(0.75, abs=1e-4)


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_a_score_is_what_a_session_adds_to_the_likelihood(place: int) -> None:
    random = np.random.default_rng(place)
    counts = random.integers(0, 3, size=(4, 5)).astype(np.float64)
    hours = np.log(random.dirichlet(np.ones(3), 4)[:, :2])
    person = [0, 1, 1, 0]
    for target in (0, 1):
        moved = [target if other == place else one for other, one in enumerate(person)]
        there, gone = hard(moved, 2), hard(moved, 2)
        gone[0, place] = 0
        of_counts = counts_total(there, counts, 0.3) - counts_total(gone, counts, 0.3)
        assert counts_score(hard(person, 2), counts, counts, 0.3)[0, place, target] == pytest.approx(
            of_counts[0], abs=1e-3
        )
        of_hours = kinds_total(there, hours, KINDS) - kinds_total(gone, hours, KINDS)
        assert kinds_score(hard(person, 2), hours, KINDS)[0, place, target] == pytest.approx(of_hours[0])


def test_hours_of_a_person_who_has_none_are_those_of_any_kind() -> None:
    hours = np.log([[0.5, 0.1]])
    assert np.exp(kinds_score(np.ones((1, 1, 1)), hours, KINDS))[0, 0, 0] == pytest.approx(0.25 * 0.5 + 0.75 * 0.1)


def planted(sessions: int = 24) -> tuple[Mixture, Account, np.ndarray]:
    """Two people with a group, a day and an hour of their own each; the evidence of pairs says nothing."""
    person = np.arange(sessions) % 2
    taste = 2 * np.eye(4)[2 * person + np.arange(sessions) // 2 % 2]  # each likes two groups, which go together
    together = np.kron(np.eye(2), np.full((2, 2), 0.5))
    kinds = np.log(np.array([[0.9, 0.1], [0.1, 0.9]]))
    mixture = Mixture(np.zeros((1, 1), dtype=np.int64), together[None], None, np.log([0.5, 0.5]))
    none, one = np.zeros((sessions, sessions)), np.ones(sessions, dtype=np.int64)
    return mixture, Account(none, one, taste, taste @ together, np.eye(7)[person], kinds[person]), person


def test_planted_people_are_found() -> None:
    mixture, account, person = planted()
    found = mixture.assign(account, 2, np.random.default_rng(0))
    assert found.sum(axis=1) == pytest.approx(np.ones(len(person)))
    assert len(set(zip(found.argmax(axis=1).tolist(), person.tolist(), strict=True))) == 2
    counted = mixture.count_features(account, np.random.default_rng(0))
    assert counted[0] > 0  # a second person explains much, a third one nothing
    assert counted[1:] == pytest.approx(np.zeros(3), abs=1e-9)


def test_without_times_tastes_alone_decide() -> None:
    mixture, account, person = planted()
    blind = Account(account.evidence, account.size, account.taste, account.spread, None, None)
    found = mixture.assign(blind, 2, np.random.default_rng(0)).argmax(axis=1)
    assert len(set(zip(found.tolist(), person.tolist(), strict=True))) == 2


def test_the_first_start_is_what_evidence_alone_says() -> None:
    mixture, account, person = planted()
    alike = np.where(person[:, None] == person, 3.0, -3.0) * (1 - np.eye(len(person)))
    nothing = np.zeros_like(account.taste)
    known = Account(alike, account.size, nothing, nothing, None, None)
    found = mixture.assign(known, 2, np.random.default_rng(0), starts=1).argmax(axis=1)
    assert len(set(zip(found.tolist(), person.tolist(), strict=True))) == 2


def test_a_step_is_the_slow_loop() -> None:
    mixture, account, _ = planted(6)
    random = np.random.default_rng(3)
    pairs = random.normal(size=(6, 6))
    account = Account(
        (pairs + pairs.T) * (1 - np.eye(6)), random.integers(1, 4, size=6), account.taste, account.spread, None, None
    )
    belongs = random.dirichlet(np.ones(3), (2, 6))
    found = mixture.step(account, belongs)
    for start in range(2):
        tastes = counts_score(belongs, account.taste, account.spread, TASTE)[start]
        for row in range(6):
            score = np.zeros(3)
            for person in range(3):
                mass = [belongs[start, other, person] * math.sqrt(account.size[other]) for other in range(6)]
                others = [other for other in range(6) if other != row]
                near = sum(math.exp(account.evidence[row, other]) * mass[other] for other in others)
                score[person] = math.log((near + 1) / (sum(mass[other] for other in others) + 1)) + tastes[row, person]
                score[person] += math.log(sum(belongs[start, other, person] for other in others) + 3.5)
            assert found[start, row] == pytest.approx(softmax(score))


def test_there_are_never_more_people_than_sessions() -> None:
    mixture, account, _ = planted(2)
    assert mixture.assign(account, 3, np.random.default_rng(0)).tolist() == [[1, 0, 0], [0, 1, 0]]

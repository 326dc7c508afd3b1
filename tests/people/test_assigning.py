"""From evidence about pairs to people: each step by a loop, and the same work whatever the evidence."""

import numpy as np
import pytest

from lightgc2n.people import assigning
from lightgc2n.people.assigning import (
    STEPS,
    assign,
    assign_each,
    assign_others,
    mean_field_step,
    ratios_of,
    spectral_start,
)
from tests.people.accounts import same_groups


def blocks(who: np.ndarray, noise: float = 0.0) -> np.ndarray:
    """Evidence of 1 for two sessions of one person, -1 for two people's."""
    evidence = np.where(who[:, None] == who, 1.0, -1.0)
    shaken = np.random.default_rng(0).normal(0, noise, evidence.shape)
    evidence += (shaken + shaken.T) / 2
    np.fill_diagonal(evidence, 0)
    return evidence


def stepped(evidence: np.ndarray, weight: np.ndarray, belongs: np.ndarray) -> np.ndarray:
    return mean_field_step(evidence, ratios_of(evidence), weight, belongs, np.array([], dtype=np.int64))


def test_a_mean_field_step_by_a_loop() -> None:
    random = np.random.default_rng(0)
    evidence, weight = blocks(np.arange(6) % 3, noise=1.0), random.uniform(1, 3, 6)
    belongs = random.dirichlet(np.ones(3), 6)
    expected = np.zeros((6, 3))
    for i in range(6):
        for person in range(3):
            others = [j for j in range(6) if j != i]
            mass = {j: weight[j] * belongs[j, person] for j in others}
            like = sum(mass[j] * np.exp(evidence[i, j]) for j in others)
            fit = np.log((like + 1) / (sum(mass.values()) + 1))
            expected[i, person] = np.exp(3 * fit + 0.1 * sum(mass[j] * evidence[i, j] for j in others))
        expected[i] /= expected[i].sum()
    assert stepped(evidence, weight, belongs) == pytest.approx(expected)


def test_further_sessions_are_given_as_in_a_step() -> None:
    # The last session has no share yet, so a step gives it what `assign_others` gives it from the rest.
    random = np.random.default_rng(0)
    evidence, weight = blocks(np.arange(6) % 2, noise=1.0), random.uniform(1, 3, 6)
    belongs = np.vstack([random.dirichlet(np.ones(2), 5), np.zeros(2)])
    found = assign_others(evidence[5:, :5], weight[:5], belongs[:5])
    assert found[0] == pytest.approx(stepped(evidence, weight, belongs)[5])


def test_the_spectral_start_by_hand() -> None:
    # Two pairs with evidence 1 inside and none across: eigenvectors (1, 1, 0, 0) and (0, 0, 1, 1) over the root of 2.
    evidence = np.kron(np.eye(2), [[0.0, 1.0], [1.0, 0.0]])
    start = spectral_start(*np.linalg.eigh(evidence), 2)
    assert same_groups(start.argmax(axis=1), np.array([0, 0, 1, 1]))
    assert np.array_equal(start.sum(axis=1), np.ones(4))


@pytest.mark.parametrize("people", [1, 2, 3, 5])
def test_people_are_found_in_noise(people: int) -> None:
    who = np.random.default_rng(1).permutation(np.arange(40) % people)
    shares = assign(blocks(who, noise=1.0), np.ones(40, dtype=np.int64), people)
    assert same_groups(shares.argmax(axis=1), who)
    assert shares.shape == (40, people)
    assert shares.sum(axis=1) == pytest.approx(np.ones(40))


def test_the_order_of_sessions_changes_nothing() -> None:
    who = np.arange(30) % 3
    evidence, size = blocks(who, noise=1.5), 1 + np.arange(30) % 4
    order = np.random.default_rng(0).permutation(30)
    straight = assign(evidence, size, 3).argmax(axis=1)
    turned = assign(evidence[np.ix_(order, order)], size[order], 3).argmax(axis=1)
    assert same_groups(turned, straight[order])


def test_who_has_no_more_sessions_than_people() -> None:
    assert assign(np.zeros((1, 1)), np.array([4]), 1).tolist() == [[1]]
    assert assign(np.zeros((1, 1)), np.array([4]), 3).tolist() == [[1, 0, 0]]
    assert assign(blocks(np.array([0, 0])), np.array([1, 1]), 2).tolist() == [[1, 0], [0, 1]]


def test_many_accounts_and_counts_at_once_are_as_one_by_one() -> None:
    random = np.random.default_rng(0)
    evidence = np.stack([blocks(random.permutation(np.arange(12) % people), 1.0) for people in (1, 2, 3, 4)])
    size = random.integers(1, 5, size=(4, 12))
    counts = [1, 2, 3, 5, 12]
    for people, shares in zip(counts, assign_each(evidence, size, counts), strict=True):
        for account in range(4):
            assert shares[account] == pytest.approx(assign(evidence[account], size[account], people))


def test_no_evidence_is_no_error() -> None:
    shares = assign(np.zeros((5, 5)), np.ones(5, dtype=np.int64), 2)
    assert shares.sum(axis=1) == pytest.approx(np.ones(5))


@pytest.mark.parametrize("noise", [0.0, 3.0])
def test_the_work_is_fixed(noise: float, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: dict[str, int] = {}

    def counted(name: str) -> None:
        plain = getattr(assigning, name)

        def call(*given: np.ndarray) -> np.ndarray:
            steps[name] = steps.get(name, 0) + 1
            return np.asarray(plain(*given))

        monkeypatch.setattr(assigning, name, call)

    for name in ("mean_field_step", "_squared_distances"):
        counted(name)
    assign(blocks(np.arange(20) % 4, noise), np.ones(20, dtype=np.int64), 4)
    assert steps == {"mean_field_step": STEPS, "_squared_distances": 3 + 10}  # three more centres, then ten rounds

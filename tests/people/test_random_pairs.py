"""What merges of two random accounts tell about counts: by hand."""

import numpy as np
import pytest

from lightgc2n.people.random_pairs import chances_of_one, counts_of_pairs, with_shares


def test_accounts_that_are_no_more_common_than_pairs_have_several_people() -> None:
    # One person: 1 - scale / odds. The odds are 1, 1, 2 and 4; with a scale of 1 the chances are 0, 0, 1/2 and 3/4.
    found = chances_of_one(np.log([1.0, 1, 2, 4]), share=1.25 / 4)
    assert found == pytest.approx([0, 0, 0.5, 0.75], abs=1e-9)


def test_as_many_singles_as_were_asked_for() -> None:
    odds = np.random.default_rng(0).normal(size=500)
    for share in (0.1, 0.3):
        found = chances_of_one(odds, share)
        assert found.mean() == pytest.approx(share)
        assert (np.diff(found[np.argsort(odds)]) >= 0).all()
    assert not chances_of_one(np.zeros(3), 0.2).any()  # no account stands out


def test_probabilities_are_moved_to_the_shares() -> None:
    random = np.random.default_rng(0)
    likely, shares = random.dirichlet(np.ones(3), size=200), np.array([0.5, 0.3, 0.2])
    found = with_shares(likely, shares)
    assert found.mean(axis=0) == pytest.approx(shares, abs=1e-6)
    factor = found / likely  # by one factor for each count, before each row is divided by its sum
    relative = factor / factor[:, :1]
    assert relative == pytest.approx(np.broadcast_to(relative[0], relative.shape))


def test_counts_of_pairs_by_hand() -> None:
    likely = np.array([[0.8, 0.2, 0], [0.5, 0.5, 0], [0, 0, 1]])
    members = np.array([[0, 1], [1, 1], [0, 2]])
    found, weight = counts_of_pairs(likely, members, np.array([0.4, 0.3, 0.3]))
    # Two people: 0.8 * 0.5 and 0.5 * 0.5; three: 0.8 * 0.5 + 0.2 * 0.5 and 2 * 0.25; the third pair has four or more.
    two, three = np.array([0.4, 0.25, 0]), np.array([0.5, 0.5, 0])
    expected = np.column_stack([np.zeros(3), 0.3 * two / two.sum(), 0.3 * three / three.sum()])
    assert weight == pytest.approx(expected.sum(axis=1) / 0.6)
    assert found[:2] == pytest.approx(expected[:2] / expected[:2].sum(axis=1, keepdims=True))
    assert weight @ found == pytest.approx([0, 0.5, 0.5])

"""Item vectors: the weights by hand, and the eigenvectors against those of another library."""

import math

import numpy as np
import pytest

from lightgc2n.people import session_features
from lightgc2n.people.session_features import Weights, information, item_vectors, leading_vectors


def dense(weights: Weights) -> np.ndarray:
    table = np.zeros((weights.size, weights.size))
    table[weights.row, weights.column] = weights.value
    return table


def test_information_by_hand() -> None:
    # Accounts hold {0, 1}, {0, 1}, {0, 2}, {3}: of four accounts 3 hold item 0, 2 item 1, 1 item 2.
    account, item = np.array([0, 0, 1, 1, 2, 2, 3]), np.array([0, 1, 0, 1, 0, 2, 3])
    expected = np.zeros((5, 5))
    expected[0, 1] = expected[1, 0] = math.log(2 * 4 / (3 * 2))
    expected[0, 2] = expected[2, 0] = math.log(1 * 4 / (3 * 1))
    assert dense(information(account, item, 5)) == pytest.approx(expected)


def test_what_goes_together_less_than_expected_weighs_nothing() -> None:
    # Items 0 and 1 are held by 3 of 4 accounts each; 9 / 4 accounts with both are expected, 2 are found.
    account, item = np.array([0, 0, 1, 1, 2, 3]), np.array([0, 1, 0, 1, 0, 1])
    assert not dense(information(account, item, 2)).any()


def test_leading_vectors_are_those_of_the_whole_matrix() -> None:
    random = np.random.default_rng(0)
    half = random.standard_normal((30, 5)) * np.array([8, 4, 2, 1, 0.5])
    full = (half @ half.T).astype(np.float32)
    row, column = np.divmod(np.arange(900), 30)
    found = leading_vectors(Weights(30, row, column, full.ravel()), 3, random)
    values, axes = np.linalg.eigh(full)
    best = axes[:, ::-1][:, :3] * np.sqrt(values[::-1][:3])
    assert found @ found.T == pytest.approx(best @ best.T, abs=1e-2)  # signs of eigenvectors mean nothing


def test_a_product_with_many_parts_is_the_whole_product(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    full = random.standard_normal((6, 6)).astype(np.float32) * (random.random((6, 6)) < 0.6)
    row, column = np.nonzero(full)
    right = random.standard_normal((6, 2)).astype(np.float32)
    monkeypatch.setattr(session_features, "CELLS_AT_ONCE", 6)  # three cells at once, so that rows are cut
    assert Weights(6, row, column, full[row, column]) @ right == pytest.approx(full @ right, abs=1e-5)


def test_items_of_one_taste_are_alike() -> None:
    random = np.random.default_rng(0)
    taste = np.repeat(np.arange(60) % 3, 8)
    item = taste * 10 + random.integers(10, size=len(taste))
    found = item_vectors(np.repeat(np.arange(60), 8), item, 31, width=8)
    assert found.shape == (31, 8)
    assert np.linalg.norm(found, axis=1) == pytest.approx([1.0] * 30 + [0.0])  # nobody holds item 30
    like = found[:30] @ found[:30].T
    same = np.equal.outer(np.arange(30) // 10, np.arange(30) // 10)
    assert like[same].mean() > 0.5 > 0.2 > like[~same].mean()


def test_of_an_endless_log_some_items_are_taken_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_features, "LONGEST", 2)
    account, item = session_features._held(np.array([1, 0, 0, 0, 0, 0]), np.array([4, 1, 2, 3, 3, 0]))
    assert (account.tolist(), item.tolist()) == ([0, 0, 1], [0, 2, 4])  # of 0, 1, 2, 3 every second


def test_the_same_seed_gives_the_same_vectors() -> None:
    random = np.random.default_rng(0)
    account, item = random.integers(20, size=200), random.integers(30, size=200)
    assert np.array_equal(item_vectors(account, item, 30, seed=3), item_vectors(account, item, 30, seed=3))

"""Coverage, novelty, diversity and popularity bias, with numbers to compute by hand."""

import numpy as np
import pytest

from lightgc2n.metrics.list_quality import (
    Lists,
    Surroundings,
    audience_vectors,
    category_vectors,
    coverage,
    list_quality,
    popularity_percentile,
    usual_popularity,
)

POPULARITY = np.array([6, 2, 2, 0])


def test_percentiles_by_hand() -> None:
    """Ten events: the two items of 2 events share the lowest 40 %, the item of 6 has the upper 60 %."""
    np.testing.assert_allclose(popularity_percentile(POPULARITY), [0.7, 0.2, 0.2, 0.0])
    events, start, stop = np.array([0, 1, 2]), np.array([0, 1, 3]), np.array([1, 3, 3])
    np.testing.assert_allclose(usual_popularity(POPULARITY, start, stop, events), [0.7, 0.2, np.nan])


def test_measures_by_hand() -> None:
    """Two lists of items 0 and 1, and of item 1 alone; items 0 and 1 have nothing in common, 1 and 2 all."""
    vectors = category_vectors([("crime",), ("news",), ("news",), ()])
    around = Surroundings(POPULARITY, np.array([0.2, np.nan]), vectors, "categories")
    found = list_quality(Lists(np.array([[0, 1], [1, -1]]), np.array([0, 1])), around)
    assert found["coverage"].value == pytest.approx(2 / 3)  # of the three items with events
    share = np.array([7, 3]) / 14  # add-one smoothing over four items
    assert found["novelty"].value == pytest.approx((np.mean(-np.log2(share)) - np.log2(share[1])) / 2)
    assert found["diversity"].value == pytest.approx(1.0)
    assert found["popularity bias"].value == pytest.approx(((0.7 + 0.2) / 2 - 0.2 + 0.0) / 2)
    alike = list_quality(Lists(np.array([[1, 2], [2, 1]]), np.array([0, 1])), around)
    assert alike["diversity"].value == pytest.approx(0.0)


def test_the_interval_of_the_coverage_is_the_jackknife() -> None:
    """Two accounts: without the first one item is left of two, without the second one too."""
    found = coverage(Lists(np.array([[0], [1]]), np.array([3, 5])), np.array([1, 1]))
    assert (found.value, found.low, found.high) == (1.0, 1.0, 1.0)
    found = coverage(Lists(np.array([[0, 1], [1, 1]]), np.array([3, 5])), np.array([1, 1]))
    spread = np.sqrt(1 / 2 * 2 * 0.25**2)  # the values without each are 0.5 and 1
    assert (found.low, found.high) == (pytest.approx(1 - 1.96 * spread), 1.0)


def test_items_of_the_same_accounts_are_alike() -> None:
    account = np.repeat(np.arange(400), 2)
    item = np.concatenate([[0, 1] if one % 2 else [2, 3] for one in range(400)])
    vectors = audience_vectors(account, item, 5)
    alike = vectors @ vectors.T
    assert alike[0, 1] == pytest.approx(1.0)
    assert abs(alike[0, 2]) < 0.3  # near 0: a random projection
    assert alike[4].any() == 0

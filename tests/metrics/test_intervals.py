"""Bootstrap intervals and paired tests, against theory and against all permutations."""

import itertools

import numpy as np
import pytest

from lightgc2n.metrics.intervals import interval, paired_p_values, resampled_means


def test_an_interval_is_as_wide_as_theory_says() -> None:
    """The mean of n tosses of a coin has the standard error 0.5 / sqrt(n)."""
    table = (np.arange(400) % 2).astype(float)[:, None]
    low, high = interval(resampled_means(table, np.arange(400))[:, 0])
    assert high - low == pytest.approx(2 * 1.96 * 0.5 / 20, rel=0.1)
    assert (low + high) / 2 == pytest.approx(0.5, abs=0.01)


def test_queries_of_one_account_are_drawn_together() -> None:
    """Ten equal queries of each account say no more than one would."""
    values = (np.arange(40) % 2).astype(float)
    once = resampled_means(values[:, None], np.arange(40), seed=1)
    often = resampled_means(np.repeat(values, 10)[:, None], np.repeat(np.arange(40), 10), seed=1)
    assert interval(often[:, 0]) == pytest.approx(interval(once[:, 0]))


def test_columns_see_the_same_draws() -> None:
    values = np.random.default_rng(0).random(30)
    draws = resampled_means(np.column_stack([values, values + 1]), np.arange(30))
    assert np.allclose(draws[:, 1] - draws[:, 0], 1)


@pytest.mark.parametrize("differences", [[1.0, 1.0, 1.0], [0.5, -0.2, 0.4, 0.1], [0.0, 0.0, 1.0, 2.0, 3.0]])
def test_the_paired_test_agrees_with_all_tosses(differences: list[float]) -> None:
    observed = abs(sum(differences))
    tosses = list(itertools.product([-1, 1], repeat=len(differences)))
    far = sum(abs(np.dot(signs, differences)) >= observed - 1e-9 for signs in tosses)
    actual = paired_p_values(np.array(differences)[:, None], np.arange(len(differences)))
    assert actual[0] == pytest.approx(far / len(tosses), abs=0.02)


def test_equal_models_do_not_differ() -> None:
    assert paired_p_values(np.zeros((10, 1)), np.arange(10)).tolist() == [1.0]

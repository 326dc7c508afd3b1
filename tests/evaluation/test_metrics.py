"""Metrics by hand, against another library, and the intervals and tests around them."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgc2n.evaluation.metrics import gains, interval, paired_p_values, resampled_means


def test_gains_by_hand() -> None:
    found = gains(np.array([1.0, 3.0, 5.5, np.inf]), [5])
    assert found["RC@5"].tolist() == [1, 1, 0, 0]
    assert found["MRR@5"].tolist() == [1, 1 / 3, 0, 0]
    assert found["NDCG@5"].tolist() == [1, 1 / 2, 0, 0]  # log2(1 + 3) = 2


@given(st.lists(st.integers(1, 100).map(lambda half: 1 + half / 2), min_size=1), st.integers(1, 30))
def test_metrics_keep_their_order(ranks: list[float], cutoff: int) -> None:
    found = gains(np.array(ranks), [cutoff, cutoff + 5])
    mrr, ndcg, recall = (found[f"{metric}@{cutoff}"] for metric in ("MRR", "NDCG", "RC"))
    assert (mrr <= ndcg).all()
    assert (ndcg <= recall).all()
    assert (recall <= 1).all()
    assert (recall <= found[f"RC@{cutoff + 5}"]).all()


def test_agrees_with_ir_measures_where_there_are_no_ties() -> None:
    measures = pytest.importorskip("ir_measures")
    random = np.random.default_rng(0)
    qrels, run, ranks = [], [], []
    for query in range(50):
        scores = random.permutation(40).astype(float)
        target = int(random.integers(40))
        ranks.append(1 + (scores > scores[target]).sum())
        qrels.append(measures.Qrel(str(query), str(target), 1))
        run += [measures.ScoredDoc(str(query), str(item), score) for item, score in enumerate(scores)]
    found = gains(np.array(ranks, dtype=float), [5, 20])
    pairs = [(measures.R, "RC"), (measures.RR, "MRR"), (measures.nDCG, "NDCG")]
    wanted = {f"{name}@{cutoff}": measure @ cutoff for measure, name in pairs for cutoff in (5, 20)}
    theirs = measures.calc_aggregate(list(wanted.values()), qrels, run)
    for name, measure in wanted.items():
        assert abs(found[name].mean() - theirs[measure]) < 1e-9


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
    found = paired_p_values(np.array(differences)[:, None], np.arange(len(differences)))
    assert found[0] == pytest.approx(far / len(tosses), abs=0.02)


def test_equal_models_do_not_differ() -> None:
    assert paired_p_values(np.zeros((10, 1)), np.arange(10)).tolist() == [1.0]

"""Ranking metrics by hand, on numpy and torch ranks, and against another library."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightgc2n.metrics.ranking import METRICS, gains


@pytest.mark.parametrize("name", METRICS)
def test_numpy_and_torch_ranks_give_the_same(name: str) -> None:
    ranks = np.array([1.0, 2.5, 4.0, 20.0, 20.5, np.inf])
    assert METRICS[name](torch.from_numpy(ranks), 20).tolist() == METRICS[name](ranks, 20).tolist()


def test_gains_by_hand() -> None:
    actual = gains(np.array([1.0, 3.0, 5.5, np.inf]), [5])
    assert actual["RC@5"].tolist() == [1, 1, 0, 0]
    assert actual["MRR@5"].tolist() == [1, 1 / 3, 0, 0]
    assert actual["NDCG@5"].tolist() == [1, 1 / 2, 0, 0]  # log2(1 + 3) = 2


@given(st.lists(st.integers(1, 100).map(lambda half: 1 + half / 2), min_size=1), st.integers(1, 30))
def test_metrics_keep_their_order(ranks: list[float], cutoff: int) -> None:
    actual = gains(np.array(ranks), [cutoff, cutoff + 5])
    mrr, ndcg, recall = (actual[f"{metric}@{cutoff}"] for metric in ("MRR", "NDCG", "RC"))
    assert (mrr <= ndcg).all()
    assert (ndcg <= recall).all()
    assert (recall <= 1).all()
    assert (recall <= actual[f"RC@{cutoff + 5}"]).all()


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
    actual = gains(np.array(ranks, dtype=float), [5, 20])
    pairs = [(measures.R, "RC"), (measures.RR, "MRR"), (measures.nDCG, "NDCG")]
    wanted = {f"{name}@{cutoff}": measure @ cutoff for measure, name in pairs for cutoff in (5, 20)}
    theirs = measures.calc_aggregate(list(wanted.values()), qrels, run)
    for name, measure in wanted.items():
        assert abs(actual[name].mean() - theirs[measure]) < 1e-9


def test_a_metric_is_added_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METRICS, "FIRST", lambda ranks, cutoff: (ranks == 1) * 1.0)
    assert gains(np.array([1.0, 2.0]), [5])["FIRST@5"].tolist() == [1, 0]

"""The best simple baseline of the comparison that a run belongs to."""

import json
from pathlib import Path
from typing import Any

import pytest

from lightgc2n.export.model_card import best_simple_baseline

METRICS = ["RC@20", "MRR@20"]


def facts(recall: float, mrr: float) -> dict[str, Any]:
    return {"metrics": {"all": {"RC@20": {"value": recall}, "MRR@20": {"value": mrr}}}}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of a comparison in which markov is the simple baseline with the best MRR@20."""
    models = {"popularity": facts(0.5, 0.1), "markov": facts(0.4, 0.2), "lightgc2n-plus": facts(0.6, 0.3)}
    result = {"dataset": {"checksum": "c"}, "counts": {"test_queries": 7}, "exclude_seen": False, "models": models}
    (tmp_path / "results.json").write_text(json.dumps(result))
    folder = tmp_path / "runs" / "lightgc2n-plus"
    folder.mkdir(parents=True)
    return folder


def test_the_best_simple_baseline(run: Path) -> None:
    assert best_simple_baseline(run, "c", 7, METRICS) == {"name": "markov", "values": {"RC@20": 0.4, "MRR@20": 0.2}}


def test_other_data_and_other_tests_are_ignored(run: Path) -> None:
    assert best_simple_baseline(run, "other", 7, METRICS) is None
    assert best_simple_baseline(run, "c", 8, METRICS) is None
    assert best_simple_baseline(run, "c", 7, ["NDCG@7"]) is None


def test_a_run_by_itself_has_none(tmp_path: Path, run: Path) -> None:
    assert best_simple_baseline(tmp_path / "alone" / "run", "c", 7, METRICS) is None
    (tmp_path / "results.json").write_text("[")
    assert best_simple_baseline(run, "c", 7, METRICS) is None

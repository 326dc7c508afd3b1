"""The best simple baseline of the comparison that a run belongs to, for the model card."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightgc2n import zoo

RESULTS = "results.json"  # of a comparison, two folders above its runs: OUT/results.json, OUT/runs/MODEL
RUNS = "runs"
DECISIVE = "MRR@20"


def best_simple_baseline(run: Path, checksum: str, targets: int, metrics: list[str]) -> dict[str, Any] | None:
    """The simple baseline with the highest MRR@20 in the test, and its metrics; None if there is no such comparison.

    Args:
        checksum: of the dataset; a comparison on other data is ignored.
        targets: the number of test targets; likewise.
        metrics: names of the metrics to return.
    """
    folder = run.resolve().parent
    result = _comparison(folder.parent / RESULTS) if folder.name == RUNS else None
    if result is None or result["dataset"]["checksum"] != checksum or result["counts"]["test_queries"] != targets:
        return None
    simple = {name: facts["metrics"]["all"] for name, facts in result["models"].items() if _is_simple(name)}
    simple = {name: values for name, values in simple.items() if {DECISIVE, *metrics} <= values.keys()}
    if result["exclude_seen"] or not simple:
        return None
    best = max(simple, key=lambda name: simple[name][DECISIVE]["value"])
    return {"name": best, "values": {metric: simple[best][metric]["value"] for metric in metrics}}


def _is_simple(name: str) -> bool:
    return name in zoo.ZOO and zoo.ZOO[name].is_simple


def _comparison(path: Path) -> Mapping[str, Any] | None:
    """The content of a comparison's results; None if there are none, or not of this version."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    needed = {"dataset", "counts", "models", "exclude_seen"}
    return result if isinstance(result, dict) and needed <= result.keys() else None

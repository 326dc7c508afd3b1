"""Comparisons: what is measured, what is written, and what real logs must give."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightgc2n import zoo
from lightgc2n.data.dataset import load_dataset
from lightgc2n.data.importing import ImportOptions, import_log
from lightgc2n.data.splits import SplitConfig, split_dataset
from lightgc2n.errors import SettingError
from lightgc2n.experiments.compare import Compared, compare, write_results
from lightgc2n.experiments.comparison_tables import comparison_markdown, comparison_notes, conclusion, ranked_models
from tests.worlds import dataset_of, tastes_world, two_domains_world

TINY = dataset_of([("a", "p q r p"), ("b", "p q p q"), ("c", "q q q r"), ("d", "p p p s")], items="p q r s t")


def tiny(**options: object) -> Compared:
    split = split_dataset(TINY, SplitConfig())
    return compare(TINY, split, ["popularity", "recency"], **options)  # type: ignore[arg-type]


def test_numbers_by_hand() -> None:
    """Training: p q, p q, q q, p p, so p and q are equally popular.

    The targets p, q, r, s follow p q r, p q p, q q q and p p p.
    """
    actual = tiny(cutoffs=[2])
    assert actual.ranks["popularity"].tolist() == [1.5, 1.5, np.inf, np.inf]  # r and s never occur in training
    # recency: a has r q p, so p is third; b has p q, so q is second
    assert actual.ranks["recency"].tolist() == [3, 2, np.inf, np.inf]
    metrics = actual.result["models"]["recency"]["metrics"]
    assert metrics["all"]["RC@2"]["value"] == 1 / 4
    assert metrics["all"]["MRR@2"]["value"] == (1 / 2) / 4
    assert metrics["repeat"]["queries"] == 2
    assert metrics["repeat"]["MRR@2"]["value"] == (1 / 2) / 2
    assert metrics["new"]["RC@2"]["value"] == 0
    assert actual.result["counts"]["test_targets_unseen_in_training"] == 2


def test_a_result_says_how_it_was_made() -> None:
    result = tiny().result
    assert result["cutoffs"] == [5, 10, 20]
    assert result["split"]["protocol"] == "last"
    assert result["split"]["targets"] == "all"
    assert set(result["versions"]) == {"lightgc2n", "python", "torch", "numpy"}
    assert "commit" in result
    assert result["dataset"]["checksum"] == "0"
    assert result["models"]["popularity"]["paired"]["against"] == "popularity"
    assert result["models"]["popularity"]["paired"]["p"] == 1.0


def test_a_result_says_among_which_items_targets_are_ranked() -> None:
    world = two_domains_world()
    for ask, note in (
        ("next", "ranked among all 40 items;"),
        ("each-domain", "ranked among the items of their domain;"),
    ):
        result = compare(world, split_dataset(world, SplitConfig(ask=ask)), ["popularity"]).result
        assert note in "\n".join(comparison_notes(result))
        assert note in comparison_markdown(result)


def test_results_are_written_whole(tmp_path: Path) -> None:
    actual = tiny()
    write_results(actual, tmp_path)
    assert json.loads((tmp_path / "results.json").read_text()) == actual.result
    rows = list(csv.DictReader((tmp_path / "results.csv").read_text().splitlines()))
    wanted = actual.result["models"]["recency"]["metrics"]["new"]["NDCG@20"]
    row = next(r for r in rows if (r["model"], r["subset"], r["metric"]) == ("recency", "new", "NDCG@20"))
    assert float(row["value"]) == wanted["value"]
    page = (tmp_path / "results.md").read_text()
    assert "| recency | **50.00** ▲ |" in page  # RC@5: two of four targets, as many as popularity, so both are best
    saved = np.load(tmp_path / "ranks" / "recency.npy", allow_pickle=False)
    assert saved.tolist() == actual.ranks["recency"].tolist()


def test_floors_is_an_alias_of_simple() -> None:
    simple = zoo.choose_models("simple")
    assert "markov" in simple
    assert zoo.choose_models("floors") == simple
    assert zoo.choose_models("floors,sasrec") == zoo.choose_models("simple,sasrec") == [*simple, "sasrec"]


def test_the_same_seed_gives_the_same_numbers() -> None:
    data = tastes_world()
    split = split_dataset(data, SplitConfig())
    runs = [compare(data, split, ["markov", "session-knn"]).result for _ in range(2)]
    for run in runs:
        for facts in run["models"].values():
            facts.pop("seconds")
            facts.pop("peak_memory_mb")
    assert runs[0] == runs[1]


def test_leaving_seen_items_out_is_stamped() -> None:
    assert tiny().result["stamps"] == []
    assert "items of the history are left out" in tiny(exclude_seen=True).result["stamps"][0]


def test_senseless_cutoffs_are_refused() -> None:
    with pytest.raises(SettingError, match="cutoffs"):
        tiny(cutoffs=[0])


KNOWN_FLOORS = {
    "E": {"popularity": (4.8, 11.7, 2.5, 3.1), "recency": (16.9, 31.1, 6.4, 7.9), "markov": (18.7, 37.4, 10.5, 12.4)},
    "V": {"popularity": (9.0, 18.5, 4.6, 5.5), "recency": (25.4, 46.3, 9.3, 11.6), "markov": (14.2, 26.7, 8.3, 9.5)},
}
TYPED_MARKOV_RECENCY = {"E": 13.0, "V": 12.9}


@pytest.mark.data
@pytest.mark.parametrize("domain", ["E", "V"])
def test_floors_on_real_logs(domain: str, real_data: Path, tmp_path: Path) -> None:
    import_log(real_data / "hvideo-logs" / f"{domain}.tsv", tmp_path / domain, ImportOptions())
    data = load_dataset(tmp_path / domain)
    actual = compare(data, split_dataset(data, SplitConfig()), [*KNOWN_FLOORS[domain], "markov-recency"]).result
    for model, numbers in KNOWN_FLOORS[domain].items():
        metrics = actual["models"][model]["metrics"]["all"]
        got = [100 * metrics[name]["value"] for name in ("RC@5", "RC@20", "MRR@5", "MRR@20")]
        assert got == pytest.approx(numbers, abs=0.1)
    fitted = 100 * actual["models"]["markov-recency"]["metrics"]["all"]["MRR@20"]["value"]
    assert fitted >= TYPED_MARKOV_RECENCY[domain]


def facts(value: float, p: float, **more: Any) -> dict[str, Any]:
    return {"metrics": {"all": {"MRR@20": {"value": value}}}, "paired": {"p": p}} | more


@pytest.mark.parametrize(
    ("models", "out", "expected"),
    [
        (
            {"markov": facts(0.1, 0.001), "sasrec": facts(0.2, 1.0, epochs=3)},
            Path("out"),
            "Best: sasrec, MRR@20 20.00 %. Next: lightgc2n recommend out/runs/sasrec --account ID",
        ),
        (
            {"markov": facts(0.19, 0.3), "sasrec": facts(0.2, 1.0, epochs=3)},
            None,
            "Best: sasrec, MRR@20 20.00 %. markov, a simple baseline, is not significantly worse (p = 0.300). "
            "Next: lightgc2n train shop --model sasrec --protocol time --out run",
        ),
        (
            {"markov": facts(0.3, 1.0), "sasrec": facts(0.2, 0.01, epochs=3)},
            Path("out"),
            "Best: markov, MRR@20 30.00 %. Next: lightgc2n train shop --model markov --protocol time --out run",
        ),
        (
            {"markov": facts(0.3, 1.0), "recency": facts(0.2, 0.01)},
            None,
            "Best: markov, MRR@20 30.00 %. Is a trained model better? "
            "Next: lightgc2n compare shop --models simple,lightgc2n-plus --protocol time --out compared",
        ),
        (
            {"markov": facts(0.3, 1.0), "recency": facts(0.2, 0.01)},
            Path("out"),
            "Best: markov, MRR@20 30.00 %. Is a trained model better? "
            "Next: lightgc2n compare shop --models simple,lightgc2n-plus --protocol time --out out --force",
        ),
    ],
)
def test_a_comparison_ends_with_the_best_model_and_the_next_command(
    models: dict[str, Any], out: Path | None, expected: str
) -> None:
    result = {"models": models, "cutoffs": [5, 20]}
    assert next(iter(ranked_models(result))) == expected.split()[1].rstrip(",")
    assert conclusion(result, Path("shop"), out, " --protocol time") == expected

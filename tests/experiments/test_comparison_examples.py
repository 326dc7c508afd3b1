"""Examples of a comparison: who is drawn, that lists agree with the ranks, and that no history is written."""

import json
from pathlib import Path
from typing import Any

import pytest

from lightgc2n.data.dataset import Dataset
from lightgc2n.data.splits import SplitConfig, split_dataset
from lightgc2n.experiments import compare as comparing
from lightgc2n.experiments.compare import Compared, compare
from lightgc2n.experiments.comparison_cache import ComparisonCache
from lightgc2n.experiments.comparison_examples import example_tables
from tests.cli.test_commands import run
from tests.worlds import dataset_of, tastes_world, two_domains_world

MODELS = ["markov-recency", "popularity"]


def compared(world: Dataset, examples: int, models: list[str] = MODELS, ask: str = "auto", **options: Any) -> Compared:
    return compare(world, split_dataset(world, SplitConfig(ask=ask)), models, examples=examples, **options)


def test_an_example_by_hand() -> None:
    """One account: a saw p, q, p and then q. Newest first, the history is p q p, and recency lists p, then q."""
    world = dataset_of([("a", "p q p q")], items="p q")
    (example,) = compared(world, 1, ["recency"]).examples
    p, q = {"item": "p"}, {"item": "q"}
    assert example == {
        "account": "a",
        "events": 3,
        "history": [p, q, p],
        "next": q,
        "lists": {"recency": {"rank": 2.0, "items": [p, q]}},
    }


def test_lists_agree_with_the_ranks_of_the_evaluation() -> None:
    places = []
    for example in compared(tastes_world(), 40).examples:
        for shown in example["lists"].values():
            rank, items = shown["rank"], [one["item"] for one in shown["items"]]
            if float(rank).is_integer():  # other ranks are of equal scores
                assert (items.index(example["next"]["item"]) + 1 if rank <= 5 else rank) == rank
                assert rank <= 5 or example["next"]["item"] not in items
                places.append(rank <= 5)
    assert any(places)
    assert not all(places)


def test_accounts_are_drawn_once_and_for_all() -> None:
    world = tastes_world()
    drawn = [example["account"] for example in compared(world, 6).examples]
    assert len(set(drawn)) == 6
    others = compared(world, 3, ["popularity"], seed=7).examples
    assert [example["account"] for example in others] == drawn[:3]
    assert len(compared(world, 1000).examples) == 80, "no more accounts than there are"


def test_seen_items_are_excluded_from_examples_too() -> None:
    world = dataset_of([("a", "p q r s"), ("b", "q r s p"), ("c", "r s p q")], items="p q r s")
    for example in compared(world, 3, ["recency"], exclude_seen=True).examples:
        assert len(example["lists"]["recency"]["items"]) == 1, "one of four items is not in the history"
        assert example["lists"]["recency"]["items"][0] not in example["history"]


def test_lists_are_of_the_domain_of_the_next_item() -> None:
    world = two_domains_world()
    for example in compared(world, 10, ["popularity"], ask="each-domain").examples:
        domains = {world.items.index(one["item"]) // 20 for one in example["lists"]["popularity"]["items"]}
        assert domains == {world.items.index(example["next"]["item"]) // 20}


def test_a_resumed_comparison_has_the_same_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, wanted = tastes_world(), compared(tastes_world(), 2).examples
    assert compared(world, 0, cache=ComparisonCache(tmp_path)).examples == ()
    assert compared(world, 2, cache=ComparisonCache(tmp_path)).examples == wanted, "measured later"

    def stop(*_given: object) -> None:
        raise AssertionError("finished models are not ranked again")

    monkeypatch.setattr(comparing, "ranked", stop)
    assert compared(world, 2, cache=ComparisonCache(tmp_path)).examples == wanted
    fewer = compared(world, 1, cache=ComparisonCache(tmp_path))
    assert fewer.examples == wanted[:1]
    assert "examples" not in json.dumps(fewer.result["models"])


def test_the_best_of_both_kinds_stand_side_by_side() -> None:
    def model(value: float, **more: int) -> dict[str, Any]:
        return {"metrics": {"all": {"MRR@20": {"value": value}}}} | more

    result = {"cutoffs": [20], "models": {"a": model(0.1), "b": model(0.3), "c": model(0.2, epochs=1)}}
    found = {"rank": None, "items": [{"item": "p", "title": "Pilot"}]}
    example = {
        "account": "x",
        "events": 1234,
        "history": [{"item": "q"}, {"item": "r"}],
        "next": {"item": "s"},
        "lists": {"b": found, "c": found | {"rank": 1234567.5}},
    }
    (table,) = example_tables(result, [example])
    assert table.columns == ("", "history, newest first", "b", "c")
    assert table.caption == "account x, 1,234 events"
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["1", "q", "Pilot", "Pilot"],
        ["2", "r", "", ""],
        ["next", "s", "missed", "rank 1,234,567.5"],
    ]


def test_examples_are_shown_with_titles_and_not_written(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(
        "account,item,title,time\n"
        + "".join(f"{who},{item},Film {item},{at}\n" for who in "abc" for at, item in enumerate("pqrpq"))
    )
    assert run("import", tmp_path / "log.csv", "--out", tmp_path / "data").returncode == 0
    asked = ["compare", tmp_path / "data", "--models", "recency", "--examples", "2"]
    done = run(*asked, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "Film p" in done.stdout
    assert "drawn at random" in done.stdout
    written = "".join((tmp_path / "out" / name).read_text() for name in ("results.json", "results.md", "results.csv"))
    assert "Film" not in written
    examples = json.loads(run(*asked, "--json").stdout)["examples"]
    assert [example["next"]["title"] for example in examples] == ["Film q", "Film q"]
    assert run(*asked[:4], "--examples", "-1").returncode == 2

"""How many people accounts have, with numbers to count by hand."""

import csv
import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

from lightgc2n.people.finder import People
from lightgc2n.recommending.bundle_files import SERVER, SERVER_FACTS, open_bundle
from lightgc2n.recommending.forget_bundle import forget_in_bundle
from lightgc2n.recommending.loading import load
from lightgc2n.recommending.people_report import MOST_ACCOUNTS, Example, Population, population_of
from tests.cli.test_commands import run
from tests.export.town import bundle_of


def population(people: list[tuple[int, float, int]], most: int | None = MOST_ACCOUNTS) -> Population:
    """The summary of accounts with a count, its confidence and the number of events, spread evenly over the people."""
    known = {f"h{number}": one for number, one in enumerate(people)}

    def find_people(accounts: Iterable[str]) -> Iterator[tuple[str, People]]:
        for account in accounts:
            count, confidence, events = known[account]
            share = np.eye(count)[np.arange(events) % count]
            yield account, People(count, confidence, np.zeros(5), share, np.zeros(events, dtype=np.int64))

    return population_of(list(known), find_people, most)


def test_counts_and_examples_by_hand() -> None:
    people = [(1, 0.8, 20), (1, 0.9, 20), (3, 0.7, 30), (3, 0.99, 6), (2, 0.9, 4000), (2, 0.3, 20), (2, 0.2, 20)]
    found = population(people)
    assert (found.accounts, found.counts) == (7, (2, 3, 2, 0, 0))
    # The clearest that can be read: h3 has two events of each person, h4 is too long; h6 is the least certain.
    assert found.examples == (Example("h2", 3, 0.7, 30), Example("h1", 1, 0.9, 20), Example("h6", 2, 0.2, 20))


def test_many_accounts_are_sampled_evenly() -> None:
    found = population([(1, 0.9, 20)] * 50 + [(2, 0.9, 20)] * 50, most=10)
    assert (found.accounts, found.counts) == (10, (5, 5, 0, 0, 0))


def test_a_forgotten_account_is_no_example(tmp_path: Path) -> None:
    shutil.copytree(bundle_of("lightgc2n"), tmp_path / "bundle")
    before = open_bundle(tmp_path / "bundle").population
    assert before is not None
    assert sum(before["counts"]) == before["accounts"] > 0
    gone = before["examples"][0]["account"]
    forget_in_bundle(tmp_path / "bundle", [gone])
    after = open_bundle(tmp_path / "bundle").population
    assert after == before | {"examples": before["examples"][1:]}
    assert gone not in json.dumps(json.loads((tmp_path / "bundle" / SERVER / SERVER_FACTS).read_text()))


def test_all_accounts_by_the_command(tmp_path: Path) -> None:
    bundle, out = bundle_of("lightgc2n"), tmp_path / "counts.csv"
    done = run("people", bundle, "--all", "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    rows = list(csv.DictReader(out.read_text(encoding="utf-8").splitlines()))
    assert found["accounts"] == len(rows) == sum(found["counts"])
    assert found["counts"] == [sum(row["people"] == str(count) for row in rows) for count in range(1, 6)]
    assert found["shared"] == 1 - found["counts"][0] / len(rows)
    assert found["mean_people"] == sum(int(row["people"]) for row in rows) / len(rows)
    assert sum(found["accounts_by_confidence"]) == len(rows)
    assert found["mean_confidence"] == pytest.approx(np.mean([float(row["confidence"]) for row in rows]), abs=1e-4)
    recommender = load(bundle)
    for row in rows[:20]:  # as each is answered alone
        alone = recommender.count_people(row["account_id"])
        assert (int(row["people"]), float(row["confidence"])) == (
            alone.count,
            pytest.approx(alone.confidence, abs=1e-4),
        )
    assert run("people", bundle, "--all", "--out", tmp_path / "counts.jsonl").returncode == 0
    lines = (tmp_path / "counts.jsonl").read_text(encoding="utf-8").splitlines()
    assert [str(json.loads(line)["people"]) for line in lines] == [row["people"] for row in rows]
    assert "People of 60 accounts" in run("people", bundle, "--all").stdout
    for words, message in (
        (["--all", "--account", "h000003"], "omit --account, --history and --who"),
        (["--account", "h000003", "--out", out], "--out needs --all"),
        (["--all", "--out", out], "exists already"),
    ):
        assert message in run("people", bundle, *words).stderr

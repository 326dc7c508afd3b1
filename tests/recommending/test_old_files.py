"""A dataset, a run and two bundles written by the code of commit d618e6e load, and give the lists they gave then.

tests/golden/write_old_bundles.sh wrote them (seed 0) and expected.json, the JSON that the old command line printed.
Item ids are equal; scores and probabilities agree within 1e-5, since another CPU may add in another order.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from lightgc2n.data.dataset import load_dataset, verify_dataset
from lightgc2n.data.members import load_members
from lightgc2n.data.statistics import statistics
from lightgc2n.recommending.loading import load
from lightgc2n.recommending.recommender import Recommender
from lightgc2n.recommending.results import Recommendations

GOLDEN = Path(__file__).parents[1] / "golden" / "before_redesign"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text(encoding="utf-8"))
HISTORY = ["v00076", "l00129", "v00179", "v00076"]
CLOSE = {"rel": 1e-5, "abs": 1e-5}


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy, because a command may write locks or learned people beside what it loads."""
    folder = tmp_path_factory.mktemp("old") / "files"
    shutil.copytree(GOLDEN, folder)
    return folder


def assert_lists(lists: list[Recommendations], expected: list[dict[str, Any]]) -> None:
    assert [one.account_id for one in lists] == [one["account_id"] for one in expected]
    for one, printed in zip(lists, expected, strict=True):
        assert [(row.item_id, row.rank) for row in one] == [(row["item_id"], row["rank"]) for row in printed["items"]]
        assert [row.score for row in one] == pytest.approx([row["score"] for row in printed["items"]], **CLOSE)


def lists_of_history(recommender: Recommender) -> list[Recommendations]:
    return [recommender.recommend(None, HISTORY, k=10)]


def test_an_old_dataset_has_its_statistics(old: Path) -> None:
    verify_dataset(old / "data")
    numbers = statistics(load_dataset(old / "data"), load_members(old / "data"))
    texts = ("made_by", "counting", "notes")
    counted = {name: value for name, value in EXPECTED["statistics"].items() if name not in texts}
    assert counted["all"]["events"] == 1025
    assert {name: json.loads(json.dumps(numbers[name])) for name in counted} == counted


@pytest.mark.parametrize("place", ["run", "bundle"])
def test_an_old_run_and_an_old_bundle_give_their_lists(old: Path, place: str) -> None:
    recommender = load(old / place, old / "data" if place == "run" else None)
    accounts = [one["account_id"] for one in EXPECTED[place]["accounts"]]
    assert_lists(list(recommender.recommend_many(accounts, k=10)), EXPECTED[place]["accounts"])
    assert_lists(lists_of_history(recommender), EXPECTED[place]["history"])


def test_an_old_int8_bundle_gives_its_lists(old: Path) -> None:
    assert_lists(lists_of_history(load(old / "bundle-int8")), EXPECTED["bundle-int8"]["history"])


def test_an_old_bundle_finds_its_people(old: Path) -> None:
    expected = EXPECTED["people"]
    people = load(old / "bundle").people(expected["account_id"], k=3)
    assert people.count == expected["count"]
    assert people.confidence == pytest.approx(expected["confidence"], **CLOSE)
    assert list(people.chances) == pytest.approx(expected["chances"], **CLOSE)
    assert [(event.item_id, event.person) for event in people.events] == [
        (event["item_id"], event["person"]) for event in expected["events"]
    ]
    assert [event.probability for event in people.events] == pytest.approx(
        [event["probability"] for event in expected["events"]], **CLOSE
    )
    for person, printed in zip(people.people, expected["people"], strict=True):
        assert [row.item_id for row in person.next] == [row["item_id"] for row in printed["next"]["items"]]

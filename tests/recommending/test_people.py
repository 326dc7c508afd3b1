"""The people of an account of a run: found, described and served; a kept finder is used, one of other data refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lightgc2n import zoo
from lightgc2n.cli.people import _count_in_words
from lightgc2n.data.dataset import Dataset
from lightgc2n.data.splits import SplitConfig, split_dataset
from lightgc2n.errors import DataError, SettingError
from lightgc2n.people.finder import People, PeopleFinder
from lightgc2n.people.sessions import Logs
from lightgc2n.recommending.load_run import load_run as load
from lightgc2n.recommending.load_run import run_recommender
from lightgc2n.recommending.recommender import ONE_ASSUMED, Recommender
from lightgc2n.synthetic.households import HouseholdConfig, generate
from lightgc2n.training.loop import TrainingConfig
from lightgc2n.training.run import train_run
from lightgc2n.training.runs import RunPlan
from tests.cli.test_commands import Done, run
from tests.worlds import dataset_of, tastes_world

LEARNED = "learning to find people"


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained run whose finder was kept by a first question."""
    folder = tmp_path_factory.mktemp("town")
    generate(HouseholdConfig(accounts=150), seed=0, out=folder / "data")
    train_run(RunPlan(folder / "data", "sasrec", training=TrainingConfig(epochs=1, batch_size=64)), folder / "run")
    load(folder / "run").people("h000000")
    return folder


@pytest.fixture(scope="module")
def recommender(town: Path) -> Recommender:
    return load(town / "run")


class SoMany:
    """A finder that is told how many people there are."""

    def __init__(self, finder: PeopleFinder, count: int) -> None:
        self.finder, self.count, self.head = finder, count, finder.head

    def find(self, items: Any, times: Any, row: int | None = None) -> People:
        return self.finder.find(items, times, row, count=self.count)

    def sessions_of(self, items: Any, times: Any) -> Any:
        return self.finder.sessions_of(items, times)


def floor_on(dataset: Dataset, **split: Any) -> Recommender:
    train = split_dataset(dataset, SplitConfig(**split)).train
    return run_recommender("item-knn", zoo.build("item-knn", train, {}), dataset, train)


def with_people(recommender: Recommender, count: int) -> Recommender:
    """The same recommender, which takes every account to be used by so many people."""
    other = Recommender(recommender.name, recommender.scorer, recommender.source)
    other.__dict__["finder"] = SoMany(recommender.finder, count)
    return other


def ask(town: Path, *words: object) -> Done:
    return run("people", town / "run", *words)


def test_people_of_a_shared_account(recommender: Recommender) -> None:
    assert ONE_ASSUMED not in recommender.people("h000003").whole.notes
    found = with_people(recommender, 2).people("h000003", k=4)
    assert (found.count, [person.name for person in found.people]) == (2, ["A", "B"])
    first, second = found.people
    assert first.share >= second.share
    assert first.share + second.share == pytest.approx(1)
    for event in found.events:
        assert event.probability == max(event.shares)
        assert event.person == "AB"[event.shares.index(max(event.shares))]
    for person in found.people:
        own = [event.item_id for event in found.events if event.person == person.name]
        assert person.events == len(own)
        assert person.share == pytest.approx(len(own) / len(found.events)), "counts and shares agree"
        for like in person.likes:
            assert like.events == own.count(like.item_id) >= 2
            others = [event.item_id for event in found.events if event.person != person.name]
            assert like.events >= others.count(like.item_id), "a trait of B is not one of A"
        assert person.active is not None
        assert person.active.hours is not None
        assert sum(person.active.weekdays) == pytest.approx(1)
        alone = recommender.recommend(history=own, k=4)
        assert [one.item_id for one in person.next] == [one.item_id for one in alone]
    assert found.whole == recommender.recommend("h000003", k=4)
    assert found.together is not None
    assert len(found.together) == 4


def test_of_a_long_history_the_newest_sessions_count(recommender: Recommender, monkeypatch: pytest.MonkeyPatch) -> None:
    """310 sessions of two events, an hour apart from each other's by seven: ten sessions are left out, and noted."""
    monkeypatch.setattr("lightgc2n.recommending.recommender.ANALYSED_SESSIONS", 300)
    hour, items = 3600 * 10**6, recommender.dataset.items
    times = [7 * hour * (event // 2) + event % 2 for event in range(620)]
    history = [items[event % len(items)] for event in range(620)]
    several, note = (
        with_people(recommender, 2),
        "people are found in the newest 300 sessions: 20 older events are left out",
    )
    found, newest = (several.people(None, history[first:], times[first:], k=4) for first in (0, 20))
    assert (found.notes, newest.notes) == ((note,), ())
    assert (found.events, found.people, found.together, found.sessions) == (
        newest.events, newest.people, newest.together, newest.sessions,
    )  # fmt: skip
    assert len(found.events) == 600
    assert set(found.sessions) == set(range(300))
    assert found.whole == recommender.recommend(history=history, k=4), "the list of the account is that of all events"
    for wish in ({"person": "B"}, {"together": True}):
        one, other = (several.recommend(history=history[first:], times=times[first:], k=4, **wish) for first in (0, 20))
        assert (one.items, one.notes, other.notes) == (other.items, (note,), ())
    with pytest.raises(DataError, match="oldest first"):
        several.people(None, history, [*times[1::-1], *times[2:]])


def test_together_is_as_good_as_for_whom_it_suits_least(recommender: Recommender) -> None:
    several, everything = with_people(recommender, 3), len(recommender.dataset.items)
    found = several.people("h000005", k=everything)
    assert found.together is not None
    places = [{one.item_id: one.rank for one in person.next} for person in found.people]
    ranked = sorted(
        recommender.dataset.items,
        key=lambda item: (max(place[item] for place in places), sum(place[item] for place in places)),
    )
    assert [one.item_id for one in found.together][:50] == ranked[:50]
    assert found.together[0].score == pytest.approx(1 / max(place[ranked[0]] for place in places))
    unseen = several.people("h000005", k=everything, exclude_seen=True).together
    assert unseen is not None
    # Had by one of them is had by all, and nothing else is left out.
    had = {event.item_id for event in found.events}
    assert {one.item_id for one in unseen} == set(recommender.dataset.items) - had


def test_one_person_has_the_list_of_the_account(recommender: Recommender) -> None:
    found = with_people(recommender, 1).people("h000003")
    assert (found.count, found.together, len(found.people)) == (1, None, 1)
    assert found.people[0].next == found.whole
    assert {event.person for event in found.events} == {"A"}
    assert found.people[0].share == 1


def test_history_without_times() -> None:
    found = with_people(floor_on(tastes_world()), 2).people("a3")
    assert {event.time for event in found.events} == {None}
    assert [person.active for person in found.people] == [None, None]
    assert all(len(person.next) == 20 for person in found.people)


def test_too_few_accounts_say_one_person() -> None:
    found = floor_on(tastes_world(accounts=20)).people("a3")
    assert found.count == 1
    assert found.confidence == found.chances[0] > 0.5
    assert ONE_ASSUMED in found.whole.notes
    assert _count_in_words(found) == f"a3: {ONE_ASSUMED}."


def test_an_account_that_training_has_not_seen_is_found_too() -> None:
    cold = floor_on(tastes_world(), protocol="cold-accounts")
    accounts = cold.dataset.accounts
    unseen = [name for index, name in enumerate(accounts) if index not in cold.scorer.train.sequence_accounts]
    assert unseen
    assert len(cold.people(unseen[0]).events) == 25


def test_training_logs_have_a_row_for_every_account() -> None:
    dataset = dataset_of([("a", "x y z"), ("b", "y"), ("c", "z x y z")])
    logs = Logs.of_training(split_dataset(dataset, SplitConfig()).train)
    rows = [logs.items[start:stop].tolist() for start, stop in zip(logs.offsets, logs.offsets[1:], strict=False)]
    assert rows == [[0], [1], [2, 0]]  # the last two events of a and c are kept from training


def test_a_kept_finder_is_used_again(town: Path) -> None:
    done = ask(town, "--account", "h000003", "--json")
    assert done.returncode == 0, done.stderr
    assert LEARNED not in done.stderr
    assert sorted(path.name for path in (town / "run" / "people").iterdir()) == ["finder.json", "finder.safetensors"]
    again = load(town / "run").people("h000003", k=10)
    shown = json.loads(done.stdout)
    assert (shown["count"], shown["confidence"]) == (again.count, again.confidence)
    assert [tuple(event["shares"]) for event in shown["events"]] == [event.shares for event in again.events]
    assert [one["item_id"] for one in shown["people"][0]["next"]["items"]] == [
        one.item_id for one in again.people[0].next
    ]


def test_a_finder_of_other_data_is_refused(town: Path) -> None:
    facts = town / "run" / "people" / "finder.json"
    text = facts.read_text()
    try:
        facts.write_text(text.replace('"protocol": "last"', '"protocol": "time"'))
        done = ask(town, "--account", "h000003")
        assert (done.returncode, done.stdout) == (2, "")
        assert "other data or another split" in done.stderr
        assert "Remove that folder" in done.stderr
    finally:
        facts.write_text(text)


def test_what_is_shown(town: Path, tmp_path: Path) -> None:
    recommender = load(town / "run")
    shared = next(name for name in recommender.dataset.accounts if recommender.people(name, k=1).count > 1)
    event = recommender.people(shared, k=1).events[-1]
    (tmp_path / "titles.tsv").write_text(f"{event.item_id}\tThe [last] one\nnobody-has\tNothing\n")
    done = ask(town, "--account", shared, "-k", 3, "--titles", tmp_path / "titles.tsv")
    assert done.returncode == 0, done.stderr
    assert f"{shared}: " in done.stdout
    assert "people (confidence" in done.stdout
    for words in (f"The [last] one ({event.item_id})", "next for", "together", "the account", "active"):
        assert words in done.stdout
    letters = done.stdout.split("oldest ")[1].split(" newest")[0]
    assert letters.upper().replace("\n", "") == "".join(one.person for one in recommender.people(shared).events)
    titled = json.loads(ask(town, "--account", shared, "--titles", tmp_path / "titles.tsv", "--json").stdout)
    assert titled["events"][-1]["title"] == "The [last] one"


def test_one_person_is_said_to_be_one(town: Path) -> None:
    recommender = load(town / "run")
    single = next(name for name in recommender.dataset.accounts if recommender.people(name, k=1).count == 1)
    done = ask(town, "--account", single)
    assert f"{single}: one person (confidence" in done.stdout
    assert "together" not in done.stdout
    assert json.loads(ask(town, "--account", single, "--json").stdout)["together"] is None


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--account", "nobody"], "unknown account 'nobody'"),
        (["--account", "h000003", "-k", "0"], "at least 1, found 0"),
        (["--account", "h000003", "--titles", "broken.tsv"], "broken.tsv:2: expected an item id, a tab and its title"),
        (["--account", "h000003", "--titles", "empty.tsv"], "holds no title"),
        (["--account", "h000003", "--titles", "missing.tsv"], "missing.tsv: No such file"),
    ],
)
def test_what_is_refused(
    town: Path, words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.tsv").write_text("a\tA\nb B\n")
    (tmp_path / "empty.tsv").write_text("\n")
    monkeypatch.chdir(tmp_path)
    done = ask(town, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr


def test_windows_and_empty_histories_are_refused() -> None:
    windows = dataset_of([("a", "x y z"), ("a", "y z x"), ("b", "x z y"), ("b", "z y x"), ("c", "x y")], kind="windows")
    with pytest.raises(DataError, match="whole logs"):
        floor_on(windows, protocol="windows").people("a")
    dataset = tastes_world(accounts=20)
    dataset = replace(dataset, accounts=[*dataset.accounts, "idle"])
    with pytest.raises(DataError, match="'idle' has no history"):
        floor_on(dataset).people("idle")
    with pytest.raises(SettingError, match="at least 1"):
        floor_on(dataset).people("a0", k=0)

"""Lists for who is likely acting: the questions, the ways of asking them, what is chosen, and the command."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lightgc2n.data.dataset import Dataset
from lightgc2n.data.splits import Split, SplitConfig, split_dataset
from lightgc2n.experiments.people_now import people_now
from lightgc2n.experiments.person_lists import WEIGHTS, Ranked, choose
from lightgc2n.experiments.rolling_queries import (
    RollingQueries,
    WeightedHistory,
    likely_sessions,
    newest_sessions,
    queries_with,
    rolling_queries,
    true_people,
    true_person,
)
from lightgc2n.metrics.member_recall import measure_served
from lightgc2n.people.who_is_watching import Past, who_is_watching
from lightgc2n.synthetic.households import HouseholdConfig, generate
from tests.cli.test_commands import Done, run
from tests.worlds import dataset_of

HOUR = 3600


def test_recall_by_members_by_hand() -> None:
    """Account 4: member 0 hit 1 of 2, member 1 hit 0 of 1. Account 7: member 5 hit 3 of 3; one event is nobody's."""
    hits = np.array([True, False, False, True, True, True, False])
    account, member = np.array([4, 4, 4, 7, 7, 7, 7]), np.array([0, 0, 1, 5, 5, 5, -1])
    actual = measure_served(hits, account, member)
    assert actual.account.tolist() == [4, 7]
    assert actual.least.tolist() == [0.0, 1.0]
    assert (actual.smaller_hits.tolist(), actual.smaller_targets.tolist()) == ([0, 0], [1, 0])
    assert actual.smaller == 0.0


def world() -> tuple[Dataset, Split]:
    """Ten events, an hour apart in each log but for one pause; the last two are tested, the two before validate."""
    times = [[1 * HOUR, 5 * HOUR, 6 * HOUR, 9 * HOUR], [2 * HOUR, 3 * HOUR, 4 * HOUR, 8 * HOUR, 10 * HOUR], [7 * HOUR]]
    dataset = dataset_of([("a", "x y z x"), ("b", "y z x z y"), ("c", "x")], times=times)
    return dataset, split_dataset(dataset, SplitConfig(protocol="time", test_share=0.2))


def test_every_event_of_the_period_is_a_question() -> None:
    dataset, split = world()
    gap = HOUR * 1_000_000
    tested, validated = (rolling_queries(dataset, split, part, gap) for part in ("test", "validation"))
    assert tested.queries.target_event.tolist() == [3, 8]
    assert tested.queries.start.tolist() == [0, 4]
    assert tested.queries.target.tolist() == dataset.events[[3, 8]].tolist()
    assert validated.queries.target_event.tolist() == [7]  # c has done nothing before
    assert tested.session.tolist() == [0, 1, 1, 2, 3, 3, 3, 4, 5, 6]
    assert tested.in_session.tolist() == [False, False]


def test_histories_to_ask_with() -> None:
    dataset, split = world()
    rolling = rolling_queries(dataset, split, "test", HOUR * 1_000_000)
    sessions = newest_sessions(rolling)(1)
    assert [(one.places.tolist(), one.weight) for one in sessions] == [([4, 5, 6, 7], 1.0), ([4, 5, 6], 0.75)]
    member = np.array([0, 1, 0, 0, 2, 3, 2, 3, 3, 4])
    assert [one.places.tolist() for one in true_person(rolling, member)(1)] == [[5, 7]]
    queries = queries_with(dataset, rolling, np.array([0, 1]), [[WeightedHistory(np.array([0, 2]), 1.0)], sessions])
    shown = [queries.events[start:stop].tolist() for start, stop in zip(queries.start, queries.stop, strict=True)]
    assert shown == [dataset.events[[0, 2]].tolist(), dataset.events[4:8].tolist(), dataset.events[4:7].tolist()]
    assert dataset.times is not None
    assert queries.times is not None
    assert queries.times[queries.target_event].tolist() == dataset.times[[3, 8, 8]].tolist()
    assert set(queries.account.tolist()) == {-1}


def test_people_are_weighted_by_the_probability_that_they_act() -> None:
    dataset, split = world()
    rolling = rolling_queries(dataset, split, "test", HOUR * 1_000_000)
    member = np.array([0, 1, 0, 0, 2, 3, 2, 3, 3, 4])
    # b at 10 o'clock: member 2 acted 8 and 6 hours ago, member 3 7 and 2 hours ago; the sooner and the nearer the hour
    # of the day, the more.
    counts = [0.5 ** (ago / 240) * np.exp(np.cos(2 * np.pi * ago / 24)) for ago in (8, 7, 6, 2)]
    second = (counts[1] + counts[3]) / sum(counts)
    actual = true_people(dataset, rolling, member)(1)
    assert [one.places.tolist() for one in actual] == [[4, 6], [5, 7]]
    assert [one.weight for one in actual] == pytest.approx([1 - second, second])
    # In a session that goes on it is who acted in it so far, whoever comes next.
    in_session = rolling_queries(dataset, split, "test", 3 * HOUR * 1_000_000)
    assert in_session.in_session.tolist() == [True, True]
    assert [one.places.tolist() for one in true_people(dataset, in_session, member)(1)] == [[5, 7]]


def test_sessions_of_who_is_likely_acting(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, split = world()
    rolling = rolling_queries(dataset, split, "test", HOUR * 1_000_000)
    share = np.array([[0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.2, 0.8]])  # of b's first session, and of its second

    class Found:
        def shares(self, place: int) -> np.ndarray:
            return share[:place]

        def chances(self, place: int) -> np.ndarray:
            assert place == 4
            return np.array([0.25, 0.75])

    monkeypatch.setattr("lightgc2n.experiments.rolling_queries.follow", lambda *_: Found())
    actual = likely_sessions(dataset, rolling, None)(1)  # type: ignore[arg-type]
    assert [one.places.tolist() for one in actual] == [[4, 5, 6, 7], [4, 5, 6]]
    expected = [0.2 * 0.25 + 0.8 * 0.75, 0.75 * (0.9 * 0.25 + 0.1 * 0.75)]
    assert [one.weight for one in actual] == pytest.approx(expected)


def test_people_now_and_its_control(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 10 o'clock b has done y z x in one session and z in a second one, which are of two people."""
    dataset, split = world()
    rolling = rolling_queries(dataset, split, "test", HOUR * 1_000_000)
    share = np.eye(2)[[0, 0, 0, 1]]

    class Found:
        def shares(self, place: int) -> np.ndarray:
            return share[:place]

    vectors = np.eye(3, dtype=np.float32)
    monkeypatch.setattr("lightgc2n.experiments.rolling_queries.follow", lambda *_: Found())
    monkeypatch.setattr("lightgc2n.experiments.people_now.item_vectors_of", lambda *_: vectors)
    actual = people_now(dataset, rolling, None)(1)  # type: ignore[arg-type]
    assert [one.places.tolist() for one in actual] == [[4, 5, 6], [7]]
    assert dataset.times is not None
    past = Past(dataset.events[4:8], np.asarray(dataset.times[4:8]), share, rolling.session[4:8])
    chances = who_is_watching(past, int(dataset.times[8]), [], vectors)[0]
    assert [one.weight for one in actual] == pytest.approx(chances)
    shuffled = people_now(dataset, rolling, None, shuffled=True)(1)  # type: ignore[arg-type]
    places = sorted(one.places.tolist() for one in shuffled)
    assert places == [[4, 5, 6], [7]]  # whole sessions, whoever gets them


def ranked(by_weight: np.ndarray, in_session: list[bool]) -> Ranked:
    """Questions of one account with two members who ask by turns."""
    dataset, split = world()
    rolling = rolling_queries(dataset, split, "test", 0)
    number = by_weight.shape[1]
    places = np.arange(1, number + 1)
    session = np.concatenate([[0], np.cumsum(~np.array(in_session))])
    queries = replace(rolling.queries, target_event=places)
    rolling = RollingQueries(queries, places, session)
    assert rolling.in_session.tolist() == in_session
    return Ranked(rolling, np.zeros(number, dtype=np.int64), np.arange(number) % 2, {"people": by_weight})


def test_the_least_served_choose_and_mrr_must_not_fall() -> None:
    number = len(WEIGHTS)
    # Where the session goes on, weights only lose; where it begins, the second weight finds the second member's target.
    ranks = np.array([[2.0, 30.0]] * number)
    ranks[1:, 0] = 4.0
    ranks[1, 1], ranks[2:, 1] = 20.0, 19.0
    assert choose(ranked(ranks, [True, False]), "people") == (0, 1)
    # If that costs the first member's place in the same kind of session, nothing is changed.
    assert choose(ranked(ranks, [False, False]), "people") == (0, 0)


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("town")
    generate(HouseholdConfig(accounts=60), seed=0, out=folder / "data")
    return folder


def serve(town: Path, *words: object) -> Done:
    return run("identify", town / "data", "--serve", *words)


def test_the_command(town: Path) -> None:
    done = serve(town, "sequential-rules", "--out", town / "served.json")
    assert done.returncode == 0, done.stderr
    result = json.loads((town / "served.json").read_text())
    assert list(result["rows"]) == [
        "account",
        "likely person",
        "likely of five",
        "likely sessions",
        "newest sessions",
        "people now",
        "shuffled people",
        "true people",
        "true person",
    ]
    for way in result["rows"]:
        assert way in done.stdout
    own = result["rows"]["account"]
    assert (own["weight going on"], own["weight beginning"], own["p"]) == (0.0, 0.0, None)
    assert 0 < own["least served RC@20"] <= own["RC@20"] < 1
    assert result["questions"] > result["accounts"]


@pytest.mark.slow
def test_some_accounts_alone(town: Path) -> None:
    counts = [json.loads(serve(town, "markov", "--accounts", part, "--json").stdout) for part in ("validation", "all")]
    assert 0 < counts[0]["accounts"] <= 18 < counts[1]["accounts"] <= 60


def test_what_is_refused(town: Path) -> None:
    done = serve(town, "markov", "--gap", 2)
    assert (done.returncode, "Leave --gap out" in done.stderr) == (2, True)
    done = serve(town, "nothing")
    assert (done.returncode, "neither a run nor a simple baseline" in done.stderr) == (2, True)
    done = serve(town, "markov", "--out", town / "served")
    assert (done.returncode, "ends in .json" in done.stderr) == (2, True)
    assert run("train", town / "data", "--model", "sasrec", "--epochs", 1, "--out", town / "run").returncode == 0
    done = serve(town, town / "run")
    assert (done.returncode, "--protocol time" in done.stderr) == (2, True)

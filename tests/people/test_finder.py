"""The finder: the same answers after a stay on disk, for accounts learned from and for new ones."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lightgc2n.errors import DataError
from lightgc2n.people import finder as finder_module
from lightgc2n.people import sessions as session_module
from lightgc2n.people.finder import NEW, People, PeopleFinder, load_finder, save_finder
from lightgc2n.people.sessions import Logs, sampled
from lightgc2n.progress import Output, Step, sent_to
from tests.people.test_pair_evidence import world


@pytest.fixture(scope="module")
def logs() -> Logs:
    return world(40)[0]


@pytest.fixture(scope="module")
def finder(logs: Logs) -> PeopleFinder:
    return PeopleFinder.learn(logs, np.random.default_rng(0))


def history(logs: Logs, account: int) -> tuple[np.ndarray, np.ndarray]:
    assert logs.times is not None
    part = slice(logs.offsets[account], logs.offsets[account + 1])
    order = np.argsort(logs.times[part], kind="stable")  # two neighbours may stand the wrong way round in that world
    return logs.items[part][order], logs.times[part][order]


def same(one: People, other: People) -> bool:
    return one.count == other.count and np.array_equal(one.share, other.share) and (one.chances == other.chances).all()


def test_people_of_an_account(finder: PeopleFinder, logs: Logs) -> None:
    found = finder.find(*history(logs, 3), row=3)
    assert found.share.shape == (30, found.count)
    assert found.share.sum(axis=1) == pytest.approx(np.ones(30))
    assert found.chances.sum() == pytest.approx(1)
    assert found.confidence == found.chances[found.count - 1]


def test_there_are_no_more_people_than_sessions(finder: PeopleFinder, logs: Logs) -> None:
    items, times = history(logs, 3)
    for sessions in (1, 2):
        stop = int(np.searchsorted(finder.find(items, times, row=3).session, sessions))
        found = finder.find(items[:stop], times[:stop], row=3)
        assert found.count <= sessions
        assert (found.chances[sessions:] == 0).all()
        assert found.chances.sum() == pytest.approx(1)


def test_a_count_that_is_known_is_kept(finder: PeopleFinder, logs: Logs) -> None:
    found = finder.find(*history(logs, 3), row=3, count=2)
    assert (found.count, found.confidence, found.share.shape) == (2, 1.0, (30, 2))


def test_an_account_nobody_has_seen_is_told_apart_too(finder: PeopleFinder) -> None:
    new, who = world(10, seed=7)
    right = []
    for account, person in enumerate(np.split(who, 10)):
        found = finder.find(*history(new, account), count=2).share.argmax(axis=1)
        assert new.times is not None
        person = person[np.argsort(new.times[30 * account : 30 * account + 30], kind="stable")]
        right.append(max((found == person).mean(), (found != person).mean()))
    assert np.mean(right) > 0.8


def test_kept_on_disk_it_gives_the_same_answers(finder: PeopleFinder, logs: Logs, tmp_path: Path) -> None:
    save_finder(finder, tmp_path / "finder")
    kept = load_finder(tmp_path / "finder")
    for row in (0, 5, None):
        assert same(kept.find(*history(logs, 5), row=row), finder.find(*history(logs, 5), row=row))
        one, other = (each.find(*history(logs, 5), row=row, count=3) for each in (kept, finder))
        assert np.array_equal(one.share, other.share)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["finder"]


def test_a_count_by_other_numbers_is_refused(finder: PeopleFinder, tmp_path: Path) -> None:
    head = replace(finder.head, centre=np.zeros(3), spread=np.ones(3), weights=np.zeros((7, 5)))
    save_finder(replace(finder, head=head), tmp_path / "finder")
    with pytest.raises(DataError, match="the count head has 3 features"):
        load_finder(tmp_path / "finder")


def test_without_times_too(tmp_path: Path) -> None:
    logs, _ = world(12)
    plain = Logs(logs.offsets, logs.items, None, logs.vectors)
    save_finder(PeopleFinder.learn(plain, np.random.default_rng(0)), tmp_path / "finder")
    kept = load_finder(tmp_path / "finder")
    items, times = history(logs, 0)
    assert same(kept.find(items, None, row=0), kept.find(items, times, row=0))


def test_histories_that_cannot_be_read_are_refused(finder: PeopleFinder, logs: Logs) -> None:
    items, times = history(logs, 0)
    with pytest.raises(DataError, match="a time for each event"):
        finder.find(items, None)
    with pytest.raises(DataError, match="oldest first"):
        finder.find(items, times[::-1])
    for wrong in ([], [-1], [64]):
        with pytest.raises(DataError, match="items 0 to 63"):
            finder.find(np.array(wrong, dtype=np.int64), times[: len(wrong)])


def test_folders_that_are_no_finder_are_refused(finder: PeopleFinder, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no people finder"):
        load_finder(tmp_path / "nothing")
    save_finder(finder, tmp_path / "finder")
    arrays = tmp_path / "finder" / "finder.safetensors"
    arrays.write_bytes(arrays.read_bytes()[:-9])
    with pytest.raises(DataError, match="incomplete people finder"):
        load_finder(tmp_path / "finder")
    facts = tmp_path / "finder" / "finder.json"
    facts.write_text(facts.read_text().replace('"schema": 1', '"schema": 7'))
    with pytest.raises(DataError, match="schema 7"):
        load_finder(tmp_path / "finder")


def test_sessions_that_are_not_compared_go_to_the_people_of_those_that_are(
    finder: PeopleFinder, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    items, times = history(logs, 3)
    whole = finder.find(items, times, row=3, count=2)
    number = whole.session[-1] + 1
    monkeypatch.setattr(finder_module, "MOST_SESSIONS", int(number))
    assert same(finder.find(items, times, row=3, count=2), whole)
    monkeypatch.setattr(finder_module, "MOST_SESSIONS", 20)
    found = finder.find(items, times, row=3, count=2)
    chosen = np.isin(whole.session, sampled(int(number), 20))
    units = np.unique(whole.session[chosen], return_inverse=True)[1]
    monkeypatch.setattr(session_module, "session_numbers", lambda *_: units)
    alone = finder.find(items[chosen], times[chosen], row=3, count=2)
    assert found.share[chosen] == pytest.approx(alone.share)
    assert found.share.shape == (30, 2)
    agreed = (found.share.argmax(axis=1) == whole.share.argmax(axis=1)).mean()
    assert max(agreed, 1 - agreed) > 0.8


def test_many_accounts_at_once_are_answered_as_one_by_one(
    finder: PeopleFinder, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finder_module, "EVENTS_AT_ONCE", 100)  # three accounts of 30 events at once
    rows = np.array([4, NEW, 0, 7, 9, 9, NEW])
    histories = [history(logs, account) for account in (4, 4, 0, 7, 9, 9, 1)]
    lengths = [len(items) for items, _ in histories]
    many = Logs(
        np.concatenate([[0], np.cumsum(lengths)]),
        np.concatenate([items for items, _ in histories]),
        np.concatenate([times for _, times in histories]),
        logs.vectors,
    )
    for counts in (None, np.array([2, 1, 3, 2, 2, 4, 2])):
        found = list(finder.find_all(many, rows, counts))
        for place, one in enumerate(found):
            row = None if rows[place] == NEW else int(rows[place])
            alone = finder.find(*histories[place], row=row, count=None if counts is None else int(counts[place]))
            assert one.count == alone.count
            assert one.share == pytest.approx(alone.share)
            assert one.chances == pytest.approx(alone.chances)
            assert np.array_equal(one.session, alone.session)


def test_a_sample_has_the_newest_half_and_others_at_equal_distances() -> None:
    assert sampled(6, 6).tolist() == list(range(6))
    assert sampled(12, 6).tolist() == [0, 3, 6, 9, 10, 11]
    assert sampled(13, 5).tolist() == [0, 3, 7, 11, 12]


def test_a_finder_of_something_else_is_refused(finder: PeopleFinder, tmp_path: Path) -> None:
    save_finder(finder, tmp_path / "finder", of={"checksum": "one"})
    load_finder(tmp_path / "finder", of={"checksum": "one"})
    load_finder(tmp_path / "finder")  # whoever does not say is not refused
    with pytest.raises(DataError, match="other data or another split"):
        load_finder(tmp_path / "finder", of={"checksum": "another"})


class Recorder(Output):
    """Records the steps of progress that are shown."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def step(self, title: str, total: float | None) -> Step:
        self.steps.append(Step(title, total))
        return self.steps[-1]


def test_learning_shows_the_progress_of_its_long_loops(logs: Logs) -> None:
    recorder = Recorder()
    with sent_to(recorder):
        PeopleFinder.learn(logs, np.random.default_rng(0))
    assert any("pairs of sessions" in step.title for step in recorder.steps)
    assert all(step.done == step.total for step in recorder.steps)

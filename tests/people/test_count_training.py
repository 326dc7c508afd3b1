"""Counting learned from accounts merged anew: who is merged, how many sessions are kept, and what comes of it."""

import numpy as np
import pytest

from lightgc2n.people import count_people
from lightgc2n.people.count_people import (
    FEATURES,
    Accounts,
    by_fold,
    chances,
    decide,
    fitting_thinning,
    learn_count,
    merges,
    most_likely,
    plain_head,
    rank_correlation,
)
from lightgc2n.people.pair_evidence import Contrast, learn
from lightgc2n.people.session_features import Sessions
from lightgc2n.people.sessions import Logs
from tests.people.accounts import logs_of


def town(accounts: int, longer: bool, seed: int = 0) -> tuple[Logs, np.ndarray]:
    """Accounts of one to three people, each with a taste of their own; with more people logs are longer, or are not."""
    random = np.random.default_rng(seed)
    people = random.integers(1, 4, size=accounts)
    items = []
    for count in people:
        taste = random.permutation(10)[:count]
        events = 20 * count if longer else 40
        own = taste[random.integers(count, size=events)] * 12 + random.integers(12, size=events)
        items.append(np.where(random.random(events) < 0.9, own, random.integers(120, size=events)).tolist())
    return logs_of(items, np.zeros((120, 4))), people


def prepared(logs: Logs) -> tuple[Sessions, Contrast, np.ndarray]:
    learned = learn(logs, np.random.default_rng(0))
    return learned.described(logs, learned.fold), learned.contrast, learned.fold


def plain_accounts(number: list[int], fold: list[int]) -> Accounts:
    """Accounts of so many sessions, of which only places and numbers are looked at."""
    sessions, contrast, _ = prepared(town(12, longer=False)[0])
    counted = np.array(number)
    return Accounts(sessions, contrast, np.array(fold), np.cumsum(counted) - counted, counted)


def test_likeness_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    accounts = plain_accounts([3, 1], [0, 0])
    pairs = np.array([[0, 1.0, 2.0], [1.0, 0, -6.0], [2.0, -6.0, 0]])
    monkeypatch.setattr(
        count_people, "evidence", lambda sessions, contrast, places: pairs[places[:, :, None], places[:, None]]
    )
    found = accounts.likeness([np.array([0]), np.array([0, 1, 2]), np.array([1, 2])])
    assert found == pytest.approx([0, (1 + 2 - 6) / 3, -6])


def test_the_most_alike_are_taken_for_singles() -> None:
    alike = np.array([0.1, np.nan, 0.9, -0.3, 0.8, 0.2, 0.0, np.nan, 0.3, 0.4])
    assert most_likely(alike).tolist() == [2, 4]  # a fifth of ten


def test_only_folds_with_enough_singles_are_merged() -> None:
    fold = np.array([0, 1] * 5 + [1, 0])
    groups = by_fold(np.array([0, 1, 2, 3, 4, 5, 6, 7, 9]), fold)
    assert [group.tolist() for group in groups] == [[1, 3, 5, 7, 9]]


def test_merges_are_of_as_many_accounts_as_they_say() -> None:
    accounts = plain_accounts([10] * 12, [0] * 6 + [1] * 6)
    groups = [np.arange(6), np.arange(6, 12)]
    for thinning, kept in ((0.0, [10, 10, 10, 10, 10]), (1.0, [10, 5, 3, 2, 2]), (0.5, [10, 7, 6, 5, 4])):
        merged = list(merges(accounts, groups, thinning, 10, np.random.default_rng(0)))
        assert [count for _, count in merged] == [1, 2, 3, 4, 5] * 2
        for places, count in merged:
            owner, number = np.unique(places // 10, return_counts=True)
            assert number.tolist() == [kept[count - 1]] * count  # 10 / count ** thinning
            assert len(np.unique(places)) == len(places)
            assert len(np.unique(owner // 6)) == 1  # of one fold


def test_of_long_merges_a_part_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count_people, "MOST_MERGED_SESSIONS", 12)
    merged = list(merges(plain_accounts([10] * 12, [0] * 12), [np.arange(12)], 0.0, 5, np.random.default_rng(0)))
    assert [len(places) for places, _ in merged] == [10, 12, 12, 12, 12]
    assert [len(np.unique(places // 10)) for places, _ in merged] == [1, 2, 3, 4, 5]


def test_rank_correlation_by_hand() -> None:
    assert rank_correlation(np.array([1, 5, 9]), np.array([0.1, 0.2, 7.0])) == pytest.approx(1)
    assert rank_correlation(np.array([1, 5, 9, 10]), np.array([4.0, 3, 1, 2])) == pytest.approx(1 - 6 * 18 / (4 * 15))
    assert rank_correlation(np.array([1]), np.array([1.0])) == 0


@pytest.mark.parametrize("longer", [True, False])
def test_logs_tell_whether_more_people_make_them_longer(longer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count_people, "TRIALS", 100)
    logs, people = town(120, longer)
    sessions, contrast, fold = prepared(logs)
    bounds = np.searchsorted(sessions.owner, np.arange(121))
    accounts = Accounts(sessions, contrast, fold, bounds[:-1], np.diff(bounds))
    alike = accounts.likeness([np.arange(*bounds[row : row + 2]) for row in range(120)])
    assert (people[most_likely(alike)] == 1).mean() > 0.8
    groups = by_fold(np.flatnonzero(people == 1), fold)
    thinning = fitting_thinning(accounts, groups, alike, np.random.default_rng(0))
    assert (thinning < 0.4) == longer
    assert (thinning > 0.6) != longer


def test_counts_are_found_without_any_label(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count_people, "TRIALS", 60)
    monkeypatch.setattr(count_people, "MERGES", 300)
    logs, people = town(120, longer=False)
    sessions, contrast, fold = prepared(logs)
    head = learn_count(logs, learn(logs, np.random.default_rng(0)), np.random.default_rng(0))
    bounds = np.searchsorted(sessions.owner, np.arange(121))
    accounts = Accounts(sessions, contrast, fold, bounds[:-1], np.diff(bounds))
    features = accounts.features(np.split(np.arange(len(sessions.owner)), bounds[1:-1]))
    found = chances(head, features).argmax(axis=1) + 1
    assert (found == people).mean() > 0.6
    assert (found[people == 1] == 1).mean() > 0.8


def test_merged_singles_are_hardly_split() -> None:
    random = np.random.default_rng(0)
    people = np.arange(500) % 5 + 1
    features = np.column_stack([people + random.normal(0, 2.0, 500), random.normal(size=500)])
    head = count_people.head_of(features, people)
    singles = chances(head, features[people == 1])
    assert (decide(singles, 0.0) > 1).mean() > count_people.MOST_MERGED_SPLIT
    assert (decide(singles, head.caution) > 1).mean() <= count_people.MOST_MERGED_SPLIT


def test_with_too_few_accounts_everybody_is_one_person() -> None:
    logs, _ = town(12, longer=False)
    head = learn_count(logs, learn(logs, np.random.default_rng(0)), np.random.default_rng(0))
    assert np.array_equal(head.weights, plain_head().weights)
    assert chances(head, np.zeros((1, FEATURES)))[0].argmax() == 0

"""Counting learned from accounts merged anew: who is merged, how many sessions are kept, and what comes of it."""

import numpy as np
import pytest

from lightgc2n.people import count_training
from lightgc2n.people.count_people import WITHOUT_HABITS, chances, decide, plain_head
from lightgc2n.people.count_training import (
    Accounts,
    Merged,
    Pairs,
    by_fold,
    fitting_thinning,
    head_of,
    learn_count,
    merges,
    most_likely,
    random_pairs,
    rank_correlation,
    unlike_pairs,
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
        count_training, "evidence", lambda sessions, contrast, places: pairs[places[:, :, None], places[:, None]]
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
    monkeypatch.setattr(count_training, "MOST_MERGED_SESSIONS", 12)
    merged = list(merges(plain_accounts([10] * 12, [0] * 12), [np.arange(12)], 0.0, 5, np.random.default_rng(0)))
    assert [len(places) for places, _ in merged] == [10, 12, 12, 12, 12]
    assert [len(np.unique(places // 10)) for places, _ in merged] == [1, 2, 3, 4, 5]


def test_rank_correlation_by_hand() -> None:
    assert rank_correlation(np.array([1, 5, 9]), np.array([0.1, 0.2, 7.0])) == pytest.approx(1)
    assert rank_correlation(np.array([1, 5, 9, 10]), np.array([4.0, 3, 1, 2])) == pytest.approx(1 - 6 * 18 / (4 * 15))
    assert rank_correlation(np.array([1]), np.array([1.0])) == 0


@pytest.mark.parametrize("longer", [True, False])
def test_logs_tell_whether_more_people_make_them_longer(longer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count_training, "TRIALS", 100)
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
    monkeypatch.setattr(count_training, "TRIALS", 60)
    monkeypatch.setattr(count_training, "MERGES", 300)
    logs, people = town(120, longer=False)
    sessions, contrast, fold = prepared(logs)
    head, habits = learn_count(logs, learn(logs, np.random.default_rng(0)), np.random.default_rng(0))
    assert habits is not None
    bounds = np.searchsorted(sessions.owner, np.arange(121))
    accounts = Accounts(sessions, contrast, fold, bounds[:-1], np.diff(bounds), habits)
    features = accounts.features(np.split(np.arange(len(sessions.owner)), bounds[1:-1]))
    found = chances(head, features).argmax(axis=1) + 1
    assert (found == people).mean() > 0.6
    assert (found[people == 1] == 1).mean() > 0.8


def test_merged_singles_are_hardly_split() -> None:
    random = np.random.default_rng(0)
    people = np.arange(500) % 5 + 1
    features = np.column_stack([people + random.normal(0, 2.0, 500), random.normal(size=500)])
    head = head_of(Merged([], features, people))
    singles = chances(head, features[people == 1])
    assert (decide(singles, 0.0) > 1).mean() > count_training.MOST_MERGED_SPLIT
    assert (decide(singles, head.caution) > 1).mean() <= count_training.MOST_MERGED_SPLIT


def test_pairs_are_half_of_each_of_two_accounts() -> None:
    accounts = plain_accounts([10] * 11 + [4], [0] * 6 + [1] * 6)
    drawn: list[np.ndarray] = []
    plain = Accounts.features

    def kept(self: Accounts, chosen: list[np.ndarray], what: str = "") -> np.ndarray:
        drawn.extend(chosen)
        return plain(self, chosen)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Accounts, "features", kept)
        pairs = random_pairs(accounts, np.random.default_rng(0))
    assert pairs.rows.tolist() == list(range(11))  # the last has too few sessions
    assert len(pairs.members) == 22  # two for each account
    for members, places in zip(pairs.members, drawn, strict=False):
        owner, number = np.unique(places // 10, return_counts=True)
        assert owner.tolist() == sorted(members.tolist())
        assert number.tolist() == [5, 5]
        assert len({row // 6 for row in members.tolist()}) == 1  # of one fold


def planted(people: np.ndarray, random: np.random.Generator, noise: tuple[float, float]) -> np.ndarray:
    """Two features, each the number of people with some noise."""
    return np.column_stack([people + random.normal(0, one, len(people)) for one in noise])


def planted_pairs(people: np.ndarray, random: np.random.Generator) -> Pairs:
    """Pairs of accounts; the second of their features is the better one."""
    members = np.array([random.choice(len(people), size=2, replace=False) for _ in range(2 * len(people))])
    noise = 1.0, 0.3
    features = planted(people, random, noise), planted(people[members].sum(axis=1), random, noise)
    return Pairs(np.arange(len(people)), features[0], members, features[1])


def test_accounts_unlike_pairs_have_one_person() -> None:
    random = np.random.default_rng(0)
    people = random.integers(1, 5, size=400)
    chosen = unlike_pairs(planted_pairs(people, random), 400, random)
    assert (people[chosen] == 1).mean() > 0.75  # a quarter of all
    assert 60 <= len(chosen) <= 100  # a fifth


def test_pairs_show_what_merged_singles_do_not() -> None:
    # Sessions were lost when singles were merged, and what the second feature tells with them.
    random = np.random.default_rng(0)
    people = random.integers(1, 4, size=600)
    pairs = planted_pairs(people, random)
    merged = np.arange(600) % 5 + 1
    features = planted(merged, random, (1.0, 0.3))
    features[:, 1] = random.permutation(features[:, 1])
    alone = Merged([], features, merged)
    likely = [chances(head, pairs.of_accounts) for head in (head_of(alone), head_of(alone, pairs, 5.0))]
    follows = [np.corrcoef(one @ np.arange(1, 6), people)[0, 1] for one in likely]  # the expected number of people
    assert follows[1] > follows[0] + 0.03
    assert np.array_equal(head_of(alone, pairs, 0.0).weights, head_of(alone).weights)


def test_with_too_few_accounts_everybody_is_one_person() -> None:
    logs, _ = town(12, longer=False)
    head, habits = learn_count(logs, learn(logs, np.random.default_rng(0)), np.random.default_rng(0))
    assert habits is None
    assert np.array_equal(head.weights, plain_head().weights)
    assert chances(head, np.zeros((1, WITHOUT_HABITS)))[0].argmax() == 0

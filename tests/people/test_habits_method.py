"""The mixture asked of many accounts: people found and counted, and the better of two ways taken."""

from dataclasses import replace

import numpy as np
import pytest

from lightgc2n.people import count_training, habits_method
from lightgc2n.people.contrast_method import by_contrast
from lightgc2n.people.count_people import chances, decide
from lightgc2n.people.habits_method import _afresh, by_mixture
from lightgc2n.people.mixture import Mixture
from lightgc2n.people.pair_evidence import learn
from lightgc2n.people.reference_methods import CountEstimate
from tests.people.test_count_training import town
from tests.people.test_pair_evidence import asked, shared, world


@pytest.fixture(autouse=True)
def few_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count_training, "TRIALS", 20)
    monkeypatch.setattr(count_training, "MERGES", 20)
    monkeypatch.setattr(habits_method, "COMPARED", 8)


def test_people_with_tastes_and_hours_are_told_apart() -> None:
    logs, who = world(60)
    two = np.full(logs.accounts, 2)
    mixed = by_mixture(logs, two, np.random.default_rng(0))
    assert isinstance(mixed, np.ndarray)
    assert shared(logs, mixed, who) > 0.5


def test_the_count_is_learned_from_merged_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count_training, "MERGES", 60)
    logs, people = town(120, longer=True)
    told = by_mixture(asked(logs, list(range(20))), None, np.random.default_rng(0))
    assert isinstance(told, CountEstimate)
    assert told.chances.sum(axis=1) == pytest.approx(np.ones(20))
    assert (told.count == people[:20]).mean() > 0.5


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("wins", [True, False])
def test_the_better_way_is_taken(monkeypatch: pytest.MonkeyPatch, given: bool, wins: bool) -> None:
    monkeypatch.setattr(habits_method, "_mixture_wins", lambda *_: wins)
    logs, people = town(60, longer=False)
    some = list(range(0, 60, 3))
    shown, count = asked(logs, some), people[some] if given else None
    chosen = by_mixture(shown, count, np.random.default_rng(0), guarded=True)
    ways = [way(shown, count, np.random.default_rng(0)) for way in (by_contrast, by_mixture)]
    found, plain, mixed = (way.person if isinstance(way, CountEstimate) else way for way in (chosen, *ways))
    assert not np.array_equal(plain, mixed)
    assert np.array_equal(found, mixed if wins else plain)


def test_an_account_never_shapes_what_describes_it() -> None:
    logs, _ = town(60, longer=False)
    changed = logs.items.copy()
    changed[logs.account == 7] = np.random.default_rng(1).integers(120, size=int((logs.account == 7).sum()))
    pair = logs, replace(logs, items=changed)
    first, second = (Mixture.learn(one, learn(one, np.random.default_rng(0)), np.random.default_rng(0)) for one in pair)
    fold = learn(logs, np.random.default_rng(0)).fold[7]
    assert np.array_equal(first.group[fold], second.group[fold])
    assert first.together[fold] == pytest.approx(second.together[fold])
    assert not all(np.array_equal(*groups) for groups in zip(first.group, second.group, strict=True))


def test_a_tenth_of_the_merged_singles_is_split_at_most() -> None:
    logs, _ = town(60, longer=False)
    learned = learn(logs, np.random.default_rng(0))
    sessions = learned.described(logs, learned.fold)
    merged = count_training.merged_anew(sessions, learned.contrast, learned.fold, np.random.default_rng(0))
    assert merged is not None
    mixture = Mixture.learn(logs, learned, np.random.default_rng(0))
    head = habits_method._mixture_head(mixture, learned, sessions, merged)
    features = habits_method._merged_features(mixture, learned, sessions, merged)
    said = decide(chances(head, features), head.caution)
    assert (said[merged.people == 1] > 1).mean() <= habits_method.MOST_SPLIT_BY_MIXTURE


def test_with_one_account_there_is_one_person() -> None:
    logs, _ = world(1)
    for guarded in (False, True):
        told = by_mixture(logs, None, np.random.default_rng(0), guarded=guarded)
        assert isinstance(told, CountEstimate)
        assert told.count.tolist() == [1]
        assert np.isfinite(told.chances).all()


def test_which_is_better_is_asked_of_merged_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    logs, people = town(60, longer=False)
    asked_of: list[int] = []
    real = Mixture.assign

    def useless(self: Mixture, account: object, number: int, *more: object) -> np.ndarray:
        asked_of.append(number)
        return np.eye(number)[np.arange(len(account.size)) % number]  # type: ignore[attr-defined]

    monkeypatch.setattr(Mixture, "assign", useless)
    chosen = by_mixture(logs, people, np.random.default_rng(0), guarded=True)
    assert set(asked_of) <= {2, 3, 4}
    assert len(asked_of) == 8
    monkeypatch.setattr(Mixture, "assign", real)
    assert np.array_equal(chosen, by_contrast(logs, people, np.random.default_rng(0)))


def test_the_seed_reaches_the_mixture() -> None:
    logs, people = town(60, longer=False)
    found = [by_mixture(logs, people, np.random.default_rng(seed)) for seed in (0, 0, 1)]
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])
    first = _afresh(np.random.default_rng(7)).random(3)
    moved = np.random.default_rng(7)
    moved.random(5)
    assert np.array_equal(_afresh(moved).random(3), first)
    assert np.array_equal(np.random.default_rng(7).random(3), first)

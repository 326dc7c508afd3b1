"""The mixture asked of many accounts: better than evidence alone where people have habits, and left where it is not."""

import numpy as np
import pytest

from lightgc2n.people import merging, mixing
from lightgc2n.people.asking import by_contrast
from lightgc2n.people.floors import Told
from lightgc2n.people.mixing import by_mixture
from lightgc2n.people.mixture import Mixture
from tests.people.test_evidence import asked, shared, world
from tests.people.test_merging import town


@pytest.fixture(autouse=True)
def few_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "TRIALS", 20)
    monkeypatch.setattr(merging, "MERGES", 20)
    monkeypatch.setattr(mixing, "COMPARED", 8)


def test_people_with_tastes_and_hours_are_told_apart() -> None:
    logs, who = world(60)
    two = np.full(logs.accounts, 2)
    mixed = by_mixture(logs, two, np.random.default_rng(0))
    assert isinstance(mixed, np.ndarray)
    assert shared(logs, mixed, who) > 0.5


def test_the_count_is_learned_from_merged_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "MERGES", 60)
    logs, people = town(120, longer=True)
    told = by_mixture(asked(logs, list(range(20))), None, np.random.default_rng(0))
    assert isinstance(told, Told)
    assert told.chances.sum(axis=1) == pytest.approx(np.ones(20))
    assert (told.count == people[:20]).mean() > 0.5


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("wins", [True, False])
def test_the_better_way_is_taken(monkeypatch: pytest.MonkeyPatch, given: bool, wins: bool) -> None:
    monkeypatch.setattr(mixing, "_mixture_wins", lambda *_: wins)
    logs, people = town(60, longer=False)
    shown, count = asked(logs, [3, 7, 11]), people[[3, 7, 11]] if given else None
    chosen = by_mixture(shown, count, np.random.default_rng(0), guarded=True)
    other = (by_mixture if wins else by_contrast)(shown, count, np.random.default_rng(0))
    assert type(chosen) is type(other)
    people_of = [way.person if isinstance(way, Told) else way for way in (chosen, other)]
    assert np.array_equal(*people_of)


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

"""Ways to count over the same evidence: many accounts at once say what the finder says of one."""

import numpy as np
import pytest

from lightgc2n.people import count_training
from lightgc2n.people.contrast_method import Examples, by_contrast, by_examples, lengths
from lightgc2n.people.finder import PeopleFinder
from lightgc2n.people.reference_methods import CountEstimate
from tests.people.test_count_training import town
from tests.people.test_pair_evidence import asked


@pytest.fixture(autouse=True)
def few_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count_training, "TRIALS", 20)
    monkeypatch.setattr(count_training, "MERGES", 60)


def test_lengths_by_hand() -> None:
    assert lengths(np.zeros((2, 2)), np.array([3, 5]), 0.0).tolist() == [np.log(2), np.log(8)]


def test_many_accounts_are_told_what_the_finder_tells_of_one() -> None:
    logs, _ = town(120, longer=True)
    told = by_contrast(asked(logs, [40, 3, 77]), None, np.random.default_rng(0))
    finder = PeopleFinder.learn(logs, np.random.default_rng(0))
    assert isinstance(told, CountEstimate)
    start = 0
    for place, row in enumerate([40, 3, 77]):
        items = logs.items[logs.offsets[row] : logs.offsets[row + 1]]
        found = finder.find(items, None, row=row)
        assert found.count == told.count[place]
        assert found.chances == pytest.approx(told.chances[place], abs=1e-6)
        assert np.array_equal(found.share.argmax(axis=1), told.person[start : start + len(items)])
        start += len(items)


def test_examples_teach_the_count() -> None:
    logs, people = town(120, longer=True)
    examples = Examples(asked(logs, list(range(60))), people[:60])
    rest = asked(logs, list(range(60, 120)))
    told, by_length = (
        by_examples(rest, None, np.random.default_rng(0), examples=examples, **given)
        for given in ({}, {"features": lengths})
    )
    assert isinstance(told, CountEstimate)
    assert isinstance(by_length, CountEstimate)
    assert (told.count == people[60:]).mean() > 0.6
    assert (by_length.chances.argmax(axis=1) + 1 == people[60:]).all()  # exactly 20 events for each person
    many = Examples(examples.logs, people[:60] + 4)  # more than are offered
    assert (by_examples(rest, None, np.random.default_rng(0), examples=many).chances.argmax(axis=1) == 4).all()  # type: ignore[union-attr]


def test_with_the_count_given_all_say_the_same() -> None:
    logs, people = town(40, longer=False)
    examples = Examples(asked(logs, [0, 1]), people[:2])
    given = by_examples(logs, people, np.random.default_rng(0), examples=examples)
    assert np.array_equal(given, by_contrast(logs, people, np.random.default_rng(0)))

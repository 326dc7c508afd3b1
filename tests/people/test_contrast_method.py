"""Ways to count over the same evidence: many accounts at once say what the finder says of one."""

import numpy as np
import pytest

from lightgc2n.people import count_training
from lightgc2n.people.contrast_method import Examples, by_contrast, by_examples, evidence_of, lengths
from lightgc2n.people.finder import PeopleFinder
from lightgc2n.people.reference_methods import CountEstimate
from tests.people.accounts import logs_of
from tests.people.test_count_training import town
from tests.people.test_pair_evidence import asked


@pytest.fixture(autouse=True)
def few_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count_training, "TRIALS", 20)
    monkeypatch.setattr(count_training, "MERGES", 60)


def test_lengths_by_hand() -> None:
    logs = logs_of([[0, 1], [2], [0, 3, 1]], np.zeros((4, 2)))
    wanted = np.log([[2, 2], [1, 1], [3, 3]])  # without times every event is a session
    assert lengths(None, logs).tolist() == wanted.tolist()  # type: ignore[arg-type]


def test_many_accounts_are_told_what_the_finder_tells_of_one() -> None:
    logs, _ = town(120, longer=True)
    finder = PeopleFinder.learn(logs, np.random.default_rng(0))
    told = by_contrast(asked(logs, [40, 3, 77]), None, np.random.default_rng(0), finder=finder)
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
    finder = PeopleFinder.learn(logs, np.random.default_rng(0))
    told, by_length = (
        by_examples(rest, None, np.random.default_rng(0), finder=finder, examples=examples, features=features)
        for features in (evidence_of, lengths)
    )
    assert isinstance(told, CountEstimate)
    assert isinstance(by_length, CountEstimate)
    assert (told.count == people[60:]).mean() > 0.6
    assert (by_length.chances.argmax(axis=1) + 1 == people[60:]).all()  # exactly 20 events for each person
    many = Examples(examples.logs, people[:60] + 4)  # more than are offered
    most = by_examples(rest, None, np.random.default_rng(0), finder=finder, examples=many, features=evidence_of)
    assert isinstance(most, CountEstimate)
    assert (most.chances.argmax(axis=1) == 4).all()

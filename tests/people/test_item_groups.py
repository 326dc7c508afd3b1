"""Groups of items, and which go together: by hand, and against slow loops."""

import numpy as np
import pytest

from lightgc2n.people.item_groups import (
    ACCOUNT_WEIGHT,
    ITEM_WEIGHT,
    going_together,
    item_groups,
    sphere_centres,
    sums_at,
    topic_step,
)
from lightgc2n.people.session_features import item_vectors


def test_sums_by_hand() -> None:
    rows = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    assert sums_at(np.array([2, 0, 2]), rows, 4).tolist() == [[3, 4], [0, 0], [6, 8], [0, 0]]
    assert sums_at(np.zeros(0, dtype=np.int64), rows[:0], 2).tolist() == [[0, 0], [0, 0]]


def test_a_topic_step_is_the_slow_loop() -> None:
    random = np.random.default_rng(0)
    account, item = np.array([0, 0, 1, 1, 2]), np.array([0, 1, 1, 2, 0])
    topic = random.dirichlet(np.ones(3), len(account))
    found = topic_step(topic, account, item, items=4)
    for place in range(len(account)):
        others = [other for other in range(len(account)) if other != place]
        score = np.zeros(3)
        for group in range(3):
            of_account = sum(topic[other, group] for other in others if account[other] == account[place])
            of_item = sum(topic[other, group] for other in others if item[other] == item[place])
            everything = sum(topic[other, group] for other in others)
            score[group] = (of_account + ACCOUNT_WEIGHT) * (of_item + ITEM_WEIGHT) / (everything + 4 * ITEM_WEIGHT)
        assert found[place] == pytest.approx(score / score.sum())


def test_centres_are_the_directions_that_there_are() -> None:
    vectors = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], dtype=np.float32)
    found = sphere_centres(vectors, np.ones(4), 2, np.random.default_rng(0))
    assert sorted(found.round(6).tolist()) == [[0, 1], [1, 0]]


def test_planted_groups_are_found_and_items_of_nobody_have_none() -> None:
    random = np.random.default_rng(0)
    account = np.repeat(np.arange(200), 8)
    item = 10 * random.integers(3, size=200)[account] + random.integers(10, size=len(account))
    group = item_groups(account, item, item_vectors(account, item, 31), random, groups=3)
    assert group[30] == 3
    assert sorted(len(set(group[first : first + 10].tolist())) for first in (0, 10, 20)) == [1, 1, 1]
    assert len(set(group[:30].tolist())) == 3


def test_without_vectors_all_items_are_one_group() -> None:
    held = np.array([0, 1])
    assert item_groups(held, held, np.zeros((3, 2), dtype=np.float32), np.random.default_rng(0)).tolist() == [0, 0, 20]


def test_what_meets_by_chance_does_not_go_together() -> None:
    # Account 0 has groups 0 and 1, account 1 has groups 2 and 3: each half of all sessions.
    counts, owner = np.eye(4)[[0, 1, 2, 3]], np.array([0, 0, 1, 1])
    # 0 meets 1 alone: pairs 1, chance 1/4, of one person 2 · 1 - 1/4 = 7/4, above chance by 3/2.
    assert going_together(counts, owner) == pytest.approx(np.eye(4)[[1, 0, 3, 2]], abs=1e-6)


def test_what_meets_oftener_than_by_chance_goes_together() -> None:
    # Two accounts have groups 0 and 1, one has 0 and 2: 0 meets 1 in 2/3 of its pairs, and 1 is 1/3 of all sessions.
    counts, owner = np.eye(3)[[0, 1, 0, 1, 0, 2]], np.array([0, 0, 1, 1, 2, 2])
    # One person's: 2 · 2/3 - 1/3 = 1, above chance by 2/3; 2: 2 · 1/3 - 1/6 = 1/2, above by 1/3.
    assert going_together(counts, owner)[0] == pytest.approx([0, 2 / 3, 1 / 3], abs=1e-6)


def test_without_any_session_every_group_is_alone() -> None:
    assert going_together(np.zeros((0, 3)), np.zeros(0, dtype=np.int64)).tolist() == np.eye(3).tolist()


def test_a_group_that_meets_nothing_goes_with_itself() -> None:
    counts, owner = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]), np.array([0, 0, 1])
    assert going_together(counts, owner) == pytest.approx(np.eye(2))

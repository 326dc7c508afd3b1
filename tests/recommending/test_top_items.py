"""The order of a list: by score, then by item number, and what may not be listed is not."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import tensor

from lightgc2n.recommending.load_run import best_items, best_of_two_kinds
from lightgc2n.recommending.people_report import top_items_for_all

NOT = -torch.inf


def test_equal_scores_are_ordered_by_item() -> None:
    values, items = best_items(tensor([[1.0, 3.0, 3.0, 3.0, 2.0], [5.0, 5.0, 5.0, 5.0, 5.0]]), k=2)
    assert values.tolist() == [[3.0, 3.0], [5.0, 5.0]]
    assert items.tolist() == [[1, 2], [0, 1]]


@given(
    rows=st.lists(st.lists(st.sampled_from([NOT, 0.0, 1.0, 2.0]), min_size=7, max_size=7), min_size=1, max_size=5),
    first=st.lists(st.booleans(), min_size=7, max_size=7),
    k=st.integers(min_value=1, max_value=9),
)
def test_the_order_is_that_of_a_slow_sort(rows: list[list[float]], first: list[bool], k: int) -> None:
    values, items = best_of_two_kinds(tensor(rows), tensor(first), k)
    for row, some, chosen in zip(rows, values.tolist(), items.tolist(), strict=True):
        listed = sorted((not first[item], -score, item) for item, score in enumerate(row) if score != NOT)[:k]
        assert chosen[: len(listed)] == [item for _, _, item in listed]
        assert some[: len(listed)] == [-score for _, score, _ in listed]
        assert all(value == NOT for value in some[len(listed) :])


@pytest.mark.parametrize("k", [1, 3])
def test_what_was_not_learned_comes_last(k: int) -> None:
    values, items = best_of_two_kinds(tensor([[9.0, 1.0, NOT, 8.0]]), tensor([False, True, True, False]), k)
    assert items.tolist()[0] == [1, 0, 3][:k]
    assert values.tolist()[0] == [1.0, 9.0, 8.0][:k]


def test_a_list_for_all_by_hand() -> None:
    """Places of items 0 to 3 with the first person: 1 2 3 4, with the second: 4 1 2 3."""
    scores = np.array([[9.0, 8.0, 7.0, 6.0], [0.1, 0.4, 0.3, 0.2]], dtype=np.float32)
    values, items = top_items_for_all(scores, np.ones(4, dtype=bool), k=4)
    assert items.tolist() == [1, 2, 0, 3]  # the worst places are 2, 3, 4, 4; of the last two the sums are 5 and 7
    assert values.tolist() == pytest.approx([1 / 2, 1 / 3, 1 / 4, 1 / 4])
    # Item 1 was not learned, so it stands behind the others; item 2 may not be listed for the second person.
    scores[1, 2] = NOT
    assert top_items_for_all(scores, np.array([True, False, True, True]), k=4)[1].tolist() == [0, 3, 1]

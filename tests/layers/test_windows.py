"""Logs cut into windows: every event stands once, in order, and padding nowhere."""

from itertools import pairwise

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from lightgc2n.data.batches import Batch
from lightgc2n.layers.windows import cut_windows, histories_before, newest_part


def seen(lengths: list[int]) -> torch.Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def test_by_hand() -> None:
    windows = cut_windows(seen([5, 1]), longest=2)
    table = windows.spread(torch.tensor([[1.0], [2.0], [3.0], [4.0], [5.0], [6.0]]))
    # five events in windows of two, the oldest one shorter; then a log of one event
    assert_close(table[..., 0], torch.tensor([[1.0, 0.0], [2.0, 3.0], [4.0, 5.0], [6.0, 0.0]]))
    assert windows.age.tolist() == [0, 1, 0, 1, 0, 0]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5).filter(any), st.integers(1, 10))
def test_cut_row_by_row(lengths: list[int], longest: int) -> None:
    windows = cut_windows(seen(lengths), longest)
    number, rows, ages = 1.0, [], []
    for length in lengths:
        oldest = length % longest or longest
        cuts = [0, *range(oldest, length, longest), length] if length else []
        for first, stop in pairwise(cuts):
            rows.append([number + place for place in range(stop - first)] + [0.0] * (windows.width - stop + first))
            ages += list(range(stop - first - 1, -1, -1))
            number += stop - first
    events = torch.arange(1.0, number)[:, None]
    assert windows.spread(events)[..., 0].tolist() == rows
    assert windows.age.tolist() == ages
    assert_close(windows.collect(windows.spread(events)), events)


def test_a_table_is_no_wider_than_the_logs() -> None:
    assert cut_windows(seen([3, 2]), longest=50).width == 3


def test_the_newest_part() -> None:
    history = torch.tensor([[1, 2, 3, 4], [5, 6, 0, 0], [7, 8, 9, 0], [0, 0, 0, 0]])
    part = newest_part(Batch(torch.zeros(4, dtype=torch.long), history, torch.tensor([4, 2, 3, 0])), longest=2)
    assert part.length.tolist() == [2, 2, 2, 0]
    assert part.history[part.known].tolist() == [3, 4, 5, 6, 8, 9]
    assert part.history.shape == (4, 2)


def test_the_newest_part_keeps_its_days() -> None:
    ages = torch.tensor([[9.0, 5.0, 2.0], [4.0, 0.0, 0.0]])
    part = newest_part(
        Batch(torch.zeros(2, dtype=torch.long), torch.zeros(2, 3, dtype=torch.long), torch.tensor([3, 1]), ages),
        longest=2,
    )
    assert part.ages is not None
    assert part.ages.tolist() == [[5.0, 2.0], [4.0, 0.0]]


def test_histories_before_places() -> None:
    log = torch.tensor([[1, 2, 3, 4], [5, 6, 0, 0]])
    row, place = torch.tensor([0, 0, 1, 1]), torch.tensor([3, 0, 1, -1])
    items, known = histories_before(log, row, place, longest=3, newest_first=True)
    assert [items[i][known[i]].tolist() for i in range(4)] == [[4, 3, 2], [1], [6, 5], []]
    assert known.tolist() == [[True] * 3, [True, False, False], [True, True, False], [False] * 3]
    items, known = histories_before(log, row, place, longest=3, newest_first=False)
    assert [items[i][known[i]].tolist() for i in range(4)] == [[2, 3, 4], [1], [5, 6], []]
    assert known.tolist() == [[True] * 3, [True, False, False], [True, True, False], [False] * 3]
    assert histories_before(log, row, place, longest=9, newest_first=True)[0].shape == (4, 4)

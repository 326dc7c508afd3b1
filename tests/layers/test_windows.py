"""Logs cut into windows: every event stands once, in order, and padding nowhere."""

from itertools import pairwise

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from lightgc2n.data.batches import Batch
from lightgc2n.layers.windows import cut_windows, draw_places, histories_before, newest_part


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


def test_places_are_drawn_evenly_from_those_that_count() -> None:
    torch.manual_seed(0)
    counts = torch.tensor([[True, True, False, True], [False, True, False, False], [False] * 4])
    seen = torch.zeros(3, 4)
    for _ in range(600):
        row, place = draw_places(counts, 2)
        assert torch.bincount(row, minlength=3).tolist() == [2, 1, 0]
        assert len(set(zip(row.tolist(), place.tolist(), strict=True))) == 3  # none twice
        seen[row, place] += 1
    assert_close(seen / 600, torch.tensor([[2 / 3, 2 / 3, 0, 2 / 3], [0, 1.0, 0, 0], [0, 0, 0, 0]]), atol=0.06, rtol=0)

"""Long logs cut to a bounded length, and events packed: every event stands once, in order, and padding nowhere."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from lightgc2n.data.batches import Batch, TrainingBatch
from lightgc2n.layers.windows import cut_rows, draw_places, histories_before, newest_part, pack
from tests.graph.logs import training_batch


def test_packing_by_hand() -> None:
    packing = pack(torch.tensor([[True, True, True], [False] * 3, [True, False, False]]))
    assert packing.age.tolist() == [2, 1, 0, 0]
    events = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
    table = packing.spread(events)
    assert_close(table[..., 0], torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0], [4.0, 0.0, 0.0]]))
    assert_close(packing.collect(table + 5), events + 5)


def test_the_newest_part() -> None:
    history = torch.tensor([[1, 2, 3, 4], [5, 6, 0, 0], [7, 8, 9, 0], [0, 0, 0, 0]])
    batch = Batch(torch.zeros(4, dtype=torch.long), history, torch.tensor([4, 2, 3, 0]), ages=10.0 * history)
    part = newest_part(batch, longest=2)
    assert part.length.tolist() == [2, 2, 2, 0]
    assert part.ages is not None
    assert part.ages[part.known].tolist() == [30, 40, 50, 60, 80, 90]
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


def rows_of(batch: TrainingBatch) -> list[tuple[int, list[int], list[int]]]:
    """For each row the account, the events, and the targets that count."""
    parts = zip(batch.account, batch.log, batch.next_item, batch.seen, batch.counts, strict=True)
    return [(int(a), log[seen].tolist(), after[counts].tolist()) for a, log, after, seen, counts in parts]


def test_rows_are_cut_from_the_newest_event_by_hand() -> None:
    batch = training_batch([[1, 2, 3, 4, 5, 6, 7, 8], [11, 12, 13], [21, 22, 23, 24, 25]])
    assert rows_of(cut_rows(batch, 3)) == [
        (0, [1], [2]),
        (0, [2, 3, 4], [3, 4, 5]),
        (0, [5, 6, 7], [6, 7, 8]),
        (1, [11, 12], [12, 13]),
        (2, [21], [22]),
        (2, [22, 23, 24], [23, 24, 25]),
    ]
    assert cut_rows(batch, 7) is batch


def test_a_cut_row_keeps_the_newest_events_before_its_only_target() -> None:
    batch = training_batch([[1, 2, 3, 4, 5, 6, 7, 8], [11, 12, 13]], targets="last")
    assert rows_of(cut_rows(batch, 3)) == [(0, [5, 6, 7], [8]), (1, [11, 12], [13])]


@given(st.lists(st.integers(2, 12), min_size=1, max_size=5), st.integers(1, 12))
def test_rows_are_cut_one_by_one(lengths: list[int], longest: int) -> None:
    """Every step stands once, behind the events of its part alone; all parts but a log's oldest are full."""
    logs = [[100 * row + place for place in range(length)] for row, length in enumerate(lengths)]
    expected = []
    for row, log in enumerate(logs):
        oldest = (len(log) - 1) % longest or longest
        starts = [0, *range(oldest, len(log) - 1, longest)]
        for first, stop in zip(starts, [*starts[1:], len(log) - 1], strict=True):
            expected.append((row, log[first:stop], log[first + 1 : stop + 1]))
    assert rows_of(cut_rows(training_batch(logs), longest)) == expected


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

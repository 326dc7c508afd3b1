"""Queries as padded tensors, and long rows cut: what every part reads is what it would read alone."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from lightgc2n.data.batches import (
    Batch,
    Sizes,
    TrainingBatch,
    cut_rows,
    draw_places,
    histories_before,
    make_batch,
    newest_part,
    pack,
    query_batches,
    sizes_of,
    training_batches,
)
from lightgc2n.data.splits import SplitConfig, split_dataset
from tests.graph.logs import training_batch
from tests.worlds import dataset_of

DATA = dataset_of([("a", "p q r s"), ("b", "r q p"), ("c", "s p")])


def test_histories_are_padded_on_the_right_and_masked() -> None:
    queries = split_dataset(DATA, SplitConfig()).test
    batch = make_batch(queries)
    assert batch.history.tolist() == [[0, 1, 2], [2, 1, 0], [3, 0, 0]]
    assert batch.known.tolist() == [[True, True, True], [True, True, False], [True, False, False]]
    assert batch.last.tolist() == [2, 1, 3]
    assert batch.account.tolist() == [0, 1, 2]


def test_the_last_partial_batch_counts() -> None:
    queries = split_dataset(DATA, SplitConfig()).test
    parts = list(query_batches(queries, rows_per_batch=2))
    assert [len(part.target) for part in parts] == [2, 1]
    assert np.concatenate([part.target.numpy() for part in parts]).tolist() == queries.target.tolist() == [3, 0, 0]


LONG = dataset_of([("a", "p q r s p q"), ("b", "r q p s"), ("c", "s p q")])  # training: p q r s, r q, s


def test_training_rows_hold_every_prefix() -> None:
    train = split_dataset(LONG, SplitConfig()).train
    (batch,) = training_batches(train, rows_per_batch=8)
    assert batch.account.tolist() == [0, 1]  # c has no step
    assert batch.log.tolist() == [[0, 1, 2], [2, 0, 0]]
    assert batch.next_item.tolist() == [[1, 2, 3], [1, 0, 0]]
    assert batch.counts.tolist() == [[True, True, True], [True, False, False]]
    assert train.examples == 4


def test_with_last_only_the_last_event_is_a_target() -> None:
    train = split_dataset(LONG, SplitConfig(targets="last")).train
    (batch,) = training_batches(train, rows_per_batch=8)
    assert batch.counts.tolist() == [[False, False, True], [True, False, False]]
    assert train.examples == 2


@pytest.mark.parametrize("targets", ["all", "last"])
def test_every_example_comes_once_an_epoch(targets: str) -> None:
    train = split_dataset(LONG, SplitConfig(targets=targets)).train
    batches = list(training_batches(train, rows_per_batch=1, order=np.random.default_rng(1)))
    assert sum(int(batch.counts.sum()) for batch in batches) == train.examples
    assert sorted(int(batch.account) for batch in batches) == [0, 1]


def test_one_endless_log_does_not_widen_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = [(f"a{number}", "p q r") for number in range(6)]
    data = dataset_of([*logs[:3], ("long", "p q " * 20), *logs[3:]])
    queries = split_dataset(data, SplitConfig()).test
    monkeypatch.setattr("lightgc2n.data.batches.PADDED_CELLS", 40)
    parts = list(query_batches(queries, rows_per_batch=100))
    assert [tuple(part.batch.history.shape) for part in parts] == [(3, 2), (1, 39), (3, 2)]
    assert sum(len(part.target) for part in parts) == 7


@pytest.mark.parametrize("targets", ["all", "last"])
def test_targets_and_items_are_listed(targets: str) -> None:
    train = split_dataset(LONG, SplitConfig(targets=targets)).train
    (batch,) = training_batches(train, rows_per_batch=8)
    assert batch.target.tolist() == batch.next_item[batch.counts].tolist()
    assert batch.row.tolist() == batch.counts.nonzero()[:, 0].tolist()
    assert batch.share.tolist() == pytest.approx([1 / len(batch.at)] * len(batch.at))
    seen = batch.log[batch.seen].tolist()
    assert batch.items.tolist() == sorted(set(seen))
    assert batch.item_share.tolist() == pytest.approx([seen.count(item) / len(seen) for item in sorted(set(seen))])


def test_rows_alone_make_the_same_batch() -> None:
    (batch,) = training_batches(split_dataset(LONG, SplitConfig()).train, rows_per_batch=8)
    again = TrainingBatch.of_rows(batch.account, batch.log, batch.next_item, batch.seen, batch.counts)
    for name, tensor in batch.tensors().items():
        assert_close(again.tensors()[name], tensor)


def test_padding_to_a_size_counts_for_nothing() -> None:
    train = split_dataset(LONG, SplitConfig()).train
    (exact,) = training_batches(train, rows_per_batch=8)
    (wide,) = training_batches(train, rows_per_batch=8, sizes=Sizes(rows=4, places=5, targets=6, items=2, grain=8))
    rows, places = exact.log.shape
    assert wide.log.shape == (4, 5)
    assert wide.log[:rows, :places].tolist() == exact.log.tolist()
    assert wide.seen.sum() == exact.seen.sum()
    assert wide.counts.sum() == exact.counts.sum()
    assert len(wide.at) == len(wide.share) == 6
    assert wide.target[: len(exact.at)].tolist() == exact.target.tolist()
    assert wide.share.tolist() == [*exact.share.tolist(), *[0.0] * (6 - len(exact.at))]
    assert len(exact.items) > 2
    assert len(wide.items) == 8  # more than asked for, so a multiple of the grain


def test_sizes_hold_every_batch_of_a_pass() -> None:
    train = split_dataset(LONG, SplitConfig()).train
    sizes = sizes_of(train, rows_per_batch=2, grain=4)
    for batch in training_batches(train, 2, np.random.default_rng(0), sizes=sizes):
        assert len(batch.account) == sizes.rows
        assert batch.log.shape == (sizes.rows, sizes.places)
        assert len(batch.at) == sizes.targets
        assert len(batch.items) == sizes.items


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

"""Queries as padded tensors."""

import numpy as np
import pytest
from torch.testing import assert_close

from lightgc2n.data.batches import Sizes, TrainingBatch, make_batch, query_batches, sizes_of, training_batches
from lightgc2n.data.splits import SplitConfig, split_dataset
from tests.worlds import dataset_of

DATA = dataset_of([("a", "p q r s"), ("b", "r q p"), ("c", "s p")])


def test_histories_stand_left_and_padding_is_told() -> None:
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

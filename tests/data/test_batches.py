"""Queries as padded tensors."""

import numpy as np

from lightgc2n.data.batches import make_batch, query_batches
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

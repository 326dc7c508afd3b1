"""The counted sources by hand: three short logs, one history."""

import pytest
import torch
from torch import tensor
from torch.testing import assert_close

from lightgc2n.data.batches import Batch
from lightgc2n.models.plus.blend import history_shares
from lightgc2n.models.plus.transitions import count_followers, count_neighbours
from tests.graph.logs import training_of

LOGS = [[0, 1, 2], [0, 1, 3], [1, 2, 0]]
# Distances in the logs: 0→1 twice 1, 1→2 twice 1, 1→3 once 1, 2→0 once 1; 0→2, 0→3 and 1→0 once 2.
SHARES = {  # of items 0 to 3 after the history 1, 2, 0, 1
    "follower": [0, 0, 2 / 8, 1 / 8],  # item 1 was followed 3 times: 3 + 5 = 8
    "followers": [
        0.49 * (1 / 6) / 2.533,  # 2 → 0 once of 1; two events newer
        0.7 * (2 / 7) / 2.533,  # 0 → 1 twice of 2; one event newer
        (1 + 0.343) * (2 / 8) / 2.533,  # item 1 is the newest event and the oldest of four
        (1 + 0.343) * (1 / 8) / 2.533,
    ],
    "own followers": [  # after the first 1 came 2, 0, 1
        (1 / 2) / (1 + 1 / 2 + 1 / 3 + 1),
        (1 / 3) / (1 + 1 / 2 + 1 / 3 + 1),
        1 / (1 + 1 / 2 + 1 / 3 + 1),
        0,
    ],
    "recency": [(1 / 2) / (11 / 6), 1 / (11 / 6), (1 / 3) / (11 / 6), 0],
    "frequency": [
        2**-0.7 / (1 + 2**-0.7 + 3**-0.7 + 4**-0.7),
        (1 + 4**-0.7) / (1 + 2**-0.7 + 3**-0.7 + 4**-0.7),
        3**-0.7 / (1 + 2**-0.7 + 3**-0.7 + 4**-0.7),
        0,
    ],
}


def batch_of(*histories: list[int]) -> Batch:
    longest = max(map(len, histories))
    padded = [[*history, *[0] * (longest - len(history))] for history in histories]
    lengths = tensor([len(history) for history in histories])
    return Batch(torch.zeros(len(histories), dtype=torch.long), tensor(padded).reshape(len(histories), -1), lengths)


def shares_of(*histories: list[int]) -> dict[str, torch.Tensor]:
    train = training_of(LOGS, items=4)
    names = ("follower", "followers", "neighbours", "own followers", "recency", "frequency")
    every = history_shares(batch_of(*histories), count_followers(train, kept=4), count_neighbours(train))
    return dict(zip(names, every, strict=True))


@pytest.mark.parametrize("source", SHARES)
def test_shares_by_hand(source: str) -> None:
    assert_close(shares_of([1, 2, 0, 1])[source][0], tensor(SHARES[source], dtype=torch.float32))


def test_neighbours_by_hand() -> None:
    near = count_neighbours(training_of(LOGS, items=4))
    # Item 1: forwards 2 twice, 3 once, 0 half; backwards half of 0 twice: 2, 1, 1/2 + 1 = 1.5, together 4.5.
    assert near.columns[1, :3].tolist() == [2, 0, 3]
    assert_close(near.counts[1, :3], tensor([2.0, 1.5, 1.0]))
    assert_close(near.total[1], tensor(4.5))
    weights, row1, row2 = 0.8 ** torch.arange(4.0), 4.5 + 5, (1 + 1 / 4) + 1 + 5
    # Item 0 is near 1 (1.5 of 9.5, newest and oldest event) and near 2 (forwards 1, backwards of two steps 1/4).
    expected = (1.5 / row1 * (weights[0] + weights[3]) + 1.25 / row2 * weights[2]) / weights.sum()
    assert_close(shares_of([1, 2, 0, 1])["neighbours"][0, 0], expected)


def test_padding_and_empty_histories_count_nothing() -> None:
    alone, padded = shares_of([1, 2, 0, 1]), shares_of([1, 2, 0, 1], [2, 3, 0, 1, 2, 1], [])
    for source, shares in padded.items():
        assert_close(shares[0], alone[source][0])
        assert not shares[2].any()


def test_shares_sum_to_at_most_one() -> None:
    for shares in shares_of([1, 2, 0, 1], [0], [3, 3, 3]).values():
        assert (shares >= 0).all()
        assert (shares.sum(dim=1) <= 1 + 1e-6).all()

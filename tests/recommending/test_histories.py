"""The history of an account, as the dataset knows it."""

import numpy as np
import pytest

from lightgc2n.data.dataset import Dataset, Domain
from lightgc2n.recommending.queries import whole_logs


def dataset(kind: str, owners: list[int], lengths: list[int], times: bool) -> Dataset:
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Dataset(
        manifest={"name": "small", "kind": kind},
        accounts=["a", "b", "c"],
        items=["x"],
        domains=(Domain("all", 0, 1),),
        offsets=offsets,
        sequence_accounts=np.array(owners, dtype=np.int32),
        events=np.zeros(offsets[-1], dtype=np.int32),
        times=np.arange(offsets[-1]) if times else None,
    )


@pytest.mark.parametrize(
    ("kind", "times", "expected"),
    [
        ("logs", True, [(0, 6), (6, 10), (0, 0)]),  # fragments in time are one log
        ("logs", False, [(2, 5), (6, 10), (0, 0)]),  # lines without an order: the longest
        ("windows", True, [(2, 5), (6, 10), (0, 0)]),
        ("windows", False, [(2, 5), (6, 10), (0, 0)]),
    ],
)
def test_whole_logs(kind: str, times: bool, expected: list[tuple[int, int]]) -> None:
    start, stop = whole_logs(dataset(kind, [0, 0, 0, 1], [2, 3, 1, 4], times))
    assert list(zip(start.tolist(), stop.tolist(), strict=True)) == expected


def test_of_equally_long_windows_the_first_counts() -> None:
    start, stop = whole_logs(dataset("windows", [2, 2, 0], [3, 3, 1], times=False))
    assert (start[2], stop[2]) == (0, 3)

"""Points and logs of a few accounts, and whether two groupings are the same."""

import numpy as np

from lightgc2n.people.sessions import Logs, Points


def points_of(*accounts: np.ndarray) -> Points:
    """The points of some accounts, padded."""
    widest = max(len(one) for one in accounts)
    vectors = np.zeros((len(accounts), widest, accounts[0].shape[1]), dtype=np.float32)
    known = np.zeros((len(accounts), widest), dtype=bool)
    for row, one in enumerate(accounts):
        vectors[row, : len(one)], known[row, : len(one)] = one, True
    return Points(vectors, known)


def logs_of(items: list[list[int]], vectors: np.ndarray, times: list[list[int]] | None = None) -> Logs:
    """Logs of some accounts, one list each; times in microseconds."""
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in items])])
    stamps = None if times is None else np.array([stamp for one in times for stamp in one], dtype=np.int64)
    flat = np.array([item for one in items for item in one], dtype=np.int32)
    return Logs(offsets.astype(np.int64), flat, stamps, vectors.astype(np.float32))


def same_groups(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two labellings join the same points, whatever they call them."""
    pairs = set(zip(first.tolist(), second.tolist(), strict=True))
    return len(pairs) == len(set(first.tolist())) == len(set(second.tolist()))

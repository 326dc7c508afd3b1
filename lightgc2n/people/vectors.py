"""Item vectors from training logs: items held by the same accounts are similar.

The weight of two items is their positive pointwise mutual information: log(observed / expected) of the number of
accounts that hold both. The vectors are the leading eigenvectors of these weights, scaled by the root of their
eigenvalues.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Ints, Longs

Matrix = npt.NDArray[np.float32]
WIDTH = 32
LONGEST = 200  # distinct items of one log that form pairs; the number of pairs grows with the square
MOST_PAIRS = 12_000_000  # of all logs; of more logs only every second, third ... is used
OVERSAMPLING, ROUNDS = 8, 4
CELLS_AT_ONCE = 200_000  # fits into the CPU cache


@dataclass(frozen=True)
class Weights:
    """A symmetric sparse matrix: its nonzero cells, row by row."""

    size: int
    row: Longs
    column: Longs
    value: Matrix

    def __matmul__(self, dense: Matrix) -> Matrix:
        product = np.zeros((self.size, dense.shape[1]), dtype=np.float32)
        step = max(1, CELLS_AT_ONCE // dense.shape[1])
        for first in range(0, len(self.row), step):
            part = slice(first, first + step)
            starts = np.flatnonzero(np.diff(self.row[part], prepend=-1))
            terms = dense[self.column[part]]
            terms *= self.value[part, None]
            product[self.row[part][starts]] += np.add.reduceat(terms, starts)
        return product


def item_vectors(account: Ints | Longs, item: Ints | Longs, items: int, width: int = WIDTH, seed: int = 0) -> Matrix:
    """Return a vector for each item, [items, width]: of length one, or zero if it occurs with no other.

    Args:
        account: of each training event.
        item: of each training event.
    """
    weights = information(*_held(account, item), items)
    vectors = leading_vectors(weights, width, np.random.default_rng(seed))
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(length > 0, length, 1.0)).astype(np.float32)


def information(account: Longs, item: Longs, items: int) -> Weights:
    """Return the positive pointwise mutual information of each pair of items.

    Args:
        account: of each distinct (account, item) pair, sorted.
    """
    account, item = _fewer(account, item)
    stop = np.searchsorted(account, account, side="right")
    later = stop - np.arange(len(item)) - 1  # number of later items of the same account, in the order of `_held`
    first = np.repeat(np.arange(len(item)), later)
    second = np.arange(len(first)) - np.repeat(np.cumsum(later) - later, later) + first + 1
    cells, together = np.unique(item[first] * items + item[second], return_counts=True)
    holders = np.bincount(item, minlength=items)
    row, column = cells // items, cells % items
    value = np.log(together * (len(np.unique(account)) / holders[row] / holders[column])).astype(np.float32)
    return _mirrored(items, row[value > 0], column[value > 0], value[value > 0])


def _fewer(account: Longs, item: Longs) -> tuple[Longs, Longs]:
    """Return the pairs of so few accounts that these form about MOST_PAIRS pairs of items at most."""
    number = np.unique(account, return_inverse=True)[1]
    held = np.bincount(number)
    every = -(-int((held * (held - 1) // 2).sum()) // MOST_PAIRS)
    if every <= 1:
        return account, item
    used = number % every == 0
    return account[used], item[used]


def _mirrored(size: int, row: Longs, column: Longs, value: Matrix) -> Weights:
    """Return the matrix with these cells above the diagonal and their mirror images."""
    rows, columns = np.concatenate([row, column]), np.concatenate([column, row])
    order = np.argsort(rows, kind="stable")
    return Weights(size, rows[order], columns[order], np.concatenate([value, value])[order])


def leading_vectors(weights: Weights, width: int, random: np.random.Generator) -> Matrix:
    """Return the eigenvectors of the largest positive eigenvalues, by subspace iteration, scaled by the root."""
    wide = min(width + OVERSAMPLING, weights.size)
    basis = random.standard_normal((weights.size, wide)).astype(np.float32)
    for _ in range(ROUNDS):
        basis = np.linalg.qr(weights @ basis)[0]
    values, rotation = np.linalg.eigh(basis.T @ (weights @ basis))
    chosen = np.argsort(-values)[:width]
    vectors = (basis @ rotation[:, chosen]) * np.sqrt(np.maximum(values[chosen], 0.0))
    return np.pad(vectors, ((0, 0), (0, width - vectors.shape[1]))).astype(np.float32)


def _held(account: Ints | Longs, item: Ints | Longs) -> tuple[Longs, Longs]:
    """Return each distinct (account, item) pair, sorted; of overlong logs only every second, third ... pair."""
    size = int(np.max(item, initial=0)) + 1
    pairs = np.unique(np.asarray(account, dtype=np.int64) * size + item)
    owner = pairs // size
    first, stop = (np.searchsorted(owner, owner, side=side) for side in ("left", "right"))
    every = -(-(stop - first) // LONGEST)
    sampled = pairs[(np.arange(len(pairs)) - first) % every == 0]
    return sampled // size, sampled % size

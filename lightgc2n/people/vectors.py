"""Vectors of items from training logs alone: items that the same accounts hold are alike.

The weight of two items is their positive pointwise mutual information: log(observed / expected) of how many accounts
hold both. The vectors are the leading eigenvectors of those weights, each scaled by the root of its eigenvalue.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Ints, Longs

Matrix = npt.NDArray[np.float32]
WIDTH = 32
LONGEST = 200  # distinct items of one log that pairs are made of; pairs grow with its square
OVERSAMPLING, ROUNDS = 8, 4
CELLS_AT_ONCE = 200_000  # few enough to stay in fast memory


@dataclass(frozen=True)
class Weights:
    """A symmetric sparse matrix: its filled cells, row by row."""

    size: int
    row: Longs
    column: Longs
    value: Matrix

    def __matmul__(self, dense: Matrix) -> Matrix:
        product = np.zeros((self.size, dense.shape[1]), dtype=np.float32)
        step = max(1, CELLS_AT_ONCE // dense.shape[1])
        for first in range(0, len(self.row), step):
            part = slice(first, first + step)
            rows, starts = np.unique(self.row[part], return_index=True)
            terms = dense[self.column[part]] * self.value[part, None]
            product[rows] += np.add.reduceat(terms, starts)
        return product


def item_vectors(account: Ints | Longs, item: Ints | Longs, items: int, width: int = WIDTH, seed: int = 0) -> Matrix:
    """A vector of length one for each item, [items, width]; of length zero for one that goes with no other.

    Args:
        account: of each training event whose it is.
        item: of each training event what it is.
    """
    weights = information(*_held(account, item), items)
    vectors = leading_vectors(weights, width, np.random.default_rng(seed))
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(length > 0, length, 1.0)).astype(np.float32)


def information(account: Longs, item: Longs, items: int) -> Weights:
    """The positive pointwise mutual information of each pair of items.

    Args:
        account: of each (account, item) that is held, in order; each pair once.
    """
    stop = np.searchsorted(account, account, side="right")
    later = stop - np.arange(len(item)) - 1  # items of the same account behind each, as `_held` orders them
    first = np.repeat(np.arange(len(item)), later)
    second = np.arange(len(first)) - np.repeat(np.cumsum(later) - later, later) + first + 1
    cells, together = np.unique(item[first] * items + item[second], return_counts=True)
    holders = np.bincount(item, minlength=items)
    row, column = cells // items, cells % items
    value = np.log(together * (len(np.unique(account)) / holders[row] / holders[column])).astype(np.float32)
    return _mirrored(items, row[value > 0], column[value > 0], value[value > 0])


def _mirrored(size: int, row: Longs, column: Longs, value: Matrix) -> Weights:
    """The cells above the diagonal and their mirror images."""
    rows, columns = np.concatenate([row, column]), np.concatenate([column, row])
    order = np.argsort(rows, kind="stable")
    return Weights(size, rows[order], columns[order], np.concatenate([value, value])[order])


def leading_vectors(weights: Weights, width: int, random: np.random.Generator) -> Matrix:
    """Eigenvectors of the largest positive eigenvalues, by subspace iteration, each scaled by the root of its value."""
    wide = min(width + OVERSAMPLING, weights.size)
    basis = random.standard_normal((weights.size, wide)).astype(np.float32)
    for _ in range(ROUNDS):
        basis = np.linalg.qr(weights @ basis)[0]
    values, rotation = np.linalg.eigh(basis.T @ (weights @ basis))
    chosen = np.argsort(-values)[:width]
    vectors = (basis @ rotation[:, chosen]) * np.sqrt(np.maximum(values[chosen], 0.0))
    return np.pad(vectors, ((0, 0), (0, width - vectors.shape[1]))).astype(np.float32)


def _held(account: Ints | Longs, item: Ints | Longs) -> tuple[Longs, Longs]:
    """Each pair of an account and an item it holds once, account by account; of too many every second, third ..."""
    size = int(np.max(item, initial=0)) + 1
    pairs = np.unique(np.asarray(account, dtype=np.int64) * size + item)
    owner = pairs // size
    first, stop = (np.searchsorted(owner, owner, side=side) for side in ("left", "right"))
    every = -(-(stop - first) // LONGEST)
    kept = pairs[(np.arange(len(pairs)) - first) % every == 0]
    return kept // size, kept % size

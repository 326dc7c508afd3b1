"""The sequential graph (Eq. 2), built from training sequences only.

Edges are unique: repeated events and transitions count once. Rows receive, columns send: an item receives from the item
before it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightgc2n.data.splits import Training

Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Edges:
    """A CSR matrix: row r has columns[offsets[r]:offsets[r + 1]], each with a weight."""

    offsets: Longs
    columns: Longs
    weights: Floats
    width: int

    def transposed(self) -> "Edges":
        """Return the transposed matrix."""
        rows = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
        order, offsets = grouped(self.columns, self.width)
        return Edges(offsets, rows[order], self.weights[order], len(self.offsets) - 1)


def grouped(numbers: Longs, below: int) -> tuple[Longs, Longs]:
    """Return the places of each number from 0 to `below` - 1 in ascending order, and where each number's begin."""
    # Sorting number and place as one key is faster than a stable argsort.
    order = np.sort(numbers * len(numbers) + np.arange(len(numbers))) % max(1, len(numbers))
    return order, np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=below))])


@dataclass(frozen=True)
class Rows:
    """Every `step`-th row of a table, from row `first` on."""

    first: int
    step: int
    height: int  # rows of the whole table


@dataclass(frozen=True)
class SequentialGraph:
    """The blocks of M, normalised by degree: account-item edges and item-item transitions."""

    items_of_account: Edges  # M_I transposed: accounts receive from their items
    accounts_of_item: Edges  # M_I: items receive from the accounts that hold them
    items_before_item: Edges  # M_S: an item receives from its predecessors
    degrees: Longs | None = None  # graph of one worker: how many accounts of all workers hold each item
    rows: "Rows | None" = None  # graph of one worker: the rows of its accounts among those of all workers

    @property
    def item_degrees(self) -> Longs:
        """The number of accounts that hold each item."""
        return np.diff(self.accounts_of_item.offsets) if self.degrees is None else self.degrees

    @property
    def accounts(self) -> int:
        return len(self.items_of_account.offsets) - 1

    def arrays(self) -> dict[str, Longs]:
        """The arrays that define the graph, for saving."""
        held, follows = self.items_of_account, self.items_before_item
        return {
            "held_offsets": held.offsets,
            "held_items": held.columns,
            "step_offsets": follows.offsets,
            "step_items": follows.columns,
        }

    @property
    def items(self) -> int:
        return self.items_of_account.width


def build_graph(train: Training, events: str = "all") -> SequentialGraph:
    """Build the graph of training events.

    Args:
        events: "all" of training, its targets included, or only its "inputs": the last event of a sequence is only a
            target, unless the source stores targets separately.
    """
    held, follows = unique_pairs(train, events)
    return graph_of_pairs(held, follows, train.accounts, train.items)


def unique_pairs(train: Training, events: str) -> tuple[Longs, Longs]:
    """Return the pairs of account and item, and of item and predecessor, each pair as row * items + column."""
    lengths = np.diff(train.offsets)
    shown = np.ones(len(train.events), dtype=bool)
    if events == "inputs" and train.domain_targets is None:
        shown[train.offsets[1:][lengths > 0] - 1] = False
    sequence = np.repeat(np.arange(train.sequences), lengths)
    owner = train.sequence_accounts.astype(np.int64)[sequence]
    step = np.flatnonzero(shown[1:] & (sequence[1:] == sequence[:-1]))
    before, after = train.events[step], train.events[step + 1].astype(np.int64)
    return np.unique(owner[shown] * train.items + train.events[shown]), np.unique(after * train.items + before)


def graph_of_pairs(
    held: Longs, follows: Longs, accounts: int, items: int, degrees: Longs | None = None, rows: Rows | None = None
) -> SequentialGraph:
    """Build the graph from `unique_pairs`; `degrees` and `rows` are given for the accounts of one worker."""
    edges = _edges(held, accounts, items, degrees)  # Eq. 2, M_I
    return SequentialGraph(edges, edges.transposed(), _edges(follows, items, items), degrees, rows)  # Eq. 2, M_S


def graph_from(arrays: Mapping[str, Longs]) -> SequentialGraph:
    """Rebuild the graph from `SequentialGraph.arrays`."""
    items = len(arrays["step_offsets"]) - 1
    held = _weighted(arrays["held_offsets"], arrays["held_items"], items)
    return SequentialGraph(held, held.transposed(), _weighted(arrays["step_offsets"], arrays["step_items"], items))


def _edges(pairs: Longs, height: int, width: int, degrees: Longs | None = None) -> Edges:
    """Return unique edges, weighted 1 / sqrt(row degree x column degree): the "Laplace matrix" of Algorithm 1."""
    return _weighted(np.searchsorted(pairs // width, np.arange(height + 1)), pairs % width, width, degrees)


def _weighted(offsets: Longs, columns: Longs, width: int, degrees: Longs | None = None) -> Edges:
    degrees = np.bincount(columns, minlength=width) if degrees is None else degrees
    products = np.repeat(np.diff(offsets), np.diff(offsets)) * degrees[columns]
    return Edges(offsets, columns, (1 / np.sqrt(products)).astype(np.float32), width)

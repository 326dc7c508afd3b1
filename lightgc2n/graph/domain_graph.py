"""The graph of DA-GCN and TiDA-GCN, and the time intervals between items, both built from training inputs only.

Nodes are all items, then all accounts. Rows receive, columns send. Events that are only targets are left out.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightgc2n.data.batches import MICROSECONDS_A_DAY
from lightgc2n.data.dataset import Ints
from lightgc2n.data.splits import Training
from lightgc2n.graph.sequential import Edges, Longs

DIRECTIONS = ("successor", "predecessor", "both")


@dataclass(frozen=True)
class Inputs:
    """The training events that can be inputs of a model, by sequence and domain."""

    owner: Longs
    events: Ints
    times: Longs | None
    follows: npt.NDArray[np.bool_]  # whether the previous event is of the same sequence and domain

    @property
    def steps(self) -> tuple[Ints, Ints]:
        """Return the items before and after each transition within a domain."""
        after = np.flatnonzero(self.follows)
        return self.events[after - 1], self.events[after]


def training_inputs(train: Training) -> Inputs:
    """Return all events but the last of each sequence, which is only a target; all if targets are stored separately."""
    sequence = np.repeat(np.arange(train.sequences), np.diff(train.offsets))
    shown = np.ones(len(train.events), dtype=bool)
    if train.domain_targets is None:
        shown[train.offsets[1:][np.diff(train.offsets) > 0] - 1] = False
    stops = np.array([domain.stop for domain in train.domains])
    number = np.searchsorted(stops, train.events, side="right")
    place = np.flatnonzero(shown)
    place = place[np.lexsort((place, number[place], sequence[place]))]
    row = sequence[place] * len(stops) + number[place]
    return Inputs(
        owner=train.sequence_accounts[sequence[place]].astype(np.int64),
        events=train.events[place],
        times=None if train.times is None else train.times[place],
        follows=np.diff(row, prepend=-1) == 0,
    )


def build_domain_graph(train: Training, direction: str, released_loops: bool = False) -> Edges:
    """Return edges between accounts and items, between consecutive items of a domain, and self-loops; weights are 1.

    Args:
        direction: whether an item receives from its successors, its predecessors, or both.
        released_loops: add self-loops only for items with a successor and accounts with items, as in the released code.
    """
    inputs, nodes = training_inputs(train), train.items + train.accounts
    before, after = (end.astype(np.int64) for end in inputs.steps)
    account, item = train.items + inputs.owner, inputs.events.astype(np.int64)
    loops = np.concatenate([before, account]) if released_loops else np.arange(nodes)
    pairs = [(account, item), (item, account), (loops, loops)]
    pairs += [(before, after)] * (direction != "predecessor") + [(after, before)] * (direction != "successor")
    rows, columns = (np.concatenate(ends) for ends in zip(*pairs, strict=True))
    keys = np.unique(rows * nodes + columns)
    offsets = np.searchsorted(keys, np.arange(nodes + 1) * nodes)
    return Edges(offsets, keys % nodes, np.ones(len(keys), dtype=np.float32), nodes)


def build_intervals(train: Training, buckets: int) -> Edges | None:
    """Return for each item the distribution of days until the next item of the domain; None without times."""
    inputs = training_inputs(train)
    if inputs.times is None:
        return None
    after = np.flatnonzero(inputs.follows)
    days = np.ceil(np.abs(inputs.times[after] - inputs.times[after - 1]) / MICROSECONDS_A_DAY).astype(np.int64)
    item, bucket = inputs.events[after - 1].astype(np.int64), np.minimum(days, buckets - 1)
    keys, counts = np.unique(item * buckets + bucket, return_counts=True)
    total = np.bincount(keys // buckets, weights=counts, minlength=train.items)
    offsets = np.searchsorted(keys, np.arange(train.items + 1) * buckets)
    return Edges(offsets, keys % buckets, (counts / total[keys // buckets]).astype(np.float32), buckets)

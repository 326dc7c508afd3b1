"""The part of a split that one of several workers holds: account a belongs to worker a modulo the number of workers.

Within a part the accounts are numbered from 0; items keep their numbers. A batch of all workers is drawn as on one
machine: every worker knows the lengths of all sequences, and reads its own sequences of the batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from lightgc2n.data.batches import TrainingBatch, training_batch
from lightgc2n.data.dataset import Domain, Ints, Longs
from lightgc2n.data.splits import UNSEEN, Queries, Split, Training, ranges


@dataclass(frozen=True)
class AccountPart:
    """The training sequences and validation queries of one worker, and what it knows of all workers."""

    worker: int
    workers: int
    accounts: int  # of all workers
    train: Training  # of this worker's accounts
    validation: Queries  # of this worker's accounts
    catalogues: tuple[Domain, ...]
    item_counts: Longs  # of the training events of all workers
    lengths: Ints  # events of each training sequence of all workers
    own: Longs  # the place of each sequence of `train` among them

    def batches(
        self, rows_per_batch: int, order: np.random.Generator, device: torch.device | str = "cpu"
    ) -> Iterator[TrainingBatch]:
        """Yield this worker's part of each batch of all workers; a part may be empty.

        Shares of targets are those in the whole batch; items and their shares are those of the part.
        """
        rows = order.permutation(np.flatnonzero(self.lengths >= 2))
        number = np.full(len(self.lengths), -1, dtype=np.int32)  # of each sequence in `train`
        number[self.own] = np.arange(len(self.own))
        for first in range(0, len(rows), rows_per_batch):
            yield self._part_of_batch(rows[first : first + rows_per_batch], number).to(device)

    def _part_of_batch(self, rows: Longs, number: Ints) -> TrainingBatch:
        is_own = number[rows] >= 0
        part = training_batch(self.train, number[rows[is_own]].astype(np.int64))
        events = self.lengths[rows].astype(np.int64) - 1
        targets = events if self.train.targets == "all" else np.ones_like(events)
        stop = np.cumsum(targets)
        places, _ = ranges((stop - targets)[is_own], stop[is_own])
        whole = np.array([stop[-1], events.sum()])
        return replace(
            part,
            share=torch.full_like(part.share, 1 / max(1, int(whole[0]))),
            places=torch.from_numpy(places),
            whole=torch.from_numpy(whole),
        )


def part_of_split(split: Split, worker: int, workers: int) -> AccountPart:
    """Return the part of a worker; it holds no test query."""
    train = split.train
    own = np.flatnonzero(train.sequence_accounts % workers == worker)
    places, offsets = ranges(train.offsets[own], train.offsets[own + 1])
    part = replace(
        train,
        accounts=len(range(worker, train.accounts, workers)),
        sequence_accounts=(train.sequence_accounts[own] // workers).astype(np.int32),
        offsets=offsets,
        events=train.events[places],
        times=None,
        domain_targets=None if train.domain_targets is None else train.domain_targets[own],
    )
    queries = split.validation.select(np.flatnonzero(split.validation.owner % workers == worker))
    numbered = np.where(queries.account == UNSEEN, UNSEEN, queries.account // workers).astype(np.int32)
    return AccountPart(
        worker=worker,
        workers=workers,
        accounts=train.accounts,
        train=part,
        validation=with_own_events(replace(queries, account=numbered, times=None)),
        catalogues=split.catalogues,
        item_counts=train.popularity,
        lengths=np.diff(train.offsets).astype(np.int32),
        own=own,
    )


def with_own_events(queries: Queries) -> Queries:
    """Return the queries with no other event than those they show and their targets."""
    places, offsets = ranges(queries.start, queries.stop)
    kept = np.concatenate([places, queries.target_event])
    return replace(
        queries,
        start=offsets[:-1],
        stop=offsets[1:],
        target_event=len(places) + np.arange(len(queries)),
        events=queries.events[kept],
        times=None if queries.times is None else queries.times[kept],
    )

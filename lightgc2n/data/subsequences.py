"""Exact, vectorised test whether a run of events is contained in another."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Ints, Longs
from lightgc2n.data.split_types import Queries, Split, ranges

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Rows:
    """Row r holds the events start[r] to stop[r], oldest first; in a test row the last is the target."""

    account: Longs
    start: Longs
    stop: Longs
    events: Ints

    def __len__(self) -> int:
        return len(self.account)

    @property
    def lengths(self) -> Longs:
        return self.stop - self.start

    def select(self, rows: npt.NDArray[Any]) -> "Rows":
        return Rows(self.account[rows], self.start[rows], self.stop[rows], self.events)

    def tails(self, length: int) -> "Rows":
        """Return the last `length` events of each row, or all if it has fewer."""
        return Rows(self.account, np.maximum(self.start, self.stop - length), self.stop, self.events)


def joined(*parts: Rows) -> Rows:
    """Concatenate rows, keeping only the events that they use."""
    account = np.concatenate([part.account for part in parts])
    events = np.concatenate([part.events[ranges(part.start, part.stop)[0]] for part in parts])
    bounds = np.append(0, np.cumsum(np.concatenate([part.lengths for part in parts])))
    return Rows(account, bounds[:-1], bounds[1:], events)


def query_rows(queries: Queries) -> Rows:
    """Return the input of each query followed by its target."""
    owner = queries.owner.astype(np.int64)
    if (queries.target_event == queries.stop).all():
        return Rows(owner, queries.start, queries.target_event + 1, queries.events)
    places, offsets = ranges(queries.start, queries.stop + 1)
    places[offsets[1:] - 1] = queries.target_event
    return Rows(owner, offsets[:-1], offsets[1:], queries.events[places])


def training_rows(split: Split) -> Rows:
    """Return the training sequences."""
    train = split.train
    return Rows(train.sequence_accounts.astype(np.int64), train.offsets[:-1], train.offsets[1:], train.events)


def contained_in(queries: Rows, training: Rows, accounts: int, items: int) -> tuple[Bools, Bools]:
    """Return whether each row is contained in a training row of its account, and whether it equals one.

    Each run of events gets an exact integer name. The name of a run of 2k events is derived from its halves, and two
    overlapping runs of k events name any run of k to 2k events. Each length therefore costs one look-up.
    """
    inside, whole = np.zeros(len(queries), dtype=bool), np.zeros(len(queries), dtype=bool)
    longest = np.zeros(accounts, dtype=np.int64)
    np.maximum.at(longest, training.account, training.lengths)
    possible = np.flatnonzero((queries.lengths > 0) & (queries.lengths <= longest[queries.account]))
    wanted = np.zeros(accounts, dtype=bool)
    wanted[queries.account[possible]] = True
    hosts = training.select(np.flatnonzero(wanted[training.account]))
    rows = joined(hosts, queries.select(possible))
    host, lengths = np.arange(len(rows)) < len(hosts), rows.lengths
    # Names at the first level include the account, so that runs of different accounts never match.
    name = _names(np.repeat(rows.account, lengths) * items + rows.events)
    half = 1
    for length in np.unique(lengths[~host]).tolist():
        while 2 * half < length:
            name = _pairs(name, np.append(name[half:], np.zeros(half, dtype=np.int64)))
            half *= 2
        mine = np.flatnonzero(~host & (lengths == length))
        wanted[:] = False
        wanted[rows.account[mine]] = True
        holds = np.flatnonzero(host & (lengths >= length) & wanted[rows.account])
        seeks = _Runs(name, length - half, rows.start[mine])
        inside[possible[mine - len(hosts)]] = seeks.among(ranges(rows.start[holds], rows.stop[holds] - length + 1)[0])
        whole[possible[mine - len(hosts)]] = seeks.among(rows.start[holds[lengths[holds] == length]])
    return inside, whole


@dataclass(frozen=True)
class _Runs:
    """Runs of equal length that begin at `starts`, each named by two shorter runs, the second `shift` events later."""

    name: Longs
    shift: int
    starts: Longs

    def among(self, places: Longs) -> Bools:
        """Return whether each run also begins at one of the places."""
        begins = np.zeros(int(self.name.max(initial=0)) + 1, dtype=bool)
        begins[self.name[self.starts]] = True
        places = places[begins[self.name[places]]]  # filter first: sorting the few remaining places is cheap
        return np.isin(self._full(self.starts), self._full(places))

    def _full(self, places: Longs) -> Longs:
        return self.name[places] * len(self.name) + self.name[places + self.shift]


def _names(keys: Longs) -> Longs:
    """Return small integers for keys, equal for equal keys."""
    return np.unique(keys, return_inverse=True)[1].astype(np.int64)


def _pairs(first: Longs, second: Longs) -> Longs:
    return _names(first * len(first) + second)  # names are below the number of events

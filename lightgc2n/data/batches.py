"""Queries and training sequences as padded tensors, some rows at a time."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightgc2n.data.dataset import MICROSECONDS, Domain, Ints, Longs
from lightgc2n.data.splits import Queries, Training, ranges

PADDED_CELLS = 4_000_000
MICROSECONDS_A_DAY = 86_400 * MICROSECONDS


@dataclass(frozen=True)
class Batch:
    """Histories of B accounts, oldest event first, padded on the right.

    Padding holds item 0 and is told by `known`, so that every entry is a valid index.
    """

    account: Int[Tensor, "B"]  # -1: an account that training does not have
    history: Int[Tensor, "B T"]
    length: Int[Tensor, "B"]
    ages: Float[Tensor, "B T"] | None = None  # days from each event to the question, where times are known
    moment: Float[Tensor, "B"] | None = None  # the day of the question since 1970; none: after everything

    @property
    def known(self) -> Bool[Tensor, "B T"]:
        """Which entries of the history are events, not padding."""
        return torch.arange(self.history.shape[1], device=self.history.device) < self.length[:, None]

    @property
    def last(self) -> Int[Tensor, "B"]:
        """The newest item of each history."""
        return self.history.gather(1, (self.length - 1).clamp(min=0)[:, None]).squeeze(1)


@dataclass(frozen=True)
class Asked:
    """A batch and what came next in truth."""

    batch: Batch
    target: Int[Tensor, "B"]
    among: Domain | None = None  # whose items the target is ranked among; none: all items


def query_batches(
    queries: Queries, rows_per_batch: int, device: torch.device | str = "cpu", among: Domain | None = None
) -> Iterator[Asked]:
    """All queries in order; the last batch may be smaller, and counts like any other."""
    for first, last in _tiles(queries.stop - queries.start, rows_per_batch):
        part = queries.select(np.arange(first, last))
        yield Asked(make_batch(part, device), torch.as_tensor(part.target.astype(np.int64), device=device), among)


def _tiles(lengths: Longs, rows: int) -> Iterator[tuple[int, int]]:
    """Runs of at most `rows` rows that stay small when padded: one endless log must not widen many short ones."""
    first = 0
    while first < len(lengths):
        widest = np.maximum.accumulate(np.maximum(lengths[first : first + rows], 1))
        fits = int((widest * np.arange(1, len(widest) + 1) <= PADDED_CELLS).sum())
        yield first, first + max(1, fits)
        first += max(1, fits)


def make_batch(queries: Queries, device: torch.device | str = "cpu") -> Batch:
    """The histories of all given queries in one batch."""
    return Batch(
        account=torch.as_tensor(queries.account.astype(np.int64), device=device),
        history=torch.as_tensor(_padded(queries.events, queries.start, queries.stop), device=device),
        length=torch.as_tensor(queries.stop - queries.start, device=device),
        ages=_ages(queries, device),
        moment=_moment(queries, device),
    )


def _ages(queries: Queries, device: torch.device | str) -> Float[Tensor, "B T"] | None:
    """A question is asked at the time of its target: when somebody came to see what to watch next."""
    now = _asked_at(queries)
    if now is None or queries.times is None:
        return None
    days = (now[:, None] - _padded(queries.times, queries.start, queries.stop)) / MICROSECONDS_A_DAY
    known = np.arange(days.shape[1]) < (queries.stop - queries.start)[:, None]
    return torch.as_tensor((days * known).astype(np.float32), device=device)


def _moment(queries: Queries, device: torch.device | str) -> Float[Tensor, "B"] | None:
    now = _asked_at(queries)
    return None if now is None else torch.as_tensor(days_of(now), device=device)


def _asked_at(queries: Queries) -> Longs | None:
    if queries.times is None or not len(queries) or queries.target_event.max() >= len(queries.times):
        return None
    return queries.times[queries.target_event]


def days_of(times: Longs) -> npt.NDArray[np.float32]:
    """Times as days since 1970, rounded to some minutes."""
    return (times / MICROSECONDS_A_DAY).astype(np.float32)


@dataclass(frozen=True)
class TrainingBatch:
    """Training sequences of B accounts: at every place the item, what came next, and whether that is a target.

    A sequence of n events is one row that holds all its n - 1 examples; no prefix is ever copied. The targets stand in
    `at` once more, as one list, and the items of the logs in `items`, so that a step need not look for them.
    """

    account: Int[Tensor, "B"]
    log: Int[Tensor, "B T"]
    next_item: Int[Tensor, "B T"]
    seen: Bool[Tensor, "B T"]  # which places hold an event, not padding
    counts: Bool[Tensor, "B T"]  # which of them are asked
    at: Int[Tensor, "P"]  # the places that are asked, as row * T + place
    share: Float[Tensor, "P"]  # how much each of them counts: all alike, and padding nothing
    items: Int[Tensor, "I"]  # the distinct items of the logs
    item_share: Float[Tensor, "I"]  # which share of the events each of them is
    given: Int[Tensor, "B D"] | None = None  # the next item of each domain behind the log, where the source gives it
    gaps: Float[Tensor, "B T"] | None = None  # days from each event to the next one, where times are known
    moments: Float[Tensor, "B T"] | None = None  # the day of each next event since 1970, where times are known

    @classmethod
    def of_rows(
        cls,
        account: Int[Tensor, "B"],
        log: Int[Tensor, "B T"],
        next_item: Int[Tensor, "B T"],
        seen: Bool[Tensor, "B T"],
        counts: Bool[Tensor, "B T"],
    ) -> "TrainingBatch":
        """A batch from its rows; targets and items are looked for here."""
        at = counts.flatten().nonzero()[:, 0]
        items, times = torch.unique(log[seen], return_counts=True)
        share = torch.full(at.shape, 1 / max(1, len(at)), device=at.device)
        return cls(account, log, next_item, seen, counts, at, share, items, times / times.sum().clamp(min=1))

    @property
    def target(self) -> Int[Tensor, "P"]:
        """What came next at the places that are asked."""
        return self.next_item.flatten()[self.at]

    @property
    def row(self) -> Int[Tensor, "P"]:
        """The row of each place that is asked."""
        return self.at // self.log.shape[1]

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    def to(self, device: torch.device | str) -> "TrainingBatch":
        """The same batch on another device."""
        return replace(self, **{name: tensor.to(device, non_blocking=True) for name, tensor in self.tensors().items()})


@dataclass(frozen=True)
class Sizes:
    """The least sizes of a batch: what is smaller is filled up with padding that counts for nothing.

    What is larger goes up to a multiple of `grain`, so that few sizes ever occur.
    """

    rows: int = 0
    places: int = 1
    targets: int = 0
    items: int = 0
    grain: int = 1

    def fill(self, values: npt.NDArray[Any], least: int) -> Tensor:
        """The values, and zeros behind them."""
        size = least if len(values) <= least else -(-len(values) // self.grain) * self.grain
        return torch.from_numpy(np.concatenate([values, np.zeros(size - len(values), dtype=values.dtype)]))


EXACT = Sizes()


def sizes_of(train: Training, rows_per_batch: int, grain: int = 256) -> Sizes:
    """Sizes that nearly every batch fits: those of one pass over the training sequences, rounded up."""
    most = dict.fromkeys(("rows", "places", "targets", "items"), 1)
    for batch in training_batches(train, rows_per_batch, np.random.default_rng(0)):
        found = {"rows": len(batch.account), "targets": len(batch.at), "items": len(batch.items)}
        most = {name: max(value, found.get(name, batch.log.shape[1])) for name, value in most.items()}
    rounded = {name: -(-most[name] // grain) * grain for name in ("targets", "items")}
    return Sizes(rows=most["rows"], places=most["places"], grain=grain, **rounded)


def training_batches(
    train: Training,
    rows_per_batch: int,
    order: np.random.Generator | None = None,
    device: torch.device | str = "cpu",
    sizes: Sizes = EXACT,
) -> Iterator[TrainingBatch]:
    """All training sequences of two events or more, in a random order if one is given."""
    rows = np.flatnonzero(np.diff(train.offsets) >= 2)
    if order is not None:
        rows = order.permutation(rows)
    for first in range(0, len(rows), rows_per_batch):
        yield _training_batch(train, rows[first : first + rows_per_batch], sizes).to(device)


def _training_batch(train: Training, rows: Longs, sizes: Sizes) -> TrainingBatch:
    start, stop = train.offsets[rows], train.offsets[rows + 1]
    log = _padded(train.events, start, stop - 1, sizes)
    place, length = np.arange(log.shape[1]), np.zeros((len(log), 1), dtype=np.int64)
    length[: len(rows), 0] = stop - start - 1
    seen = place < length
    counts = seen if train.targets == "all" else seen & (place == length - 1)
    at = np.flatnonzero(counts)
    items, times = np.unique(log[seen], return_counts=True)
    share = np.full(len(at), 1 / max(1, len(at)), dtype=np.float32)
    item_share = (times / max(1, times.sum())).astype(np.float32)
    return TrainingBatch(
        account=sizes.fill(train.sequence_accounts[rows].astype(np.int64), sizes.rows),
        log=torch.from_numpy(log),
        next_item=torch.from_numpy(_padded(train.events, start + 1, stop, sizes)),
        seen=torch.from_numpy(seen),
        counts=torch.from_numpy(counts),
        at=sizes.fill(at, sizes.targets),
        share=sizes.fill(share, sizes.targets),
        items=sizes.fill(items.astype(np.int64), sizes.items),
        item_share=sizes.fill(item_share, sizes.items),
        given=None if train.given is None else torch.from_numpy(train.given[rows].astype(np.int64)),
        gaps=None if train.times is None else _gaps(train.times, start, stop, sizes),
        moments=None
        if train.times is None
        else torch.from_numpy(days_of(_padded(train.times, start + 1, stop, sizes))),
    )


def _gaps(times: Longs, start: Longs, stop: Longs, sizes: Sizes) -> Float[Tensor, "B T"]:
    before, after = (_padded(times, first, last, sizes) for first, last in ((start, stop - 1), (start + 1, stop)))
    return torch.from_numpy(((after - before) / MICROSECONDS_A_DAY).astype(np.float32))


def _padded(events: Ints | Longs, start: Longs, stop: Longs, sizes: Sizes = EXACT) -> Longs:
    """The events start[b] to stop[b] as row b, filled up with item 0."""
    length = stop - start
    places, offsets = ranges(start, stop)
    shape = max(sizes.rows, len(start)), max(sizes.places, int(length.max(initial=0)))
    table = np.zeros(shape, dtype=np.int64)
    row = np.repeat(np.arange(len(start)), length)
    table[row, np.arange(len(places)) - offsets[row]] = events[places]
    return table

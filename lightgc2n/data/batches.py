"""Queries and training sequences as batches of padded tensors, cut to a bounded length or packed without padding.

Shapes: B logs or queries, T longest log, P events, I queries, W events read, C any width.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightgc2n.data.dataset import MICROSECONDS, Domain, Ints, Longs
from lightgc2n.data.splits import UNSEEN, Queries, Training, ranges

PADDED_CELLS = 4_000_000
MICROSECONDS_A_DAY = 86_400 * MICROSECONDS


@dataclass(frozen=True)
class Batch:
    """Histories of B accounts, oldest event first, padded on the right.

    Padding holds item 0, so that every entry is a valid index; `known` masks it out.
    """

    account: Int[Tensor, "B"]  # -1: an account without training events
    history: Int[Tensor, "B T"]
    length: Int[Tensor, "B"]
    ages: Float[Tensor, "B T"] | None = None  # days from each event to the query, if the data has times
    moment: Float[Tensor, "B"] | None = None  # the time of the query in days since 1970; None: after all events

    @property
    def without_account(self) -> "Batch":
        """The same histories, as those of accounts without training events."""
        return replace(self, account=torch.full_like(self.account, UNSEEN))

    @property
    def known(self) -> Bool[Tensor, "B T"]:
        """Which entries of the history are events, not padding."""
        return torch.arange(self.history.shape[1], device=self.history.device) < self.length[:, None]

    @property
    def last(self) -> Int[Tensor, "B"]:
        """The newest item of each history."""
        return self.history.gather(1, (self.length - 1).clamp(min=0)[:, None]).squeeze(1)


@dataclass(frozen=True)
class LabelledBatch:
    """A batch of queries and the target of each."""

    batch: Batch
    target: Int[Tensor, "B"]
    among: Domain | None = None  # the target is ranked among this domain's items; None: among all items


def query_batches(
    queries: Queries, rows_per_batch: int, device: torch.device | str = "cpu", among: Domain | None = None
) -> Iterator[LabelledBatch]:
    """Yield all queries in order; the last batch may be smaller."""
    for first, last in _tiles(queries.stop - queries.start, rows_per_batch):
        part = queries.select(np.arange(first, last))
        target = torch.as_tensor(part.target.astype(np.int64), device=device)
        yield LabelledBatch(make_batch(part, device), target, among)


def _tiles(lengths: Longs, rows: int) -> Iterator[tuple[int, int]]:
    """Yield row ranges of at most `rows` rows and `PADDED_CELLS` cells: one long log must not pad many short ones."""
    first = 0
    while first < len(lengths):
        widest = np.maximum.accumulate(np.maximum(lengths[first : first + rows], 1))
        fits = int((widest * np.arange(1, len(widest) + 1) <= PADDED_CELLS).sum())
        yield first, first + max(1, fits)
        first += max(1, fits)


def make_batch(queries: Queries, device: torch.device | str = "cpu") -> Batch:
    """Return one batch that holds all given queries."""
    return Batch(
        account=torch.as_tensor(queries.account.astype(np.int64), device=device),
        history=torch.as_tensor(_padded(queries.events, queries.start, queries.stop), device=device),
        length=torch.as_tensor(queries.stop - queries.start, device=device),
        ages=_ages(queries, device),
        moment=_moment(queries, device),
    )


def _ages(queries: Queries, device: torch.device | str) -> Float[Tensor, "B T"] | None:
    """Return the age of each event at the time of the query, which is the time of its target."""
    now = _query_times(queries)
    if now is None or queries.times is None:
        return None
    days = (now[:, None] - _padded(queries.times, queries.start, queries.stop)) / MICROSECONDS_A_DAY
    known = np.arange(days.shape[1]) < (queries.stop - queries.start)[:, None]
    return torch.as_tensor((days * known).astype(np.float32), device=device)


def _moment(queries: Queries, device: torch.device | str) -> Float[Tensor, "B"] | None:
    now = _query_times(queries)
    return None if now is None else torch.as_tensor(days_of(now), device=device)


def _query_times(queries: Queries) -> Longs | None:
    if queries.times is None or not len(queries) or queries.target_event.max() >= len(queries.times):
        return None
    return queries.times[queries.target_event]


def days_of(times: Longs) -> npt.NDArray[np.float32]:
    """Return times as days since 1970; float32 rounds them to a few minutes."""
    return (times / MICROSECONDS_A_DAY).astype(np.float32)


@dataclass(frozen=True)
class TrainingBatch:
    """Training sequences of B accounts, with the next item at every position.

    A sequence of n events is one row with n - 1 training examples; prefixes are not copied. `at` lists the positions of
    the targets and `items` the distinct items, so that a training step need not compute them.
    """

    account: Int[Tensor, "B"]
    log: Int[Tensor, "B T"]
    next_item: Int[Tensor, "B T"]
    seen: Bool[Tensor, "B T"]  # true at events, false at padding
    counts: Bool[Tensor, "B T"]  # true at positions whose next item is a target
    at: Int[Tensor, "P"]  # flat positions of the targets: row * T + position
    share: Float[Tensor, "P"]  # weight of each target: equal for all, 0 for padding
    items: Int[Tensor, "I"]  # the distinct items of the logs
    item_share: Float[Tensor, "I"]  # each item's share of the events
    domain_targets: Int[Tensor, "B D"] | None = None  # the next item of each domain, if the source stores it separately
    gaps: Float[Tensor, "B T"] | None = None  # days from each event to the next one, if the data has times
    moments: Float[Tensor, "B T"] | None = None  # the time of each next event in days since 1970, if the data has times
    places: Int[Tensor, "P"] | None = None  # of a worker's part of a batch: each target among those of the whole batch
    whole: Int[Tensor, "2"] | None = None  # of a worker's part of a batch: targets and events of the whole batch

    @classmethod
    def of_rows(
        cls,
        account: Int[Tensor, "B"],
        log: Int[Tensor, "B T"],
        next_item: Int[Tensor, "B T"],
        seen: Bool[Tensor, "B T"],
        counts: Bool[Tensor, "B T"],
    ) -> "TrainingBatch":
        """Make a batch from its rows; compute the targets and the distinct items."""
        at = counts.flatten().nonzero()[:, 0]
        items, times = torch.unique(log[seen], return_counts=True)
        share = torch.full(at.shape, 1 / max(1, len(at)), device=at.device)
        return cls(account, log, next_item, seen, counts, at, share, items, times / times.sum().clamp(min=1))

    @property
    def target(self) -> Int[Tensor, "P"]:
        """The next item at each target position."""
        return self.next_item.flatten()[self.at]

    @property
    def row(self) -> Int[Tensor, "P"]:
        """The row of each target position."""
        return self.at // self.log.shape[1]

    @property
    def events(self) -> Int[Tensor, ""]:
        """The number of events, in the whole batch if this is a worker's part of one."""
        return self.seen.sum() if self.whole is None else self.whole[1]

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors by name."""
        by_name = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: tensor for name, tensor in by_name.items() if tensor is not None}

    def to(self, device: torch.device | str) -> "TrainingBatch":
        """Return the same batch on another device."""
        return replace(self, **{name: tensor.to(device, non_blocking=True) for name, tensor in self.tensors().items()})


@dataclass(frozen=True)
class Sizes:
    """The minimal sizes of a batch; smaller batches are padded with entries of weight 0.

    Larger sizes are rounded up to a multiple of `grain`, so that few different shapes occur.
    """

    rows: int = 0
    places: int = 1
    targets: int = 0
    items: int = 0
    grain: int = 1

    def fill(self, values: npt.NDArray[Any], least: int) -> Tensor:
        """Append zeros to the values up to the padded size."""
        size = least if len(values) <= least else -(-len(values) // self.grain) * self.grain
        return torch.from_numpy(np.concatenate([values, np.zeros(size - len(values), dtype=values.dtype)]))


EXACT = Sizes()


def sizes_of(train: Training, rows_per_batch: int, grain: int = 256) -> Sizes:
    """Return sizes that nearly every batch fits into: the maxima of one pass over the training data, rounded up."""
    most = dict.fromkeys(("rows", "places", "targets", "items"), 1)
    for batch in training_batches(train, rows_per_batch, np.random.default_rng(0)):
        sizes = {"rows": len(batch.account), "targets": len(batch.at), "items": len(batch.items)}
        most = {name: max(value, sizes.get(name, batch.log.shape[1])) for name, value in most.items()}
    rounded = {name: -(-most[name] // grain) * grain for name in ("targets", "items")}
    return Sizes(rows=most["rows"], places=most["places"], grain=grain, **rounded)


def training_batches(
    train: Training,
    rows_per_batch: int,
    order: np.random.Generator | None = None,
    device: torch.device | str = "cpu",
    sizes: Sizes = EXACT,
) -> Iterator[TrainingBatch]:
    """Yield all training sequences of two or more events, shuffled if `order` is given."""
    rows = np.flatnonzero(np.diff(train.offsets) >= 2)
    if order is not None:
        rows = order.permutation(rows)
    for first in range(0, len(rows), rows_per_batch):
        yield training_batch(train, rows[first : first + rows_per_batch], sizes).to(device)


def training_batch(train: Training, rows: Longs, sizes: Sizes = EXACT) -> TrainingBatch:
    """Return one batch that holds the given training sequences, each of two or more events."""
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
        domain_targets=None
        if train.domain_targets is None
        else torch.from_numpy(train.domain_targets[rows].astype(np.int64)),
        gaps=None if train.times is None else _gaps(train.times, start, stop, sizes),
        moments=None
        if train.times is None
        else torch.from_numpy(days_of(_padded(train.times, start + 1, stop, sizes))),
    )


def _gaps(times: Longs, start: Longs, stop: Longs, sizes: Sizes) -> Float[Tensor, "B T"]:
    before, after = (_padded(times, first, last, sizes) for first, last in ((start, stop - 1), (start + 1, stop)))
    return torch.from_numpy(((after - before) / MICROSECONDS_A_DAY).astype(np.float32))


def _padded(events: Ints | Longs, start: Longs, stop: Longs, sizes: Sizes = EXACT) -> Longs:
    """Return a table whose row b holds the events start[b] to stop[b], padded with item 0."""
    length = stop - start
    places, offsets = ranges(start, stop)
    shape = max(sizes.rows, len(start)), max(sizes.places, int(length.max(initial=0)))
    table = np.zeros(shape, dtype=np.int64)
    row = np.repeat(np.arange(len(start)), length)
    table[row, np.arange(len(places)) - offsets[row]] = events[places]
    return table


@dataclass(frozen=True)
class Packing:
    """The place of each event in a padded table of logs; events are packed log by log, the oldest first."""

    at: Int[Tensor, "P"]  # row * T + place
    age: Int[Tensor, "P"]  # 0 for the newest event of its log
    shape: tuple[int, int]

    def spread(self, events: Float[Tensor, "P C"]) -> Float[Tensor, "B T C"]:
        """The events as a padded table of logs."""
        table = events.new_zeros(self.shape[0] * self.shape[1], events.shape[1])
        return table.index_copy(0, self.at, events).view(*self.shape, events.shape[1])

    def collect(self, table: Float[Tensor, "B T C"]) -> Float[Tensor, "P C"]:
        """The events of a padded table, without padding."""
        return table.flatten(0, 1).index_select(0, self.at)


def pack(seen: Bool[Tensor, "B T"]) -> Packing:
    """The packing of the events that are `seen`, which must come first in their rows."""
    at = seen.flatten().nonzero()[:, 0]
    age = seen.sum(dim=1)[at // seen.shape[1]] - 1 - at % seen.shape[1]
    return Packing(at, age, (seen.shape[0], seen.shape[1]))


def histories_before(
    log: Int[Tensor, "B T"], row: Int[Tensor, "I"], place: Int[Tensor, "I"], longest: int, newest_first: bool
) -> tuple[Int[Tensor, "I W"], Bool[Tensor, "I W"]]:
    """The newest events up to and including the given places of logs, one row each, and a mask.

    Args:
        place: -1 for a history without events.
    """
    step = torch.arange(min(longest, log.shape[1]), device=log.device)
    oldest = (place + 1 - longest).clamp(min=0)[:, None]
    wanted = place[:, None] - step if newest_first else oldest + step
    known = (wanted >= 0) & (wanted <= place[:, None])
    return log[row[:, None], torch.where(known, wanted, 0)], known


def draw_places(counts: Bool[Tensor, "B T"], most: int) -> tuple[Int[Tensor, "I"], Int[Tensor, "I"]]:
    """At most `most` places of each row, sampled uniformly from those that count."""
    lots = torch.rand(counts.shape, device=counts.device).masked_fill(~counts, -1.0)
    drawn = lots.topk(min(most, counts.shape[1]), dim=1)
    row, column = torch.nonzero(drawn.values >= 0, as_tuple=True)
    return row, drawn.indices[row, column]


def newest_part(batch: Batch, longest: int) -> Batch:
    """The histories cut to their newest `longest` events."""
    length = batch.length.clamp(max=longest)
    width = min(longest, batch.history.shape[1])
    place = torch.arange(width, device=length.device) + (batch.length - length)[:, None]
    place = place.clamp(max=batch.history.shape[1] - 1)
    newest = replace(batch, history=batch.history.gather(1, place), length=length, ages=None)
    return newest if batch.ages is None else replace(newest, ages=batch.ages.gather(1, place) * newest.known)


def cut_rows(batch: TrainingBatch, longest: int) -> TrainingBatch:
    """Rows of at most `longest` events, cut from the newest event backwards; a cut loses context but no target.

    The parts of a log are consecutive rows, the oldest first; parts without a target are left out.
    """
    if batch.log.shape[1] <= longest:
        return batch
    place, seen, counts = parts_of_rows(batch, longest)
    has_target = counts.any(dim=-1)
    cut = TrainingBatch.of_rows(
        account=batch.account[:, None].expand_as(has_target)[has_target],
        log=batch.log.gather(1, place).view_as(seen)[has_target],
        next_item=batch.next_item.gather(1, place).view_as(seen)[has_target],
        seen=seen[has_target],
        counts=counts[has_target],
    )
    if batch.moments is None:
        return cut
    return replace(cut, moments=batch.moments.gather(1, place).view_as(seen)[has_target])


def parts_of_rows(
    batch: TrainingBatch, longest: int
) -> tuple[Int[Tensor, "B _"], Bool[Tensor, "B C W"], Bool[Tensor, "B C W"]]:
    """All C parts of `longest` events of each row: the place of each event, and the masks `seen` and `counts`."""
    width, device = batch.log.shape[1], batch.log.device
    later = longest * torch.arange(-(-width // longest) - 1, -1, -1, device=device)
    stop = batch.seen.sum(dim=1, keepdim=True) - later
    place = (stop - longest).clamp(min=0)[..., None] + torch.arange(longest, device=device)
    seen = place < stop[..., None]
    place = place.clamp(max=width - 1).flatten(1)
    return place, seen, batch.counts.gather(1, place).view_as(seen) & seen

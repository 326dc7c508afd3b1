"""Long logs cut to a bounded length, and packing of events so that no layer computes padding.

Shapes: B logs, T longest log, P events, I queries, W events read, C any width.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightgc2n.data.batches import Batch, TrainingBatch


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

"""Mixed logs of several domains: the events of each domain, and training queries with a target in each.

Shapes: B logs, T longest log, D domains, X longest log of one domain. Items are numbered across domains.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightgc2n.data.batches import Batch, TrainingBatch
from lightgc2n.data.dataset import Domain
from lightgc2n.devices import device_of

NOTHING = -1


@dataclass(frozen=True)
class DomainView:
    """The events of one domain, oldest first, padded on the right with item 0."""

    items: Int[Tensor, "B X"]  # numbered within the domain
    known: Bool[Tensor, "B X"]
    place: Int[Tensor, "B X"]  # the place of each event in the mixed log
    others: Int[Tensor, "B X"]  # the number of events of other domains before it
    ages: Float[Tensor, "B X"] | None  # days to the query, where times are known

    @property
    def length(self) -> Int[Tensor, "B"]:
        return self.known.sum(dim=1)


def view_of(batch: Batch, domain: Domain, width: int | None = None) -> DomainView:
    """The events of one domain in the histories.

    Args:
        width: the number of columns; by default that of the longest log of the domain, for which a GPU has to wait.
    """
    inside = batch.known & (batch.history >= domain.start) & (batch.history < domain.stop)
    width = max(1, int(inside.sum(dim=1).max())) if width is None else width
    place = (~inside).long().argsort(dim=1, stable=True)[:, :width]  # its events first, in their order
    known = inside.gather(1, place)
    before = place - torch.arange(width, device=place.device)
    ages = None if batch.ages is None else batch.ages.gather(1, place) * known
    items = (batch.history.gather(1, place) - domain.start) * known
    return DomainView(items, known, place * known, before * known, ages)


def newest_views(batch: Batch, domains: Sequence[Domain], longest: int) -> list[DomainView]:
    """The newest `longest` events of every domain; `others` counts among the events that are left."""
    newest = torch.zeros_like(batch.known)
    for domain in domains:
        inside = batch.known & (batch.history >= domain.start) & (batch.history < domain.stop)
        newer = inside.flip(1).cumsum(dim=1).flip(1)
        newest |= inside & (newer <= longest)
    order = (~newest).long().argsort(dim=1, stable=True)
    ages = None if batch.ages is None else batch.ages.gather(1, order)
    left = replace(batch, history=batch.history.gather(1, order), length=newest.sum(dim=1), ages=ages)
    return [view_of(left, domain, fixed_width(batch, longest)) for domain in domains]


def fixed_width(batch: Batch, longest: int | None = None) -> int | None:
    """A width of views that does not depend on the events, on devices that capture a step as a CUDA graph."""
    if not device_of(batch.history).has_cuda_graphs:
        return None
    width = batch.history.shape[1]
    return width if longest is None else min(longest, width)


def targets_after(batch: TrainingBatch, domains: Sequence[Domain]) -> Int[Tensor, "B T D"]:
    """The first item of each domain after every place of every log; -1 where there is none."""
    columns, width = [], batch.log.shape[1]
    place = torch.arange(width, device=batch.log.device)
    for domain in domains:
        inside = batch.seen & (batch.next_item >= domain.start) & (batch.next_item < domain.stop)
        first = torch.where(inside, place, width).flip(1).cummin(dim=1).values.flip(1)
        columns.append(torch.where(first < width, batch.next_item.gather(1, first.clamp(max=width - 1)), NOTHING))
    return torch.stack(columns, dim=-1)


def draw_queries(batch: TrainingBatch, domains: Sequence[Domain]) -> tuple[Batch, Int[Tensor, "B D"]]:
    """One query for each log, as in the test, and its target in each domain; -1 where there is none.

    The log is cut at a random place; where the dataset gives the targets, the whole log is the history.
    """
    if batch.domain_targets is not None:
        whole = torch.cat([batch.log[:, :1], batch.next_item], dim=1)
        return Batch(batch.account, whole, batch.seen.sum(dim=1) + 1), batch.domain_targets
    cut = draw_cuts(batch)
    return cut_at(batch, cut), targets_after(batch, domains)[torch.arange(len(cut), device=cut.device), cut]


def draw_cuts(batch: TrainingBatch) -> Int[Tensor, "B"]:
    """One place of each log, drawn uniformly from those with a target; the log up to it is the history."""
    chance = torch.rand(batch.counts.shape, device=batch.counts.device)
    return chance.masked_fill(~batch.counts, -1).argmax(dim=1)


def cut_at(batch: TrainingBatch, cut: Int[Tensor, "B"]) -> Batch:
    """The histories up to and including the cut."""
    place = torch.arange(batch.log.shape[1], device=cut.device)
    shown = place <= cut[:, None]
    ages = None
    if batch.gaps is not None:
        ages = (batch.gaps * shown).flip(1).cumsum(dim=1).flip(1) * shown
    return Batch(batch.account, batch.log * shown, cut + 1, ages)


def draw_several(batch: TrainingBatch, domains: Sequence[Domain], cuts: int) -> tuple[Batch, Int[Tensor, "Q D"]]:
    """`draw_queries` repeated `cuts` times, concatenated; once where the dataset gives the targets."""
    drawn = [draw_queries(batch, domains) for _ in range(cuts if batch.domain_targets is None else 1)]
    batches, targets = [one for one, _ in drawn], torch.cat([target for _, target in drawn])
    ages = [one.ages for one in batches if one.ages is not None]
    account, history, length = (
        torch.cat([getattr(one, name) for one in batches]) for name in ("account", "history", "length")
    )
    return Batch(account, history, length, torch.cat(ages) if ages else None), targets

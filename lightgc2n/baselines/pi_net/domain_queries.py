"""Queries after many places of mixed logs at once, for models whose states do not depend on later events.

Shapes: B logs, T longest log, X longest log of one domain, Q queries for each log, D domains.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from lightgc2n.data.batches import Batch, TrainingBatch, cut_rows, parts_of_rows
from lightgc2n.data.dataset import Domain
from lightgc2n.layers.domain_views import NOTHING, DomainView, draw_queries, newest_views, targets_after, view_of


@dataclass(frozen=True)
class DomainQueries:
    """The events of each domain, and the number of them in the history of each query."""

    views: list[DomainView]
    shown: list[Int[Tensor, "B Q"]]
    fixed_shapes: bool = False  # padding is computed too, so that no shape depends on the events

    def lengths(self, number: int) -> Int[Tensor, "B"] | None:
        """The events of each log that have to be computed; None for all places."""
        return None if self.fixed_shapes else self.views[number].length

    def crossed(self, source: int) -> Int[Tensor, "B X"]:
        """The number of events of the other domain before each event of this one.

        A single domain is its own other domain.
        """
        view = self.views[source]
        if len(self.views) > 1:
            return view.others
        return torch.arange(view.items.shape[1], device=view.items.device).expand_as(view.items)


def queries_at_the_end(batch: Batch, domains: Sequence[Domain], longest: int) -> DomainQueries:
    """One query for each log, after its newest `longest` events of each domain."""
    views = newest_views(batch, domains, longest)
    return DomainQueries(views, [view.length[:, None] for view in views])


def queries_at_all_places(
    batch: TrainingBatch, domains: Sequence[Domain], longest: int, most: int
) -> tuple[DomainQueries, Int[Tensor, "B Q D"]]:
    """Queries after the places that count, and the next item of each domain; -1 where there is none.

    A log with more than `longest` events for each domain is cut into parts, from the newest event backwards. That loses
    context but no target: the target of the last query of a part may be in the next part.

    Args:
        most: the number of queries of a log, sampled uniformly from its places; 0 for all.
    """
    if batch.domain_targets is not None:
        whole, next_items = draw_queries(batch, domains)
        return queries_at_the_end(whole, domains, longest), next_items[:, None]
    place = torch.arange(batch.log.numel(), device=batch.log.device).view_as(batch.log)
    parts = cut_rows(replace(batch, next_item=place), longest * len(domains))  # keeps the place of each event
    history = Batch(parts.account, parts.log, parts.seen.sum(dim=1))
    chosen = _chosen(parts.counts, most)
    targets = targets_after(batch, domains).flatten(0, 1)[parts.next_item.gather(1, chosen)]
    shown = [_so_far(parts, domain).gather(1, chosen) for domain in domains]
    counts = parts.counts.gather(1, chosen)[..., None]
    return DomainQueries([view_of(history, domain) for domain in domains], shown), targets.masked_fill(~counts, NOTHING)


def queries_of_one_domain(batch: TrainingBatch, longest: int) -> tuple[DomainQueries, Int[Tensor, "P"]]:
    """The queries of `queries_at_all_places` for a single domain in fixed shapes, and the places of the targets.

    No step waits for the GPU, so a training step can be captured as a CUDA graph. Places are row * Q + query.
    """
    width = batch.log.shape[1]
    if width <= longest:
        return _full_rows(batch.log, batch.seen), batch.at
    place, seen, _ = parts_of_rows(batch, longest)
    parts, row, column = seen.shape[1], batch.row, batch.at % width
    length = batch.seen.sum(dim=1)[row]
    newer = (length - 1 - column) // longest  # parts of the log after the target's
    start = (length - longest * (newer + 1)).clamp(min=0)
    at = (row * parts + parts - 1 - newer) * longest + column - start
    return _full_rows(batch.log.gather(1, place).view(-1, longest), seen.flatten(0, 1)), at


def _full_rows(items: Int[Tensor, "B X"], known: Bool[Tensor, "B X"]) -> DomainQueries:
    place = torch.arange(items.shape[1], device=items.device).expand_as(items)
    view = DomainView(items * known, known, place, torch.zeros_like(items), None)
    return DomainQueries([view], [place + 1], fixed_shapes=True)


def _so_far(parts: TrainingBatch, domain: Domain) -> Int[Tensor, "B T"]:
    return (parts.seen & (parts.log >= domain.start) & (parts.log < domain.stop)).cumsum(dim=1)


def _chosen(counts: Bool[Tensor, "B T"], most: int) -> Int[Tensor, "B Q"]:
    if not most:
        return torch.arange(counts.shape[1], device=counts.device).expand_as(counts)
    lots = torch.rand(counts.shape, device=counts.device).masked_fill(~counts, -1.0)
    return lots.topk(min(most, counts.shape[1]), dim=1).indices

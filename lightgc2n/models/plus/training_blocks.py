"""Training queries in blocks of bounded size, and a loss that holds one block in memory at a time.

Shapes: B windows of logs, T longest window, Q queries.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightgc2n.data.batches import TrainingBatch, cut_rows

Kept = tuple[Bool[Tensor, "B T _"], ...]


@dataclass(frozen=True)
class TrainingQueries:
    """The queries of a training batch, and the windows of the logs that they read."""

    log: Int[Tensor, "B T"]
    at: Int[Tensor, "Q"]  # row * T + place of the newest event that a query reads
    whole_at: Int[Tensor, "Q"]  # the same event in the whole logs
    target: Int[Tensor, "Q"]
    share: Float[Tensor, "Q"]  # the weight in the loss
    moment: Float[Tensor, "Q"] | None  # the day of the target since 1970, where times are known
    kept: Kept = ()  # the dropout masks; drawn on use where it is empty

    @classmethod
    def of(cls, batch: TrainingBatch, longest: int) -> "TrainingQueries":
        """The queries of whole logs, which are cut into windows of at most `longest` events."""
        place = torch.arange(batch.log.numel(), device=batch.log.device).view_as(batch.log)
        cut = cut_rows(replace(batch, next_item=place), longest)  # the place of each event instead of the next item
        target = batch.next_item.flatten()[cut.target]
        moment = None if cut.moments is None else cut.moments.flatten()[cut.at]
        return cls(cut.log, cut.at, cut.target, target, cut.share, moment)

    @property
    def row(self) -> Int[Tensor, "Q"]:
        return self.at // self.log.shape[1]

    @property
    def place(self) -> Int[Tensor, "Q"]:
        return self.at % self.log.shape[1]

    def sample(self, most: int) -> "TrainingQueries":
        """At most `most` queries, or one window: those of randomly chosen windows, which share the weight of all."""
        if len(self.at) <= most:
            return self
        rows, width = self.log.shape
        order = torch.randperm(rows, device=self.log.device)
        upto = torch.bincount(self.row, minlength=rows)[order].cumsum(dim=0)
        chosen = order[: max(1, int((upto <= most).sum()))].sort().values
        number = torch.full_like(order, -1).index_copy(0, chosen, torch.arange(len(chosen), device=order.device))
        inside = (number[self.row] >= 0).nonzero()[:, 0]
        at, share = number[self.row[inside]] * width + self.place[inside], self.share[inside]
        moment = None if self.moment is None else self.moment[inside]
        targets = self.whole_at[inside], self.target[inside]
        return TrainingQueries(self.log[chosen], at, *targets, share / share.sum(), moment)

    def blocks(self, cells: int) -> list[slice]:
        """Runs of rows, each with at most `cells` pairs of a query and an event, or a single row."""
        rows, places = self.log.shape
        if len(self.at) * places <= cells:
            return [slice(0, rows)]
        most, first, queries, blocks = max(1, cells // places), 0, 0, []
        for row, count in enumerate(torch.bincount(self.row, minlength=rows).tolist()):
            if queries + count > most and row > first:
                blocks.append(slice(first, row))
                first, queries = row, 0
            queries += count
        return [*blocks, slice(first, rows)]

    def select(self, rows: slice) -> "TrainingQueries":
        """The queries of some rows."""
        first, stop = (place * self.log.shape[1] for place in (rows.start, rows.stop))
        inside = ((self.at >= first) & (self.at < stop)).nonzero()[:, 0]
        at = self.at[inside] - first
        moment = None if self.moment is None else self.moment[inside]
        kept = tuple(mask[rows] for mask in self.kept)
        shares = self.whole_at[inside], self.target[inside], self.share[inside]
        return TrainingQueries(self.log[rows], at, *shares, moment, kept)


def sum_over_blocks(
    loss: Callable[[TrainingQueries], Float[Tensor, ""]], blocks: Iterator[TrainingQueries], sources: Sequence[Tensor]
) -> Float[Tensor, ""]:
    """The sum of the losses of all blocks; the gradients of a block are computed before the next block is read.

    Args:
        sources: all tensors whose gradient is wanted.
    """
    if not torch.is_grad_enabled():
        return torch.stack([loss(block) for block in blocks]).sum()
    total, gradients = sources[0].new_zeros(()), [torch.zeros_like(source) for source in sources]
    for block in blocks:
        value = loss(block)
        total += value.detach()
        for sum_, part in zip(gradients, torch.autograd.grad(value, sources, allow_unused=True), strict=True):
            if part is not None:
                sum_ += part
    return _WithGradients.apply(total, gradients, *sources)  # type: ignore[no-untyped-call]


class _WithGradients(torch.autograd.Function):
    """A loss whose gradients are already computed."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: list[Tensor], *sources: Tensor) -> Tensor:
        ctx.save_for_backward(*gradients)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *scales: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *(gradient * scales[0] for gradient in ctx.saved_tensors)

"""The items that speak for an account: its newest events, or all that it holds.

Shapes: B batch, T history, I questions, L items that speak, padded.
"""

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from lightgc2n.data.batches import Batch, TrainingBatch
from lightgc2n.layers.history import distinct
from lightgc2n.layers.holdings import Holdings
from lightgc2n.layers.windows import histories_before

Speakers = tuple[Int[Tensor, "I L"], Bool[Tensor, "I L"]]


class RecentEvents(nn.Module):
    """The newest events of a log, the newest in front; a longer log is cut."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def lengths(self, batch: TrainingBatch, row: Int[Tensor, "I"], place: Int[Tensor, "I"]) -> Int[Tensor, "I"]:
        """At most how many items speak at each place of a training batch."""
        return (place + 1).clamp(max=self.most)

    def asked(
        self, batch: TrainingBatch, row: Int[Tensor, "I"], place: Int[Tensor, "I"], width: int
    ) -> tuple[Int[Tensor, "I L"], Bool[Tensor, "I L"]]:
        """The items that speak at each place, and which are not padding."""
        return self._kept(*histories_before(batch.log, row, place, width, newest_first=True))

    def whole(self, batch: Batch) -> tuple[Int[Tensor, "B L"], Bool[Tensor, "B L"]]:
        """The items that speak in each history, and which are not padding."""
        row = torch.arange(len(batch.length), device=batch.length.device)
        return self._kept(*histories_before(batch.history, row, batch.length - 1, self.most, newest_first=True))

    def _kept(self, items: Int[Tensor, "I L"], known: Bool[Tensor, "I L"]) -> Speakers:
        return items, known


class RecentItems(RecentEvents):
    """The same with every item once, in no order."""

    def _kept(self, items: Int[Tensor, "I L"], known: Bool[Tensor, "I L"]) -> Speakers:
        return distinct(items, known)


class HeldItems(nn.Module):
    """All that an account holds in training, and its recent items, each once."""

    def __init__(self, most: int, holdings: Holdings) -> None:
        super().__init__()
        self.recent, self.holdings = RecentEvents(most), holdings

    def lengths(self, batch: TrainingBatch, row: Int[Tensor, "I"], place: Int[Tensor, "I"]) -> Int[Tensor, "I"]:
        """At most how many items speak; the events of training are held already."""
        return self.holdings.offsets.diff()[batch.account[row]]

    def asked(
        self, batch: TrainingBatch, row: Int[Tensor, "I"], place: Int[Tensor, "I"], width: int
    ) -> tuple[Int[Tensor, "I L"], Bool[Tensor, "I L"]]:
        return self.holdings.padded(batch.account[row], width)

    def whole(self, batch: Batch) -> tuple[Int[Tensor, "B L"], Bool[Tensor, "B L"]]:
        account = batch.account.clamp(min=0)
        widest = int((self.holdings.offsets.diff()[account] * (batch.account >= 0)).max())
        parts = self.holdings.padded(batch.account, widest), self.recent.whole(batch)
        items, known = (torch.cat(pair, dim=1) for pair in zip(*parts, strict=True))
        return distinct(items, known)

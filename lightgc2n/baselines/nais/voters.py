"""The voters of NAIS: the newest events of a history, its distinct items, or all items of the account.

Shapes: B batch, T history, I queries, L voters, padded.
"""

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from lightgc2n.data.batches import Batch, TrainingBatch, histories_before
from lightgc2n.layers.holdings import Holdings
from lightgc2n.layers.pooling import distinct

VotersAndMask = tuple[Int[Tensor, "I L"], Bool[Tensor, "I L"]]


class RecentEvents(nn.Module):
    """The newest events of a log, the newest first; longer logs are cut."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def lengths(self, batch: TrainingBatch, row: Int[Tensor, "I"], place: Int[Tensor, "I"]) -> Int[Tensor, "I"]:
        """An upper bound of the number of voters at each place of a training batch."""
        return (place + 1).clamp(max=self.most)

    def at_places(
        self, batch: TrainingBatch, row: Int[Tensor, "I"], place: Int[Tensor, "I"], width: int
    ) -> tuple[Int[Tensor, "I L"], Bool[Tensor, "I L"]]:
        """The voters at each place, and a mask."""
        return self._selected(*histories_before(batch.log, row, place, width, newest_first=True))

    def whole(self, batch: Batch) -> tuple[Int[Tensor, "B L"], Bool[Tensor, "B L"]]:
        """The voters of each history, and a mask."""
        row = torch.arange(len(batch.length), device=batch.length.device)
        return self._selected(*histories_before(batch.history, row, batch.length - 1, self.most, newest_first=True))

    def _selected(self, items: Int[Tensor, "I L"], known: Bool[Tensor, "I L"]) -> VotersAndMask:
        return items, known


class RecentItems(RecentEvents):
    """The distinct items among the newest events."""

    def _selected(self, items: Int[Tensor, "I L"], known: Bool[Tensor, "I L"]) -> VotersAndMask:
        return distinct(items, known)


class HeldItems(nn.Module):
    """All items of the account in training and its recent items, each once."""

    def __init__(self, most: int, holdings: Holdings) -> None:
        super().__init__()
        self.recent, self.holdings = RecentEvents(most), holdings

    def lengths(self, batch: TrainingBatch, row: Int[Tensor, "I"], place: Int[Tensor, "I"]) -> Int[Tensor, "I"]:
        """An upper bound of the number of voters; training events are items of the account already."""
        return self.holdings.offsets.diff()[batch.account[row]]

    def at_places(
        self, batch: TrainingBatch, row: Int[Tensor, "I"], place: Int[Tensor, "I"], width: int
    ) -> tuple[Int[Tensor, "I L"], Bool[Tensor, "I L"]]:
        return self.holdings.padded(batch.account[row], width)

    def whole(self, batch: Batch) -> tuple[Int[Tensor, "B L"], Bool[Tensor, "B L"]]:
        account = batch.account.clamp(min=0)
        widest = int((self.holdings.offsets.diff()[account] * (batch.account >= 0)).max())
        parts = self.holdings.padded(batch.account, widest), self.recent.whole(batch)
        items, known = (torch.cat(pair, dim=1) for pair in zip(*parts, strict=True))
        return distinct(items, known)

"""The items of each account in training, and uniform samples of the other items.

Shapes: N accounts, M items, I queries, K sampled items for each.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lightgc2n.data.splits import Training
from lightgc2n.graph.sequential import build_graph


class Holdings(nn.Module):
    """The distinct items of every account: items[offsets[a]:offsets[a + 1]] for account a, ascending."""

    offsets: Int[Tensor, "N_and_one"]
    items: Int[Tensor, "E"]
    free_before: Int[Tensor, "E"]  # for each held item, the number of smaller items that the account does not hold

    def __init__(self, offsets: Int[Tensor, "N_and_one"], items: Int[Tensor, "E"], catalogue: int) -> None:
        super().__init__()
        self.catalogue = catalogue
        self.register_buffer("offsets", offsets)
        self.register_buffer("items", items)
        owner = torch.repeat_interleave(torch.arange(len(offsets) - 1), offsets.diff())
        free_before = items - (torch.arange(len(items)) - offsets[owner])
        self.register_buffer("free_before", owner * (catalogue + 1) + free_before, persistent=False)

    @classmethod
    def of(cls, train: Training) -> "Holdings":
        """The items of the training sequences."""
        held = build_graph(train).items_of_account
        return cls(torch.from_numpy(held.offsets), torch.from_numpy(held.columns), train.items)

    @classmethod
    def restored(cls, tensors: Mapping[str, Tensor], catalogue: int) -> "Holdings":
        """Rebuild from the tensors of a saved part called `holdings`."""
        return cls(tensors["holdings.offsets"], tensors["holdings.items"], catalogue)

    @property
    def accounts(self) -> int:
        return len(self.offsets) - 1

    def padded(self, account: Int[Tensor, "I"], width: int) -> tuple[Int[Tensor, "I width"], Bool[Tensor, "I width"]]:
        """The first `width` items of each account, and a mask; an unseen account (-1) has none."""
        first, stop = self.offsets[account.clamp(min=0)], self.offsets[account + 1]
        place = first[:, None] + torch.arange(width, device=account.device)
        known = (place < stop[:, None]) & (account >= 0)[:, None]
        return self.items[torch.where(known, place, 0)] * known, known

    def absent(self, account: Int[Tensor, "I"], count: int) -> Int[Tensor, "I K"]:
        """Items sampled uniformly from those the account does not hold; the last item for one that holds them all."""
        first = self.offsets[account]
        free = (self.catalogue - (self.offsets[account + 1] - first)).clamp(min=1)
        draw = torch.randint(2**62, (len(account), count), device=account.device) % free[:, None]
        # The draw-th free item comes after all held items that have at most `draw` free items before them.
        key = account[:, None] * (self.catalogue + 1) + draw
        held_before = torch.searchsorted(self.free_before, key, right=True) - first[:, None]
        return (draw + held_before).clamp(max=self.catalogue - 1)


def even_weights(offsets: Int[Tensor, "N_and_one"]) -> Float[Tensor, "N"]:
    """The weights of the mean over accounts with items."""
    active = (offsets.diff() > 0).float()
    return active / active.sum().clamp(min=1)

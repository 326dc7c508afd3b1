"""The saved tensors of LightGC²N-plus for another numbering of the items, so that it can count a newer log.

A new item has the mean vector of the learned items and the least bias of them; the counts of newer events add to that.
Nothing of an item that is gone remains.
Shapes: M items of the new numbering.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Int
from torch import Tensor

MEAN_OF_LEARNED, LEAST_OF_LEARNED = ("items", "memory.readiness"), ("bias",)
COUNTED = ("followers.columns", "followers.counts", "followers.leaving", "blend.columns", "blend.counts", "blend.total")
NOTHING = ("learned", *COUNTED)  # zero for a new item
ITEM_NUMBERS = {  # tables that hold numbers of items, and how often each was counted
    "followers.columns": "followers.counts",
    "blend.columns": "blend.counts",
    "trends.columns": "trends.rates",
}


def renumber_items(tensors: Mapping[str, Tensor], place: Int[Tensor, "M"]) -> dict[str, Tensor]:
    """Return all tensors; those of items have M rows.

    Args:
        place: the present number of each item of the new numbering; -1 for a new item.
    """
    learned, moved = tensors["learned"] > 0, dict(tensors)
    number = torch.full_like(learned, -1, dtype=torch.long)  # the new number of each present item
    number[place[place >= 0]] = torch.nonzero(place >= 0)[:, 0]
    for columns, counts in ITEM_NUMBERS.items():
        if columns in tensors:
            moved[columns], moved[counts] = _renumbered(tensors[columns], tensors[counts], number)
    for name in moved.keys() & {*MEAN_OF_LEARNED, *LEAST_OF_LEARNED, *NOTHING}:
        moved[name] = _rows(moved[name], place, _of_a_new_item(name, tensors[name], learned))
    return moved


def _of_a_new_item(name: str, rows: Tensor, learned: Bool[Tensor, "N"]) -> Tensor:
    if name in NOTHING:
        return torch.zeros_like(rows[0])
    return rows[learned].mean(dim=0) if name in MEAN_OF_LEARNED else rows[learned].amin(dim=0)


def _rows(rows: Tensor, place: Int[Tensor, "M"], of_a_new_item: Tensor) -> Tensor:
    known = (place >= 0).view(-1, *[1] * (rows.dim() - 1))
    return torch.where(known, rows[place.clamp(min=0)], of_a_new_item)


def _renumbered(columns: Tensor, counts: Tensor, number: Int[Tensor, "N"]) -> tuple[Tensor, Tensor]:
    """The same counts of items by their new numbers, without those of items that are gone."""
    numbers = number[columns.long()]
    remains = (numbers >= 0).view(*numbers.shape, *[1] * (counts.dim() - numbers.dim()))
    return numbers.clamp(min=0).to(columns.dtype), counts * remains

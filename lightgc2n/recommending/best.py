"""The best items of a row of scores, in an order that does not depend on the machine.

Shapes: B batch, M items, K places of the list.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Best = tuple[Float[Tensor, "B K"], Int[Tensor, "B K"]]


def best_items(scores: Float[Tensor, "B M"], k: int) -> Best:
    """The k best scores of each row and their items, best first; of equal scores the lower item number.

    A score of minus infinity stands for an item that may not be listed: such places come last, and their items mean
    nothing.
    """
    k = min(k, scores.shape[1])
    values, items = scores.topk(min(k + 1, scores.shape[1]))
    if values.shape[1] > k:  # where the first item outside ties with the last one inside, topk takes either
        tied = (values[:, k] == values[:, k - 1]) & values[:, k].isfinite()
        if bool(tied.any()):
            exact = scores[tied].sort(dim=1, descending=True, stable=True)
            values[tied], items[tied] = exact.values[:, : k + 1], exact.indices[:, : k + 1]
    items, order = items[:, :k].sort(dim=1)
    values, order = values[:, :k].gather(1, order).sort(dim=1, descending=True, stable=True)
    return values, items.gather(1, order)


def best_of_two_kinds(scores: Float[Tensor, "B M"], first: Bool[Tensor, "M"], k: int) -> Best:
    """As `best_items`, but every item of the first kind stands before all others."""
    values, items = best_items(scores.masked_fill(~first, -torch.inf), k)
    short = ~values[:, -1].isfinite()
    if not bool(short.any()):
        return values, items
    others, their_items = best_items(scores[short].masked_fill(first, -torch.inf), k)
    joined, places = torch.cat([values[short], others], dim=1), torch.cat([items[short], their_items], dim=1)
    # A stable sort by "may be listed" closes the gap between the two kinds and keeps the order of each.
    order = (~joined.isfinite()).int().sort(dim=1, stable=True).indices[:, : values.shape[1]]
    values[short], items[short] = joined.gather(1, order), places.gather(1, order)
    return values, items

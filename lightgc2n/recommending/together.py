"""One list for several people, in numpy.

Shapes: P people, M items, K places of the list.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Longs


def best_for_all(
    scores: npt.NDArray[np.floating[Any]], first: npt.NDArray[np.bool_], k: int
) -> tuple[npt.NDArray[np.float64], Longs]:
    """Scores and items of one list for P people, [K]: an item stands as high as with the person whom it suits least.

    Places are compared, not scores: scores of two people need not be on one scale. Of equal places the smaller sum of
    all goes first. The score of an item is one over its place with that person; every item of the first kind stands
    before all others, and what may not be listed for one person is not listed.

    Args:
        scores: of each item with each person [P, M]; minus infinity for what may not be listed.
        first: which items are of the first kind [M].
    """
    people, items = scores.shape
    place = np.empty((people, items), dtype=np.int64)
    for own, row in zip(place, scores, strict=True):
        own[np.lexsort((-row, ~first))] = np.arange(1, items + 1)
    worst, total = place.max(axis=0), place.sum(axis=0)
    chosen = np.lexsort((total, worst))
    chosen = chosen[np.isfinite(scores[:, chosen]).all(axis=0)][:k]
    return 1 / worst[chosen], chosen

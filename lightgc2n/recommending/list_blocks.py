"""The lists of many accounts as arrays, so that millions of them need no object for each entry."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lightgc2n.data.dataset import Longs
from lightgc2n.recommending.queries import Floats


@dataclass(frozen=True)
class ListBlock:
    """The lists of several accounts as arrays, best item first: what is written for very many accounts.

    Shapes: Q accounts, K list length.
    """

    accounts: Sequence[str]
    items: Longs  # [Q, K] numbers of items
    scores: Floats  # [Q, K]
    counts: Longs  # [Q] entries of each list; what comes behind them in the other arrays means nothing
    notes: Sequence[tuple[str, str]]  # an account, and a remark on its list

    def rows(self) -> Iterator[tuple[str, list[int], list[float]]]:
        """The account, the items and the scores of each list."""
        lists = zip(self.accounts, self.items.tolist(), self.scores.tolist(), self.counts.tolist(), strict=True)
        for account, items, scores, count in lists:
            yield account, items[:count], scores[:count]


def block_of(names: Sequence[str], lengths: Longs, scores: Floats, items: Longs) -> ListBlock:
    """The lists made from histories of these lengths."""
    counts = np.isfinite(scores).sum(axis=1)
    unusual = np.flatnonzero((lengths == 0) | (counts == 0)).tolist()
    notes = [(names[row], note) for row in unusual for note in remarks(int(lengths[row]), int(counts[row]))]
    return ListBlock(names, items, scores, counts, notes)


def remarks(length: int, count: int) -> Iterator[str]:
    """Notes on a list with `count` items, made from a history of this length."""
    if length == 0:
        yield "no history: the most popular items"
    if count == 0:
        yield "no item is left to list"

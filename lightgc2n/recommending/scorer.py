"""What a recommender needs from a model: queries with the options of their lists, and the protocol of a scorer.

`TorchScorer` computes scores with torch, `OnnxScorer` with onnxruntime.
Shapes: Q queries, M items, K list length, A latent users, T events of a history, D vector width.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Dataset, Longs
from lightgc2n.data.splits import Queries
from lightgc2n.errors import DataError, ScoreError, SettingError, option

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ListOptions:
    """The length of a list and its filters."""

    k: int
    exclude_seen: bool  # leave out the items of the history
    listed: Flags  # [M] which items may be listed


def list_options(
    dataset: Dataset,
    everything: Flags,
    k: int,
    exclude_seen: bool,
    allow: Iterable[str] | None = None,
    deny: Iterable[str] | None = None,
    domain: str | None = None,
) -> ListOptions:
    """Return the options for these filters; raise an error if an id is unknown or no item is left.

    Args:
        everything: True for every item; the options without filters share this array.
    """
    if k < 1:
        raise SettingError(f"k{option(' (-k)', '')} must be at least 1, found {k}.")
    if allow is None and deny is None and domain is None:
        return ListOptions(k, exclude_seen, everything)
    listed = np.ones(len(dataset.items), dtype=bool)
    if domain is not None:
        chosen = dataset.domain(domain)
        listed[: chosen.start] = listed[chosen.stop :] = False
    if allow is not None:
        allowed = np.zeros_like(listed)
        allowed[item_indices(dataset, (("allow", item) for item in allow))] = True
        listed &= allowed
    if deny is not None:
        listed[item_indices(dataset, (("deny", item) for item in deny))] = False
    if not listed.any():
        raise DataError("no item may be listed: allow, deny and domain together leave none.")
    return ListOptions(k, exclude_seen, listed)


def item_indices(dataset: Dataset, named: Iterable[tuple[str, str]]) -> list[int]:
    """Return the index of each item id.

    Args:
        named: pairs of the place that names an id, for the error message, and the id.
    """
    known, indices = dataset.item_index, []
    for where, item in named:
        if item not in known:
            raise DataError(f"{where}: item {item!r} is not in {dataset.name} ({len(known):,} items).")
        indices.append(known[item])
    return indices


def read_item_ids(path: Path, dataset: Dataset) -> list[str]:
    """Return the item ids of a file with one id a line; raise an error if the dataset does not have one of them."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError:
        raise DataError(f"{path}: not a text file in UTF-8. Write one item id a line.") from None
    ids = {number: line for number, line in enumerate(lines, start=1) if line}
    if not ids:
        raise DataError(f"{path}: holds no item id. Write one a line.")
    item_indices(dataset, ((f"{path}:{number}", item) for number, item in ids.items()))
    return list(ids.values())


Floats = npt.NDArray[np.float32]
Scores = npt.NDArray[np.floating[Any]]
TopItems = tuple[Floats, Longs]  # scores and items [Q, K], best first; minus infinity where no item is left


@dataclass(frozen=True)
class QueryBatch:
    """Queries with the same list options.

    Args:
        fold_in: the caller gives the histories, so latent users are inferred from them; False: stored histories.
    """

    queries: Queries
    options: ListOptions
    fold_in: bool

    @property
    def lengths(self) -> Longs:
        """The number of events of each history."""
        return self.queries.stop - self.queries.start

    def events(self, row: int) -> npt.NDArray[np.int32]:
        """The history of one query."""
        return self.queries.events[self.queries.start[row] : self.queries.stop[row]]


@dataclass(frozen=True)
class PreparedQuery:
    """A checked request for one list; its batch has one query, or one for each person of a list for all of them."""

    account_id: str | None
    batch: QueryBatch
    notes: tuple[str, ...]
    together: bool = False

    @property
    def events(self) -> npt.NDArray[np.int32]:
        """The history of the account or, in a list for all people, of the first person."""
        return self.batch.events(0)


@runtime_checkable
class Scorer(Protocol):
    """Scores items for histories."""

    @property
    def popularity(self) -> Longs:
        """The number of training events of each item [M]."""

    @property
    def learned_items(self) -> Flags:
        """The items that rank before all others [M]: those that the model has learned to score."""

    def item_vectors(self) -> Floats:
        """A unit vector for each item [M, D]; zeros where nothing was learned."""

    def top_items(self, batches: Sequence[QueryBatch]) -> Iterator[TopItems]:
        """Yield the best items of all queries in order, several rows at a time; K may differ between yields."""

    def scores(self, batch: QueryBatch) -> Scores:
        """The score of every item [Q, M]; popularity without a history, minus infinity for what may not be listed."""

    def latent_users(self, queries: Queries) -> tuple[Floats, Floats]:
        """The shares of the first query's events [A, T], and the weights of the latent users [A]."""


def refuse_diverged(name: str, shares: Floats, weights: Floats) -> None:
    """Raise an error if a latent user's share or weight is not finite."""
    for what, numbers in (("share", shares), ("weight", weights)):
        if not np.isfinite(numbers).all():
            raise ScoreError(f"{name}: a latent user's {what} is not finite. Train with a lower learning rate.")

"""What a recommender needs from a model: `TorchScorer` computes it with torch, `OnnxScorer` with onnxruntime.

Shapes: Q queries, M items, K list length, A latent users, T events of a history, D vector width.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Longs
from lightgc2n.data.splits import Queries
from lightgc2n.errors import ScoreError
from lightgc2n.recommending.list_options import Flags, ListOptions

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

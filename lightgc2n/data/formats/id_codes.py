"""Ids as numbers."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

Codes = npt.NDArray[np.int32]


class Coder:
    """Numbers ids in the order in which they first appear."""

    def __init__(self, known: Sequence[str] = ()) -> None:
        self._categories = pl.Categories.random("ids")
        # Polars forgets categories that no series refers to: this one keeps them from the first id to the last.
        self._anchor = pl.Series(known, dtype=pl.String).cast(pl.Categorical(self._categories))

    def codes(self, ids: pl.Series) -> Codes:
        """The number of each id, -1 for null."""
        numbers = ids.cast(pl.Categorical(self._categories)).to_physical().cast(pl.Int32)
        return numbers.fill_null(-1).to_numpy()

    def ids(self) -> list[str]:
        return list(self._categories.to_series().cast(pl.String))

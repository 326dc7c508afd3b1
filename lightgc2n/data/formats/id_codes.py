"""Encode ids as integers."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

Codes = npt.NDArray[np.int32]


class Coder:
    """Numbers ids in order of first appearance."""

    def __init__(self, known: Sequence[str] = ()) -> None:
        self._categories = pl.Categories.random("ids")
        # Polars drops categories that no series refers to; this series keeps all of them.
        self._anchor = pl.Series(known, dtype=pl.String).cast(pl.Categorical(self._categories))

    def codes(self, ids: pl.Series) -> Codes:
        """Return the number of each id, -1 for null."""
        numbers = ids.cast(pl.Categorical(self._categories)).to_physical().cast(pl.Int32)
        return numbers.fill_null(-1).to_numpy()

    def ids(self) -> list[str]:
        return list(self._categories.to_series().cast(pl.String))

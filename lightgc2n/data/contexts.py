"""The context of each event, such as the device that was used: kept where the log has a column for it.

It is optional, and no model reads it. Like the catalogue it is not part of the dataset's checksum, so a run fits the
same log with and without it.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightgc2n.config import unknown_name
from lightgc2n.errors import DataError

CONTEXTS, CONTEXT_NAMES = "contexts.npy", "contexts.txt"
NO_CONTEXT = -1  # of an event whose row has none


@dataclass(frozen=True)
class Contexts:
    """For each event the index of its value in `names`, -1 where there is none."""

    names: list[str]
    of_event: npt.NDArray[np.int32]
    column: str  # of the log, such as device

    def number(self, value: str) -> int:
        """Return the index of a value; raise an error if the log never has it."""
        if value not in self.names:
            raise DataError(f"{unknown_name(self.column, value, self.names)}")
        return self.names.index(value)

    def select(self, events: npt.NDArray[np.integer] | npt.NDArray[np.bool_]) -> "Contexts":
        """Return the contexts of some events; values that none of them has are left out."""
        kept = np.asarray(self.of_event)[events]
        there, place = np.unique(kept[kept >= 0], return_inverse=True)
        numbers = np.full_like(kept, NO_CONTEXT)
        numbers[kept >= 0] = place
        return Contexts([self.names[number] for number in there.tolist()], numbers, self.column)

"""Member labels: who acted at each event, for evaluation only.

No model, graph, layer or trainer imports this module; a test checks that.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import LABELS, Ints, read_ids

GUEST = "guest"


@dataclass(frozen=True)
class Members:
    """For each event of a dataset the index of its member in `names`, -1 where it is unknown."""

    names: list[str]
    of_event: Ints

    @property
    def guests(self) -> npt.NDArray[np.bool_]:
        """Which members are guests, such as h000123-guest: they visit now and then and do not share the account."""
        return np.array([name.endswith(f"-{GUEST}") for name in self.names], dtype=bool)


def load_members(folder: Path) -> Members | None:
    """Return the member labels of the dataset in `folder`, or None if it has none."""
    path = folder / LABELS / "members.npy"
    if not path.is_file():
        return None
    return Members(read_ids(folder / LABELS / "members.txt"), np.load(path, mmap_mode="r", allow_pickle=False))

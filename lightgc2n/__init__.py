"""Recommendations for accounts that several people share."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lightgc2n.recommending.recommender import Recommender

__version__ = "0.1.0"


def load(path: str | Path, data: str | Path | None = None, device: str = "cpu") -> "Recommender":
    """The recommender over the run or the bundle at `path`; a bundle needs no torch.

    Args:
        data: the run's dataset, if it has moved.
    """
    from lightgc2n.recommending.loading import load as load_recommender  # numpy, for those who ask for it alone

    return load_recommender(path, data, device)

"""Which items are alike: those whose vectors, by which the model scores them, point the same way."""

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from lightgc2n.data.dataset import Longs
from lightgc2n.recommending.bundle_files import WEIGHTS, BundleFiles
from lightgc2n.recommending.bundle_parts import MIDDLE

Floats = npt.NDArray[np.float32]
SMALLEST_NORM = 1e-12


class ItemVectors:
    """The vectors of a bundle; the file is opened at once and read when first asked, for few ever ask."""

    def __init__(self, files: BundleFiles) -> None:
        self.name = str(files.config["item_table"])
        self._file: Any = safe_open(files.folder / WEIGHTS, framework="numpy")

    @cached_property
    def unit(self) -> Floats:
        """A vector of length one for each item; of length zero where nothing was learned."""
        vectors = self._file.get_tensor(self.name)
        if vectors.dtype == np.uint8:  # the scale of a row does not change where it points
            vectors = vectors.astype(np.float32) - np.float32(MIDDLE)
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), SMALLEST_NORM)

    def nearest(self, item: int, first: npt.NDArray[np.bool_], k: int) -> tuple[Longs, Floats]:
        """The k other items nearest to one and their cosines; every item of the first kind before all others."""
        cosines = self.unit @ self.unit[item]
        order = np.lexsort((-cosines, ~first))
        order = order[order != item][:k]
        return order, cosines[order]

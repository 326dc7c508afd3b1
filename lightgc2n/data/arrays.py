"""Arrays as .npy files."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


def save_array(path: Path, array: npt.NDArray[Any]) -> None:
    """Write an array as `np.save` does, but keep the system's error.

    On a full disk `np.save` raises an `OSError` without an error number, so callers cannot recognise it.
    """
    array = np.asarray(array, order="C")
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        file.write(array.data)

import errno
import io
from pathlib import Path

import numpy as np
import pytest

from lightgc2n.data.arrays import save_array


@pytest.mark.parametrize(
    "array", [np.arange(5), np.zeros((0, 3), np.int32), np.arange(6).reshape(2, 3), np.arange(6, dtype=np.uint8)[::2]]
)
def test_the_bytes_are_those_of_numpy(tmp_path: Path, array: np.ndarray) -> None:
    save_array(tmp_path / "a.npy", array)
    expected = io.BytesIO()
    np.save(expected, array)
    assert (tmp_path / "a.npy").read_bytes() == expected.getvalue()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_told_by_its_number() -> None:
    with pytest.raises(OSError, match="No space left on device") as caught:
        save_array(Path("/dev/full"), np.arange(100_000))
    assert caught.value.errno == errno.ENOSPC

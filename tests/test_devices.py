"""How much memory was taken, and since when."""

import sys

import numpy as np
import pytest

from lightgc2n.devices import forget_peak, peak_bytes

BIG = 200_000_000


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux forgets")
def test_the_peak_counts_from_when_it_was_forgotten() -> None:
    taken = np.ones(BIG, dtype=np.uint8)
    high = peak_bytes("cpu")
    assert high > BIG
    del taken
    assert peak_bytes("cpu") == high  # it is a peak, not what is held now
    forget_peak("cpu")
    assert peak_bytes("cpu") < high - BIG / 2

"""How much memory was taken, since when, and whether it is kept."""

import subprocess
import sys

import pytest

from lightgc2n.devices import keep_memory

# In a process of its own: what a process holds depends on all that ran in it before.
PEAKS = """
import numpy as np
from lightgc2n.devices import forget_peak, peak_bytes

BIG = 200_000_000
taken = np.ones(BIG, dtype=np.uint8)
high = peak_bytes("cpu")
assert high > BIG
del taken
assert peak_bytes("cpu") > 0.99 * high  # it is a peak, not what is held now; the system counts it roughly
forget_peak("cpu")
assert peak_bytes("cpu") < high - BIG / 2
"""
KEPT = """
import resource
import numpy as np
from lightgc2n.devices import keep_memory

assert keep_memory()
np.ones(60_000_000, dtype=np.uint8)  # taken once, and given back to the process
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
np.ones(60_000_000, dtype=np.uint8)
assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 1000  # cleared anew it would be 14,648 pages
"""


def run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux forgets")
def test_the_peak_counts_from_when_it_was_forgotten() -> None:
    run(PEAKS)


@pytest.mark.skipif(not keep_memory(), reason="only glibc can be told to keep memory")
def test_large_arrays_are_taken_from_what_the_process_has() -> None:
    run(KEPT)

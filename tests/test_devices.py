"""Device names, block sizes and memory: all facts about a device stand in one file."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lightgc2n import devices
from lightgc2n.devices import (
    CPU,
    DEVICES,
    Device,
    choose_device,
    device_of,
    keep_memory,
    peak_bytes,
    reset_peak,
)
from lightgc2n.errors import SettingError
from lightgc2n.metrics.ranks import rows_per_tile

# In a process of its own: what a process holds depends on all that ran in it before.
PEAKS = """
import numpy as np
from lightgc2n.devices import peak_bytes, reset_peak

BIG = 200_000_000
taken = np.ones(BIG, dtype=np.uint8)
high = peak_bytes("cpu")
assert high > BIG
del taken
assert peak_bytes("cpu") > 0.99 * high  # it is a peak, not what is held now; the system counts it roughly
reset_peak("cpu")
assert peak_bytes("cpu") < high - BIG / 2
"""
KEPT = """
import resource
import numpy as np
from lightgc2n.devices import CPU, DEVICES, Device, choose_device, device_of, keep_memory
from lightgc2n.errors import SettingError
from lightgc2n.metrics.ranks import rows_per_tile

assert keep_memory()
np.ones(60_000_000, dtype=np.uint8)  # taken once, and given back to the process
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
np.ones(60_000_000, dtype=np.uint8)
assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 1000  # cleared anew it would be 14,648 pages
"""
BEYOND_2_GIB = """
import resource
import numpy as np
from lightgc2n.devices import keep_memory

assert keep_memory()
def write_one_byte_of_each_page() -> None:
    taken = np.empty(2_400_000_000, dtype=np.uint8)  # its other pages are never written, so they take no memory
    taken[: 4096 * 10_000 : 4096] = 1

write_one_byte_of_each_page()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
write_one_byte_of_each_page()
assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 1000  # cleared anew it would be 10,000 pages
"""


def run(code: str) -> None:
    # Without numpy's huge pages, of which one fault would count for 512 pages.
    environment = os.environ | {"NUMPY_MADVISE_HUGEPAGE": "0"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux forgets")
def test_the_peak_counts_from_when_it_was_forgotten() -> None:
    run(PEAKS)


def test_what_an_earlier_run_still_holds_on_a_gpu_is_not_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    # Runs trained in one process after another: a captured step keeps its memory, and the tables added it up.
    monkeypatch.setattr(devices, "_held_before", {})
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
    for held in (0, 68, 136):
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda held=held: held)
        monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda held=held: held + 500)
        reset_peak("cuda")
        assert peak_bytes("cuda") == 500


@pytest.mark.skipif(not keep_memory(), reason="only glibc can be told to keep memory")
def test_large_arrays_are_taken_from_what_the_process_has() -> None:
    run(KEPT)


@pytest.mark.skipif(not keep_memory(), reason="only glibc can be told to keep memory")
def test_more_than_2_gib_are_not_returned_either() -> None:
    run(BEYOND_2_GIB)


def test_a_device_is_added_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DEVICES, "tpu", Device("tpu", tile_rows=7, is_gpu=True))
    assert choose_device("tpu") == "tpu"
    assert choose_device("auto") in ("tpu", "cuda")
    assert rows_per_tile(3, "tpu") == 7


def test_an_unlisted_device_gets_the_sizes_of_a_cpu() -> None:
    assert device_of("xpu:1") == Device("xpu")
    assert rows_per_tile(3, "xpu") == rows_per_tile(3, "cpu") == CPU.tile_rows


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(SettingError, match="device: expected cpu, cuda or auto, found 'gpu'"):
        choose_device("gpu")


def test_no_other_file_decides_by_the_name_of_a_device() -> None:
    package = Path(__file__).parents[1] / "lightgc2n"
    deciding = re.compile(r"""[=!]= ["'](cpu|cuda)["']|is_cuda|["'](cpu|cuda)["'][:\]]""")
    files = [path for path in package.rglob("*.py") if path.name != "devices.py"]
    assert not [str(path) for path in files if deciding.search(path.read_text(encoding="utf-8"))]

"""The supported devices: availability, block sizes, memory, and whether the Triton kernels can be used.

All facts about a device are in this file. To add a device, write its class and list it in DEVICES.
"""

import ctypes
import gc
import os
import platform
import resource
import sys
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lightgc2n.errors import SettingError

WIDEST = 32  # widest matrix in a Triton kernel (5 s to compile; 64 x 64 takes 40 s); wider ones use cuBLAS


@dataclass(frozen=True)
class Device:
    """A kind of device and its block sizes; this class is the CPU, and any kind that is not listed.

    On a CPU a block fits into the cache; on a GPU a block keeps all units busy.
    """

    name: str
    tile_bytes: int = 16 * 2**20  # scores ranked at once
    tile_rows: int = 4096  # queries ranked at once; a model's memory per history grows with them
    logit_bytes: int = 2 * 2**20  # logits that a loss holds at once
    edges_at_once: int = 2**14  # edges whose two ends are gathered at once
    pairs_at_once: int = 2**15  # pairs of items whose attention is computed at once
    history_cells: int = 2**19  # pairs of a query and an event of its history that a training step holds at once
    is_gpu: bool = False  # asynchronous; gradients are added by atomics
    runs_triton: bool = False
    has_cuda_graphs: bool = False

    def is_available(self) -> bool:
        return True

    def describe(self) -> str:
        """Return the hardware as text, as results report it."""
        return f"{self.name} ({platform.machine()})"

    def list_units(self) -> list[tuple[str, str]]:
        """(torch name, description) of each unit of this kind, for `lightgc2n doctor`."""
        import torch

        return [(self.name, f"{torch.get_num_threads()} threads")]

    def synchronize(self) -> None:
        """Wait until all queued work is done."""

    def random_devices(self) -> list[int]:
        """The units whose random generators must be saved besides the CPU's."""
        return []

    def peak_bytes(self) -> int:
        """The peak resident memory of this process so far."""
        status = Path("/proc/self/status")
        if status.exists():  # getrusage would include the parent's memory at the start of this process
            line = next(line for line in status.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM:"))
            return int(line.split()[1]) * 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

    def reset_peak(self) -> None:
        """Restart the count of `peak_bytes`; only Linux can, other systems keep counting from the start."""
        if (switch := Path("/proc/self/clear_refs")).exists():
            try:
                switch.write_text("5", encoding="ascii")  # proc(5): resets the peak resident size
            except OSError:
                return  # a sandbox may forbid it


class CudaDevice(Device):
    """NVIDIA GPUs."""

    def is_available(self) -> bool:
        import torch

        return torch.cuda.is_available()

    def describe(self) -> str:
        import torch

        return torch.cuda.get_device_name()

    def list_units(self) -> list[tuple[str, str]]:
        import torch

        facts = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
        return [(f"{self.name}:{n}", f"{one.name}, {one.total_memory / 2**30:.0f} GiB") for n, one in enumerate(facts)]

    def synchronize(self) -> None:
        import torch

        torch.cuda.synchronize()

    def random_devices(self) -> list[int]:
        import torch

        return [torch.cuda.current_device()]

    def peak_bytes(self) -> int:
        import torch

        return torch.cuda.max_memory_allocated() - _held_before.get(self.name, 0)

    def reset_peak(self) -> None:
        """Restart the count without what is still held: a captured step of an earlier run keeps its memory."""
        import torch

        gc.collect()
        torch.cuda.reset_peak_memory_stats()
        _held_before[self.name] = torch.cuda.memory_allocated()


_held_before: dict[str, int] = {}  # bytes that were allocated when `reset_peak` was called
CPU = Device("cpu")
CUDA = CudaDevice(
    "cuda",
    tile_bytes=256 * 2**20,
    tile_rows=1024,
    logit_bytes=256 * 2**20,
    edges_at_once=2**20,
    pairs_at_once=2**22,
    history_cells=2**24,
    is_gpu=True,
    runs_triton=True,
    has_cuda_graphs=True,
)
DEVICES: dict[str, Device] = {device.name: device for device in (CPU, CUDA)}
DEVICE_HELP = f"{', '.join(DEVICES)} or auto."  # help of the option --device


def device_of(where: Any) -> Device:
    """The kind of device of a torch tensor, or of a name such as `cuda` or `cuda:1`."""
    name = where.partition(":")[0] if isinstance(where, str) else where.device.type
    return DEVICES.get(name) or Device(name)


def choose_device(name: str) -> str:
    """Return the device to use; `auto` selects a GPU if one is usable, else the CPU."""
    if name == "auto":
        return next((device.name for device in DEVICES.values() if device.is_gpu and device.is_available()), CPU.name)
    if name not in DEVICES:
        raise SettingError(f"device: expected {', '.join(DEVICES)} or auto, found {name!r}.")
    if not DEVICES[name].is_available():
        raise SettingError(f"device {name}: no usable GPU was found. Use cpu, or see lightgc2n doctor.")
    return name


def device_name(device: str) -> str:
    """Return the hardware of a result as text."""
    return device_of(device).describe()


def peak_bytes(device: str) -> int:
    """Return the peak memory so far: of the GPU if one is used, else of this process."""
    return device_of(device).peak_bytes()


def reset_peak(device: str) -> None:
    """Restart the count of `peak_bytes`, if the system can."""
    device_of(device).reset_peak()


def keep_memory() -> bool:
    """Let this process keep the memory of large arrays between steps; return whether the C library can.

    glibc returns arrays of 32 MB and more to the system after each use, and the system clears them at the next use. On
    large data this takes most of the time of a step. It also returns whatever is free at the end of its heap beyond a
    threshold; -1 disables that, while the largest threshold, 2 GiB, is less than a step on 880,000 accounts frees.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc, trim_threshold, mmap_max = ctypes.CDLL(None), -1, -4
    return bool(libc.mallopt(mmap_max, 0) and libc.mallopt(trim_threshold, -1))


def has_kernels(tensor: Any) -> bool:
    """Whether the Triton kernels can be used for a tensor: a GPU, float32 and an installed Triton."""
    return device_of(tensor).runs_triton and tensor.element_size() == 4 and _uses_triton()


def has_matrix_kernels(vectors: Any) -> bool:
    """The same for kernels that hold a square matrix, which take minutes to compile for wide vectors."""
    return has_kernels(vectors) and vectors.shape[-1] <= WIDEST


@cache
def _uses_triton() -> bool:
    return find_spec("triton") is not None and os.environ.get("LIGHTGC2N_KERNELS", "triton") != "plain"

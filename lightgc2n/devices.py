"""Where tensors live, and how much memory they took."""

import ctypes
import platform
import resource
import sys
from pathlib import Path

from lightgc2n.errors import SettingError


def choose_device(name: str) -> str:
    """`cpu` or `cuda`; `auto` takes the GPU where there is one."""
    import torch

    if name not in ("cpu", "cuda", "auto"):
        raise SettingError(f"--device: expected cpu, cuda or auto, found {name!r}.")
    if name == "cuda" and not torch.cuda.is_available():
        raise SettingError("--device cuda: no usable GPU was found. Use --device cpu, or see lightgc2n doctor.")
    return "cuda" if name != "cpu" and torch.cuda.is_available() else "cpu"


def device_name(device: str) -> str:
    """What a result was computed on, in words."""
    import torch

    return torch.cuda.get_device_name() if device == "cuda" else f"cpu ({platform.machine()})"


def peak_bytes(device: str) -> int:
    """The most memory that this process has held so far: of the GPU where one is used, of the machine otherwise."""
    if device == "cuda":
        import torch

        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would also count what the parent held when it started this process
        line = next(line for line in status.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def keep_memory() -> bool:
    """Lets this process keep the memory of large arrays between steps; whether that could be had.

    glibc hands arrays of 32 MB and more back to the system after each use, which must clear them again at the next: on
    large data most of a step's time.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc, trim_threshold, mmap_max = ctypes.CDLL(None), -1, -4
    return bool(libc.mallopt(mmap_max, 0) and libc.mallopt(trim_threshold, 2**31 - 1))


def forget_peak(device: str) -> None:
    """Lets `peak_bytes` count from now on; where the system cannot (other than Linux), it goes on counting."""
    if device == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats()
    elif (switch := Path("/proc/self/clear_refs")).exists():
        try:
            switch.write_text("5", encoding="ascii")  # proc(5): sets the peak resident size to the present one
        except OSError:
            return  # a sandbox may forbid it

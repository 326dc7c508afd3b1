"""What the options --cluster and --threads give to a command that trains."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lightgc2n.errors import SettingError

if TYPE_CHECKING:
    from lightgc2n.experiments.subprocesses import Runner


@contextmanager
def runner_for(address: str | None, threads: int | None, device: str) -> "Iterator[tuple[Runner | None, str]]":
    """The runner of a command and its device; without a cluster no runner, which means this machine."""
    from lightgc2n.devices import choose_device

    if address is None:
        if threads is not None:
            raise SettingError("--threads needs --cluster; on this machine set OMP_NUM_THREADS.")
        yield None, choose_device(device)
        return
    from lightgc2n.cluster.run_children import cluster_runner

    chosen = device_of_nodes(device)
    with cluster_runner(address, threads or 1, chosen) as runner:
        yield runner, chosen


def device_of_nodes(device: str) -> str:
    """The device of every task: the CPU unless a GPU is named, because `auto` could differ between nodes."""
    if device not in ("auto", "cpu", "cuda"):
        raise SettingError(f"--device: a cluster takes cpu or cuda, which is one GPU for each task, found {device!r}.")
    return "cpu" if device == "auto" else device

"""What the options --cluster and --threads give to a command that trains."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightgc2n.errors import SettingError

if TYPE_CHECKING:
    from lightgc2n.cluster.bulk import Part
    from lightgc2n.experiments.subprocesses import Runner
    from lightgc2n.recommending.recommender import Recommender


@contextmanager
def runner_for(address: str | None, threads: int | None, device: str) -> "Iterator[tuple[Runner | None, str]]":
    """The runner of a command and its device; without a cluster no runner, which means this machine."""
    from lightgc2n.devices import choose_device

    if address is None:
        if threads is not None:
            raise SettingError("--threads needs --cluster; on this machine set OMP_NUM_THREADS.")
        yield None, choose_device(device)
        return
    chosen = device_of_nodes(device)
    from lightgc2n.cluster.run_children import cluster_runner

    with cluster_runner(address, threads or 1, chosen) as runner:
        yield runner, chosen


def write_on_cluster(
    address: str,
    threads: int | None,
    device: str,
    source: "tuple[Path, Path | None]",
    out: Path | None,
    options: "Callable[[Recommender], dict[str, Any] | None]",
    force: bool,
) -> "list[Part]":
    """Write the lists, or the people, of all accounts to the folder `out`; return the parts in order.

    Args:
        source: the run or bundle, and the run's dataset if it has moved.
        options: of the lists, given the recommender; None: count the people.
    """
    if out is None or out.suffix in (".csv", ".jsonl", ".parquet"):
        raise SettingError("--cluster writes a folder of Parquet files: give --out DIR.")
    from lightgc2n.files.atomic_writes import refuse_existing
    from lightgc2n.recommending.loading import load

    refuse_existing(out, force)
    chosen = device_of_nodes(device)
    with runner_for(address, threads, chosen) as (runner, _):
        from lightgc2n.cluster.bulk import write_parts
        from lightgc2n.cluster.run_children import ClusterRunner

        assert isinstance(runner, ClusterRunner)
        recommender = load(*source)
        wanted = options(recommender)
        if wanted is None:
            _ = recommender.finder  # learn it, if need be, before the run is sent to the nodes
        parts = dict(write_parts(runner, *source, out, recommender, wanted, chosen, force))
    return [parts[number] for number in sorted(parts)]


def device_of_nodes(device: str) -> str:
    """The device of every task: the CPU unless a GPU is named, because `auto` could differ between nodes."""
    if device not in ("auto", "cpu", "cuda"):
        raise SettingError(f"--device: a cluster takes cpu or cuda, which is one GPU for each task, found {device!r}.")
    return "cpu" if device == "auto" else device

"""One model on several machines: worker 0 trains here and writes the run, the others are tasks on nodes of a cluster.

Each task gets its part of the data with its arguments, so no disk is shared. A worker whose node dies or hangs ends the
attempt; all workers then start again from the checkpoint of the last epoch, on the nodes that are left.
"""

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightgc2n.cluster.connect import Cluster, Node, connect
from lightgc2n.devices import device_of
from lightgc2n.errors import ClusterError, LightGC2NError, TrainingError
from lightgc2n.layers.workers import LostWorkerError
from lightgc2n.progress import say
from lightgc2n.training.checkpoints import Progress
from lightgc2n.training.distributed import SECONDS_TO_ANSWER, Job, join_run, train_with, way_to_divide
from lightgc2n.training.run import OpenData
from lightgc2n.training.runs import RunPlan

if TYPE_CHECKING:
    from lightgc2n.cluster.pings import Pings

SECONDS_BETWEEN_CHECKS = 1.0  # of the nodes
LOOPBACK = "127.0.0.1"


def train_on_cluster(
    address: str,
    plan: RunPlan,
    folder: Path,
    workers: int,
    device: str,
    threads: int,
    seconds: float = math.inf,
    data: OpenData | None = None,
) -> Progress:
    """Train the planned model in `folder` with so many workers, or resume it.

    Args:
        device: of every worker.
        threads: CPUs of every worker.
    """
    import torch

    torch.set_num_threads(threads)  # run.json records it
    way_to_divide(plan.model, plan.settings)  # raises an error before anything is asked of the cluster
    with connect(address) as cluster:
        tasks = Tasks(cluster, device, threads)
        tasks.choose_nodes(workers - 1)
        try:
            return train_with(
                tasks.start, plan, folder, workers, device, seconds,
                data=data, host=tasks.host, seconds_of_silence=cluster.limits.hung,
            )  # fmt: skip
        finally:
            tasks.close()


class LostNodeError(LostWorkerError):
    """A node that ran a worker died, or does not answer."""


class Tasks:
    """Starts the workers of a run on nodes of a cluster, again after each lost worker."""

    def __init__(self, cluster: Cluster, device: str, threads: int) -> None:
        from lightgc2n.cluster.pings import Pings

        self.cluster, self.device, self.threads = cluster, device, threads
        home = next(node for node in cluster.nodes() if node.id == cluster.home)
        self.host = LOOPBACK if home.is_local else home.address
        self.gpus = 1 if device_of(device).is_gpu else 0
        self.pings = Pings(cluster, threads, self.gpus)
        self._jobs: dict[int, Any] = {}  # references to the jobs, which are sent to the cluster once
        self._lost: set[str] = set()  # nodes that lost a worker; the cluster may list a dead node for some seconds

    def start(self, jobs: list[Job], port: int) -> "RunningTasks":
        """Start a task for each job."""
        import ray

        nodes = self.choose_nodes(len(jobs))
        for job in jobs:
            if job.number not in self._jobs:
                self._jobs[job.number] = ray.put(job)
        task = ray.remote(max_calls=1)(join_run)  # the process ends with its task and returns the memory
        running = {}
        for job, node in zip(jobs, nodes, strict=True):
            options = {"num_cpus": self.threads, "num_gpus": self.gpus, "max_retries": 0}
            placed = task.options(**options, label_selector={"ray.io/node-id": node.id})
            arguments = self._jobs[job.number], self.host, port, self.device, SECONDS_TO_ANSWER
            running[job.number] = placed.remote(*arguments), node
            say(f"worker {job.number} of {job.count} on node {node.name}")
        return RunningTasks(self.pings, running, self._lost)

    def close(self) -> None:
        """End what watches the nodes."""
        self.pings.close()

    def choose_nodes(self, count: int) -> list[Node]:
        """Return a node for each worker but the first, other machines before this one; wait for nodes for a while.

        Raises:
            ClusterError: the cluster is too small.
        """
        until = time.monotonic() + self.cluster.limits.fit
        while True:
            nodes = self.cluster.nodes()
            chosen = self._fitting(nodes, count)
            if len(chosen) == count:
                return chosen
            if time.monotonic() > until:
                free = ", ".join(f"{node.name} {node.cpus:g}" for node in nodes)
                raise ClusterError(
                    f"{self.cluster.address}: {count} workers beside this machine's need {self.threads} CPUs each; the "
                    f"nodes have {free}. Use fewer workers or threads, or start more nodes."
                )
            time.sleep(min(1.0, self.cluster.limits.fit / 5))

    def _fitting(self, nodes: list[Node], count: int) -> list[Node]:
        """The nodes of as many of `count` workers as fit, the emptiest first."""
        avoided = self._lost | self.pings.silent
        is_home = {node.id: node.id == self.cluster.home for node in nodes}  # it has worker 0
        free = {node.id: node.cpus - self.threads * is_home[node.id] for node in nodes}
        gpus = {node.id: node.gpus - self.gpus * is_home[node.id] for node in nodes}
        chosen: list[Node] = []
        for _ in range(count):
            fit = [node for node in nodes if free[node.id] >= self.threads and gpus[node.id] >= self.gpus]
            if not fit:
                break
            best = max(fit, key=lambda node: (node.id not in avoided, not is_home[node.id], free[node.id]))
            free[best.id] -= self.threads
            gpus[best.id] -= self.gpus
            chosen.append(best)
        return chosen


class RunningTasks:
    """The tasks of one attempt."""

    def __init__(self, pings: "Pings", running: dict[int, tuple[Any, Node]], lost: set[str]) -> None:
        self.pings, self.running, self._lost = pings, running, lost
        self._ended: dict[int, Exception | None] = {}
        self._checked = time.monotonic()

    def ended(self) -> dict[int, Exception | None]:
        """The workers that have ended, with the error of each that failed; those on dead or silent nodes are lost."""
        import ray

        waiting = {number: task for number, (task, _) in self.running.items() if number not in self._ended}
        done = ray.wait(list(waiting.values()), num_returns=len(waiting), timeout=0)[0] if waiting else []
        for number, task in waiting.items():
            if task in done:
                self._ended[number] = _error_of(number, task, self.running[number][1])
        if time.monotonic() - self._checked > SECONDS_BETWEEN_CHECKS:
            self._checked = time.monotonic()
            self.pings.newly_silent()
            alive = {node.id for node in self.pings.cluster.nodes()} - self.pings.silent
            for number, (_, node) in self.running.items():
                if node.id not in alive:
                    self._ended.setdefault(number, LostNodeError(f"worker {number}: node {node.name} does not answer"))
        self._lost |= {self.running[number][1].id for number, error in self._ended.items() if _is_lost(error)}
        return dict(self._ended)

    def leave(self, number: int) -> None:
        self._lost.add(self.running[number][1].id)

    def stop(self) -> None:
        import ray

        for task, _ in self.running.values():
            ray.cancel(task, force=True)


def _is_lost(error: Exception | None) -> bool:
    """Whether a node lost its worker, which did not report anything itself."""
    return isinstance(error, LostNodeError)


def _error_of(number: int, task: Any, node: Node) -> Exception | None:
    """The error of a task that has ended."""
    import ray
    from ray.exceptions import RayError, RayTaskError

    try:
        ray.get(task)
    except RayTaskError as problem:
        if isinstance(problem.cause, LightGC2NError):
            return problem.cause
        return TrainingError(f"worker {number} on node {node.name}: {problem.cause}")
    except RayError as problem:
        return LostNodeError(f"worker {number}: lost on node {node.name} ({type(problem).__name__})")
    return None

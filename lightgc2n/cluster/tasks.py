"""Run independent tasks on a cluster: a task that is lost, hangs, or sits on a node that does not answer runs again.

Every task gives the same answer wherever it runs, so a task may run twice: the first answer counts.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from lightgc2n.cluster.connect import cause_of
from lightgc2n.cluster.pings import Pings
from lightgc2n.cluster.run_children import ClusterRunner
from lightgc2n.errors import ClusterError
from lightgc2n.progress import say

MOST_LOST = 5  # times that one task may be lost
PER_CPU = 2  # tasks that wait or run for each CPU
LATE = 2  # times the seconds of the slowest task that is done: another one hangs perhaps


@dataclass
class _Task:
    number: int
    references: list[Any] = field(default_factory=list)
    lost: int = 0
    submitted: float = 0.0  # when it was submitted last

    @property
    def seconds(self) -> float:
        """The seconds since then."""
        return time.monotonic() - self.submitted


def run_tasks(
    runner: ClusterRunner,
    work: Callable[..., Any],
    shared: Sequence[Any],
    parts: Sequence[Any],
    deliver: Callable[[], None],
) -> Iterator[tuple[int, Any]]:
    """Yield the number of each part and its answer, in the order in which they are done.

    Args:
        work: called with `shared` and one part.
        shared: references to what all tasks need.
        deliver: called between calls of Ray; raises what a signal has asked for.
    """
    runner.require_fit()
    waiting, running = [_Task(number) for number in range(len(parts))], dict[Any, _Task]()
    pings, slowest = Pings(runner.cluster, runner.threads, runner.gpus), 0.0

    def submit(task: _Task) -> None:
        call = ray.remote(work).options(
            num_cpus=runner.threads, num_gpus=runner.gpus, max_retries=0, label_selector=pings.elsewhere
        )
        reference = call.remote(*shared, parts[task.number])
        task.references.append(reference)
        task.submitted = time.monotonic()
        running[reference] = task

    try:
        while waiting or running:
            deliver()
            most = PER_CPU * max(1, sum(int(node.cpus // runner.threads) for node in runner.cluster.nodes()))
            while waiting and len(running) < most:
                submit(waiting.pop(0))
            done, _ = ray.wait(list(running), num_returns=1, timeout=1.0)
            for reference in done:
                task = running.pop(reference, None)
                if task is None:
                    continue
                try:
                    answer = ray.get(reference)
                except RayTaskError as problem:
                    raise cause_of(problem) from None
                except RayError as problem:
                    _count_loss(runner, task, problem)
                    submit(task)
                    continue
                for other in task.references:
                    if running.pop(other, None) is not None:
                        ray.cancel(other, force=True)
                slowest = max(slowest, task.seconds)
                yield task.number, answer
            limit = max(runner.cluster.limits.hung, LATE * slowest) if slowest and not waiting else math.inf
            silent = pings.newly_silent()
            for task in {id(task): task for task in running.values()}.values():
                if silent or task.seconds > limit:
                    say(f"part {task.number} has no answer after {task.seconds:.0f} s and runs again")
                    submit(task)
            if not runner.fits():
                runner.require_fit()
    finally:
        for reference in running:
            ray.cancel(reference, force=True)
        pings.close()


def _count_loss(runner: ClusterRunner, task: _Task, problem: RayError) -> None:
    task.lost += 1
    reason = str(problem).strip().splitlines()[0]
    if task.lost > MOST_LOST:
        raise ClusterError(f"{runner.cluster.address}: part {task.number} was lost {task.lost} times: {reason}")
    say(f"part {task.number} was lost with its node and runs again")

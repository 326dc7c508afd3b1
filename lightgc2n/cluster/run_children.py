"""Run children on a cluster: what `experiments.subprocesses.run_children` does with subprocesses, with Ray tasks.

Each attempt at a run is a task without retries of Ray's own: this module starts the next attempt, from the last
checkpoint at home, when a node has died or is silent for too long. Such a node gets no work until it is heard again.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import ray
import torch
from ray.exceptions import RayError, RayTaskError

from lightgc2n.cluster.attempts import Job, Outcome, attempt, read_folder
from lightgc2n.cluster.connect import Cluster, cause_of, connect, deferred_signals, versions_here
from lightgc2n.cluster.home import Home, Sight
from lightgc2n.cluster.pings import NODE, Pings
from lightgc2n.data.dataset import DATASET
from lightgc2n.errors import ClusterError, OutputError
from lightgc2n.experiments.subprocesses import SECONDS_BETWEEN_NEWS, Child, Ended, Runner, TimeBudget
from lightgc2n.progress import say
from lightgc2n.training.checkpoints import epoch_log, epochs_of
from lightgc2n.training.runs import COMMIT_VARIABLE, read_run, source_commit

MOST_LOST = 5  # attempts in a row that were lost without one more epoch
SECONDS_TO_CANCEL = 5.0
BEATS = 6  # messages of a node within the limit of its silence


@dataclass
class _Work:
    """A child, and its newest attempt."""

    child: Child
    attempt: int
    task: Any = None
    node: str = ""  # the one that was reported last
    epochs: int = 0  # when an attempt was lost
    lost: list[str] = field(default_factory=list)  # the nodes of attempts that were lost since then


@dataclass
class ClusterRunner:
    """Runs children as tasks of so many CPUs and GPUs."""

    cluster: Cluster
    threads: int = 1
    gpus: int = 0

    def __call__(self, children: Iterable[Child], at_once: int, budget: TimeBudget, ended: Ended) -> None:
        """Run all children; an error, or Ctrl-C, cancels them all. `at_once` is left to the cluster."""
        with deferred_signals() as deliver:
            self.require_fit()
            deliver()
            session = _Session(self, [_Work(child, 0) for child in children], budget, ended)
            try:
                session.run(deliver)
            finally:
                session.close()

    def require_fit(self) -> None:
        """Wait until a node can take a task; raise an error if none can within the limit."""
        until = time.monotonic() + self.cluster.limits.fit
        while not self.fits():
            if time.monotonic() > until:
                nodes = ", ".join(f"{node.name} {node.cpus:g} and {node.gpus:g}" for node in self.cluster.nodes())
                raise ClusterError(
                    f"{self.cluster.address}: no node can take a task of {self.threads} CPUs and {self.gpus} GPUs; "
                    f"the nodes have CPUs and GPUs: {nodes or 'none'}. Lower --threads, or add a node."
                )
            time.sleep(0.2)

    def fits(self) -> bool:
        """Whether any live node has enough CPUs and GPUs, busy or not."""
        return any(node.cpus >= self.threads and node.gpus >= self.gpus for node in self.cluster.nodes())


@contextmanager
def cluster_runner(address: str, threads: int = 1, device: str = "cpu") -> Iterator[Runner]:
    """A runner on the cluster at HOST:PORT.

    Results depend on the number of threads, so this process computes with as many, and records them in each run.
    """
    before = torch.get_num_threads()
    with connect(address) as cluster:
        torch.set_num_threads(threads)
        try:
            yield ClusterRunner(cluster, threads, int(device.startswith("cuda")))
        finally:
            torch.set_num_threads(before)


class _Session:
    """The children of one call, their attempts, and the actor that keeps their runs."""

    def __init__(self, runner: ClusterRunner, works: list[_Work], budget: TimeBudget, ended: Ended) -> None:
        self.runner, self.budget, self.ended = runner, budget, ended
        self.limits = runner.cluster.limits
        self.open = {work.child.name: work for work in works}
        self.attempts = count(1)
        self.pings = Pings(runner.cluster, runner.threads, runner.gpus)
        self.refused: dict[str, int] = {}  # run -> refusals that were reported
        self.data: dict[Path, Any] = {}
        self.abandoned: list[Any] = []
        self.fitted = self.news = time.monotonic()
        commit = source_commit()
        self.environment = {"OMP_NUM_THREADS": str(runner.threads), "OMP_WAIT_POLICY": "PASSIVE"}
        self.environment |= {COMMIT_VARIABLE: commit} if commit else {}
        self.home = ray.remote(Home).options(num_cpus=0, label_selector={NODE: runner.cluster.home}).remote()

    def run(self, deliver: Callable[[], None]) -> None:
        """Run until all children have ended.

        Args:
            deliver: called between calls of Ray; raises what a signal has asked for.
        """
        left = self.budget.left()
        until = time.monotonic() + left if left < math.inf else math.inf
        for work in self.open.values():
            self._refuse_other_threads(work.child)
            self._at_home("open", work.child.name, work.child.run, until)
            self._submit(work)
        while self.open:
            deliver()
            tasks = {work.task: work for work in self.open.values()}
            done, _ = ray.wait(list(tasks), num_returns=1, timeout=min(1.0, self.limits.hung / BEATS))
            for task in done:
                self._finished(tasks[task])
            self._look()

    def close(self) -> None:
        """Cancel what is left, first so that it can clean up."""
        left = [*self.abandoned, *(work.task for work in self.open.values() if work.task is not None)]
        for force in (False, True):
            for task in left:
                ray.cancel(task, force=force)
            left = ray.wait(left, num_returns=len(left), timeout=SECONDS_TO_CANCEL)[1] if left else []
        self.pings.close()
        ray.kill(self.home)

    def _submit(self, work: _Work) -> None:
        work.attempt = next(self.attempts)
        self._at_home("expect", work.child.name, work.attempt)
        folder = Path(read_run(work.child.run)["data"]["folder"])
        if folder not in self.data:
            self.data[folder] = ray.put(read_folder(folder, DATASET))
        arguments = tuple(map(str, work.child.arguments[1:]))  # the first one is the run's folder
        beat = min(1.0, self.limits.hung / BEATS)
        job = Job(
            work.child.name,
            work.attempt,
            work.child.module,
            arguments,
            folder.name,
            self.environment,
            beat,
            versions_here(),
        )
        task = ray.remote(attempt).options(
            num_cpus=self.runner.threads,
            num_gpus=self.runner.gpus,
            max_retries=0,
            label_selector=self.pings.elsewhere,
        )
        work.task = task.remote(self.home, job, self.data[folder])

    def _finished(self, work: _Work) -> None:
        """Take the outcome of a task; a lost one is tried again."""
        try:
            outcome: Outcome = ray.get(work.task)
        except RayTaskError as problem:
            raise cause_of(problem) from None
        except RayError as problem:
            self._lost(work, str(problem).strip().splitlines()[0])
            return
        with work.child.log.open("a", encoding="utf-8") as log:
            log.write(outcome.log)
        self._end(work, outcome.code or 0)

    def _end(self, work: _Work, code: int) -> None:
        del self.open[work.child.name]
        self._at_home("close", work.child.name)
        if find_spec("tensorboard") is not None and epochs_of(work.child.run):
            with epoch_log(work.child.run, epochs_of(work.child.run)):
                pass  # a node sends metrics.jsonl; TensorBoard's files are written from it here
        self.ended(work.child, code)

    def _lost(self, work: _Work, why: str) -> None:
        """Start the next attempt, unless several have not finished an epoch."""
        epochs, node = epochs_of(work.child.run), self._name(work.node)
        work.lost = [*(work.lost if epochs == work.epochs else []), node]
        work.epochs = epochs
        if len(work.lost) >= MOST_LOST:
            with work.child.log.open("a", encoding="utf-8") as log:
                log.write(f"error: lost on {', '.join(work.lost)} without one more epoch: {why}\n")
            self._end(work, 1)
            return
        say(f"{work.child.name}: lost on {node} ({why}); resumes after epoch {epochs}")
        self._submit(work)

    def _look(self) -> None:
        """Report where runs are, and take them from nodes that are silent."""
        sights: dict[str, Sight] = self._at_home("sights")
        hung = self.pings.newly_silent()
        for name, work in self.open.items():
            sight = sights[name]
            for node in sight.refused[self.refused.get(name, 0) :]:
                say(f"{name}: a late checkpoint from {self._name(node)} is refused")
            self.refused[name] = len(sight.refused)
            if sight.node and sight.node != work.node:
                work.node = sight.node
                say(f"{name}: on node {self._name(sight.node)}, from epoch {sight.epochs + 1}")
            if sight.node and sight.silent > self.limits.hung:
                hung.add(sight.node)
        if hung:
            self._leave(hung, sights)
        self._report(sights)
        self._require_fit()

    def _leave(self, hung: set[str], sights: dict[str, Sight]) -> None:
        """Start anew, elsewhere, what runs on silent nodes, and what waits: Ray may have sent it there."""
        self.pings.silent |= hung
        for name, work in list(self.open.items()):
            if sights[name].node in hung or not sights[name].node:
                self.abandoned.append(work.task)  # if it wakes up, home refuses it, and it ends
                if sights[name].node:
                    self._lost(work, f"silent for {self.limits.hung:g} s")
                else:
                    self._submit(work)

    def _report(self, sights: dict[str, Sight]) -> None:
        if self.open and time.monotonic() - self.news > SECONDS_BETWEEN_NEWS:
            self.news = time.monotonic()
            running = {name: sights[name] for name in self.open if sights[name].node}
            where = ", ".join(
                f"{name} (epoch {sight.epochs + 1}, {self._name(sight.node)})" for name, sight in running.items()
            )
            say(f"{len(self.open) - len(running)} waiting; running: {where or 'none'}")

    def _require_fit(self) -> None:
        """Raise an error when all nodes that could take a task are gone for longer than the limit."""
        if self.runner.fits():
            self.fitted = time.monotonic()
        elif time.monotonic() - self.fitted > self.limits.fit:
            self.runner.require_fit()

    def _refuse_other_threads(self, child: Child) -> None:
        threads = read_run(child.run).get("threads", self.runner.threads)  # runs of early versions do not say
        if epochs_of(child.run) and threads != self.runner.threads:
            raise OutputError(
                f"{child.run} was trained with {threads} threads, and results depend on their number. "
                f"Resume it with --threads {threads}, or choose another --out."
            )

    def _name(self, node: str) -> str:
        known = (one.name for one in self.runner.cluster.nodes() if one.id == node)
        return next(known, f"{node[:6]}" if node else "a node")

    def _at_home(self, method: str, *arguments: Any) -> Any:
        try:
            return ray.get(getattr(self.home, method).remote(*arguments))
        except RayTaskError as problem:
            raise cause_of(problem) from None
        except RayError as problem:
            reason = str(problem).strip().splitlines()[0]
            raise ClusterError(f"the connection to {self.runner.cluster.address} is lost: {reason}") from None

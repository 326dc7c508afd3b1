"""Slow work on a few threads: clients take turns, none may wait with more than a few requests, and what nobody waits
for is not done.
"""

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from lightgc2n.serving.errors import busy

Result = TypeVar("Result")


class AbandonedError(Exception):
    """Nobody waits for the work any more."""


@dataclass(eq=False)
class Job(Generic[Result]):
    """Work that waits or runs."""

    client: str
    work: "Callable[[Check], Result]"
    result: "asyncio.Future[Result]"
    abandoned: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Stop the work, from inside, if nobody waits for it."""
        if self.abandoned.is_set():
            raise AbandonedError

    def run(self) -> Result:
        self.check()
        return self.work(self.check)


Check = Callable[[], None]


class FairPool:
    """Runs work of many clients.

    Args:
        most_waiting: jobs that may wait. Beyond it a job of the client with most of them is refused.
        most_of_one: jobs of one client that may wait or run.
    """

    def __init__(self, name: str, threads: int, most_waiting: int, most_of_one: int) -> None:
        self._most_waiting, self._most_of_one, self._threads = most_waiting, most_of_one, threads
        self._waiting: OrderedDict[str, deque[Job[Any]]] = OrderedDict()  # by client, whose turn it is first
        self._running: list[Job[Any]] = []
        self._pool = ThreadPoolExecutor(threads, name)
        for started in [self._pool.submit(int) for _ in range(threads)]:  # a thread may not be had later
            started.result()

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def running(self) -> int:
        return len(self._running)

    async def run(self, client: str, work: Callable[[Check], Result]) -> Result:
        """The result of the work; when the caller is cancelled, so is the work.

        Args:
            work: is given a function to call between its steps, which stops it once nobody waits.
        """
        job = self.start(client, work)
        try:
            return await job.result
        finally:
            self.stop(job)

    def start(self, client: str, work: Callable[[Check], Result]) -> Job[Result]:
        """The job that does the work, or an error when its client has too many."""
        job = Job(client, work, asyncio.get_running_loop().create_future())
        self._take(job)
        self._go_on()
        return job

    def stop(self, job: Job[Any]) -> None:
        """Give up a job that nobody waits for; one that is done stays so."""
        job.abandoned.set()
        self._forget(job)
        if not job.result.cancel() and not job.result.cancelled():
            job.result.exception()  # it is known now, also where nobody has looked at it

    def close(self) -> None:
        for job in [*self._running, *(job for jobs in self._waiting.values() for job in jobs)]:
            job.abandoned.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _take(self, job: Job[Any]) -> None:
        own = self._waiting.get(job.client, deque())
        if len(own) + sum(one.client == job.client for one in self._running) >= self._most_of_one:
            raise busy(f"{self._most_of_one:,} such requests of yours wait already; ask again in a moment.")
        if self.waiting >= self._most_waiting:
            longest = max(self._waiting.values(), key=len)
            if len(longest) <= len(own) + 1:
                raise busy(f"{self.waiting:,} such requests wait already; ask again in a moment.")
            last = longest.pop()
            if not last.result.done():  # its caller may have gone in this very moment
                last.result.set_exception(busy("others wait too, and you have asked most; ask again in a moment."))
        self._waiting.setdefault(job.client, own).append(job)

    def _forget(self, job: Job[Any]) -> None:
        jobs = self._waiting.get(job.client)
        if jobs is not None and job in jobs:
            jobs.remove(job)
        if not jobs:
            self._waiting.pop(job.client, None)

    def _go_on(self) -> None:
        while self._waiting and len(self._running) < self._threads:
            client, jobs = self._waiting.popitem(last=False)
            if not jobs:
                continue
            job = jobs.popleft()
            if jobs:
                self._waiting[client] = jobs  # behind all others
            self._running.append(job)
            done = asyncio.get_running_loop().run_in_executor(self._pool, job.run)
            done.add_done_callback(partial(self._give, job))

    def _give(self, job: Job[Any], done: "asyncio.Future[Any]") -> None:
        self._running.remove(job)
        problem = None if done.cancelled() else done.exception()
        if not job.result.done():
            if done.cancelled() or isinstance(problem, AbandonedError):
                job.result.cancel()
            elif problem is not None:
                job.result.set_exception(problem)
            else:
                job.result.set_result(done.result())
        self._go_on()

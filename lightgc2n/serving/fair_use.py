"""Fair use of threads and memory: clients take turns, and none can use more than half of the memory.

The queue of each client is short, and abandoned work is skipped. The memory of requests is an estimate."""

import asyncio
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from lightgc2n.serving.errors import RefusedError, busy

Result = TypeVar("Result")


class AbandonedError(Exception):
    """The client of the work has gone."""


@dataclass(eq=False)
class Job(Generic[Result]):
    """Work that is queued or running."""

    client: str
    work: "Callable[[Check], Result]"
    result: "asyncio.Future[Result]"
    abandoned: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Raise AbandonedError if the client has gone; the work calls this between its steps."""
        if self.abandoned.is_set():
            raise AbandonedError

    def run(self) -> Result:
        self.check()
        return self.work(self.check)


Check = Callable[[], None]


class FairPool:
    """Runs the work of many clients in turn.

    Args:
        most_waiting: the most queued jobs; beyond it, a job of the client with the longest queue gets an error.
        most_per_client: the most queued and running jobs of one client.
    """

    def __init__(self, name: str, threads: int, most_waiting: int, most_per_client: int) -> None:
        self._most_waiting, self._most_per_client, self._threads = most_waiting, most_per_client, threads
        self._waiting: OrderedDict[str, deque[Job[Any]]] = OrderedDict()  # queues by client, the next turn first
        self._running: list[Job[Any]] = []
        self._pool = ThreadPoolExecutor(threads, name)
        # Start the threads now: later the system may refuse to.
        for started in [self._pool.submit(int) for _ in range(threads)]:
            started.result()

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def running(self) -> int:
        return len(self._running)

    def start(self, client: str, work: Callable[[Check], Result]) -> Job[Result]:
        """Queue the work and return its job; raise an error if the client has too many jobs.

        Args:
            work: receives a function to call between its steps, which raises once the job is stopped.
        """
        job = Job(client, work, asyncio.get_running_loop().create_future())
        self._enqueue(job)
        self._start_next_jobs()
        return job

    def stop(self, job: Job[Any]) -> None:
        """Abandon a job; a finished one is not changed."""
        job.abandoned.set()
        self._remove(job)
        if not job.result.cancel() and not job.result.cancelled():
            job.result.exception()  # mark the exception as retrieved, or asyncio logs it

    def close(self) -> None:
        for job in [*self._running, *(job for jobs in self._waiting.values() for job in jobs)]:
            job.abandoned.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _enqueue(self, job: Job[Any]) -> None:
        own = self._waiting.get(job.client, deque())
        if len(own) + sum(one.client == job.client for one in self._running) >= self._most_per_client:
            raise busy(f"{self._most_per_client:,} such requests of yours wait already; retry in a moment.")
        if self.waiting >= self._most_waiting:
            longest = max(self._waiting.values(), key=len)
            if len(longest) <= len(own) + 1:
                raise busy(f"{self.waiting:,} such requests wait already; retry in a moment.")
            last = longest.pop()
            if not last.result.done():  # its caller may have just gone
                last.result.set_exception(
                    busy("the queue is full and you have the most requests in it; retry in a moment.")
                )
        self._waiting.setdefault(job.client, own).append(job)

    def _remove(self, job: Job[Any]) -> None:
        jobs = self._waiting.get(job.client)
        if jobs is not None and job in jobs:
            jobs.remove(job)
        if not jobs:
            self._waiting.pop(job.client, None)

    def _start_next_jobs(self) -> None:
        while self._waiting and len(self._running) < self._threads:
            client, jobs = self._waiting.popitem(last=False)
            if not jobs:
                continue
            job = jobs.popleft()
            if jobs:
                self._waiting[client] = jobs  # to the end of the turns
            self._running.append(job)
            done = asyncio.get_running_loop().run_in_executor(self._pool, job.run)
            done.add_done_callback(partial(self._finish, job))

    def _finish(self, job: Job[Any], done: "asyncio.Future[Any]") -> None:
        self._running.remove(job)
        problem = None if done.cancelled() else done.exception()
        if not job.result.done():
            if done.cancelled() or isinstance(problem, AbandonedError):
                job.result.cancel()
            elif problem is not None:
                job.result.set_exception(problem)
            else:
                job.result.set_result(done.result())
        self._start_next_jobs()


BYTES_PER_BODY_BYTE = 16  # memory of a parsed body, per byte of JSON
BYTES_PER_LISTED_ITEM = 300  # memory of an item of a list until the list is sent
UNCOUNTED_BYTES = 2**16  # of a request that are not counted: most requests are small


class RequestMemory:
    """Estimated bytes of the bodies and responses of one worker.

    Args:
        most: the limit in bytes; one client may use half of it.
    """

    def __init__(self, most: int) -> None:
        self._most, self.held = most, 0
        self._of_client: Counter[str] = Counter()

    def reserve(self, client: str) -> "Reservation":
        """An empty reservation for a request of this client."""
        return Reservation(self, client)

    def change(self, client: str, bytes_: int) -> bool:
        """Add or release bytes; return whether they fit. If nothing is reserved, any request fits."""
        own = self._of_client[client] + bytes_
        if bytes_ > 0 and self.held and (self.held + bytes_ > self._most or own > max(self._most // 2, bytes_)):
            if not self._of_client[client]:
                del self._of_client[client]
            return False
        self.held += bytes_
        self._of_client[client] = own
        if not own:
            del self._of_client[client]
        return True


class Reservation:
    """The bytes that one request has reserved."""

    def __init__(self, memory: RequestMemory, client: str) -> None:
        self._memory, self._client = memory, client
        self._bytes = 0

    def grow_to(self, bytes_: int) -> bool:
        """Reserve at least so many bytes; return whether they fit."""
        more = bytes_ - self._bytes
        if bytes_ <= UNCOUNTED_BYTES or more <= 0:
            return True
        if not self._memory.change(self._client, more):
            return False
        self._bytes = bytes_
        return True

    def need(self, bytes_: int) -> None:
        """Reserve at least so many bytes, or raise an error."""
        if not self.grow_to(bytes_):
            raise no_room()

    def release(self) -> None:
        if self._bytes:
            self._memory.change(self._client, -self._bytes)
            self._bytes = 0


def no_room() -> RefusedError:
    return busy("large requests have used up their memory limit; retry in a moment.")

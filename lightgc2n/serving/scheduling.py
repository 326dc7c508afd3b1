"""Scheduling in a worker: clients take turns on threads and memory, and concurrent queries share a batch.

The queue of each client is short, abandoned work is skipped, and no client can use more than half of the memory, which
is an estimate. One thread computes lists: a query that comes alone is computed at once, and queries that arrive while
the thread is busy form the next batch.
"""

import asyncio
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from lightgc2n.recommending.queries import PreparedQuery
from lightgc2n.recommending.recommender import Recommender
from lightgc2n.recommending.results import Recommendations
from lightgc2n.serving.errors import RefusedError, busy

Result = TypeVar("Result")
Check = Callable[[], None]
BYTES_PER_BODY_BYTE = 16  # memory of a parsed body, per byte of JSON
BYTES_PER_LISTED_ITEM = 300  # memory of an item of a list until the list is sent
UNCOUNTED_BYTES = 2**16  # the first bytes of a request, which are not counted: most requests are small
MOST_ROWS = 64  # rows of one batch; more are no faster and take more memory
MOST_SCORES, MOST_CELLS = 2**21, 2**16  # limits of one batch: rows x items, rows x events


class AbandonedError(Exception):
    """The client of the work has disconnected."""


@dataclass(eq=False)
class Job(Generic[Result]):
    """Work that is queued or running."""

    client: str
    work: "Callable[[Check], Result]"
    result: "asyncio.Future[Result]"
    abandoned: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Raise AbandonedError if the client has disconnected; the work calls this between its steps."""
        if self.abandoned.is_set():
            raise AbandonedError

    def run(self) -> Result:
        self.check()
        return self.work(self.check)


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


@dataclass(eq=False)
class PendingRequest:
    """The queries of one request, and the lists computed so far."""

    recommender: Recommender
    queries: Sequence[PreparedQuery]
    done: "asyncio.Future[list[Recommendations]]"
    lists: list[Recommendations] = field(default_factory=list)

    @property
    def remaining(self) -> int:
        return len(self.queries) - len(self.lists)


@dataclass
class Batch:
    """Queries that are computed together, by request."""

    recommender: Recommender
    parts: list[tuple[PendingRequest, Sequence[PreparedQuery]]]


class Batcher:
    """Passes queries to the computing thread in batches.

    Args:
        most_waiting: the most queries that may wait; further ones get an error.
        observe: called with the number of queries of each batch.
    """

    def __init__(
        self, executor: Executor, most_waiting: int, observe: Callable[[int], None] = lambda _rows: None
    ) -> None:
        self._executor, self._most_waiting, self._observe = executor, most_waiting, observe
        self._pending: deque[PendingRequest] = deque()
        self._busy = False
        self.waiting = 0

    async def answer(self, recommender: Recommender, queries: Sequence[PreparedQuery]) -> list[Recommendations]:
        """Return a list for each query, from the recommender that prepared it."""
        if not queries:
            return []
        if self.waiting and self.waiting + len(queries) > self._most_waiting:
            raise busy(f"{self.waiting:,} lists are waiting already; retry in a moment.")
        loop = asyncio.get_running_loop()
        request = PendingRequest(recommender, queries, loop.create_future())
        self._pending.append(request)
        self.waiting += len(queries)
        if not self._busy:
            self._busy = True
            loop.call_soon(self._start_next_batch)  # requests read in the same loop iteration join the batch
        try:
            return await request.done
        finally:
            self.waiting -= len(queries)

    def _start_next_batch(self) -> None:
        batch = self._next_batch()
        if batch is None:
            self._busy = False
            return
        self._observe(sum(len(part) for _, part in batch.parts))
        done = asyncio.get_running_loop().run_in_executor(self._executor, _compute, batch)
        done.add_done_callback(lambda future: self._deliver(batch, future))

    def _deliver(self, batch: Batch, done: "asyncio.Future[list[list[Recommendations] | Exception]]") -> None:
        results = done.result()
        for (request, _), result in zip(batch.parts, results, strict=True):
            if request.done.done():  # the client has gone
                continue
            if isinstance(result, Exception):
                request.done.set_exception(result)
                continue
            request.lists += result
            if not request.remaining:
                request.done.set_result(request.lists)
            else:
                self._pending.append(request)  # long requests take turns with others
        self._start_next_batch()

    def _next_batch(self) -> Batch | None:
        """The queries that have waited longest and fit into one batch, all of one recommender."""
        batch, rows, widest = None, 0, 1
        while self._pending and rows < MOST_ROWS:
            request = self._pending[0]
            if request.done.done():
                self._pending.popleft()
                continue
            batch = batch or Batch(request.recommender, [])
            if request.recommender is not batch.recommender:
                break
            part, widest = _fitting(request, rows, widest)
            if not part:
                break
            self._pending.popleft()
            batch.parts.append((request, part))
            rows += len(part)
        return batch


def _fitting(request: PendingRequest, rows: int, widest: int) -> tuple[Sequence[PreparedQuery], int]:
    """The next queries of a request that fit beside `rows` others, and the length of the then longest history."""
    first = len(request.lists)
    room = min(MOST_ROWS, MOST_SCORES // len(request.recommender.dataset.items)) - rows
    part: list[PreparedQuery] = []
    for query in request.queries[first : first + max(room, 0 if rows else 1)]:
        wide = max(widest, len(query.events))
        if rows + len(part) and (rows + len(part) + 1) * wide > MOST_CELLS:
            break
        part.append(query)
        widest = wide
    return part, widest


def _compute(batch: Batch) -> list[list[Recommendations] | Exception]:
    """The lists of each request, or its error; an error in one request does not affect the others."""
    try:
        lists = iter(batch.recommender.answer([query for _, part in batch.parts for query in part]))
        return [[next(lists) for _ in part] for _, part in batch.parts]
    except Exception as problem:  # reported to the request that caused it
        if len(batch.parts) == 1:
            return [problem]
        return [_compute(Batch(batch.recommender, [part]))[0] for part in batch.parts]

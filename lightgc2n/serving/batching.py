"""Batches the queries of concurrent requests; a query that comes alone is computed at once.

A worker has one computing thread. Queries that arrive while it is busy form the next batch.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

from lightgc2n.recommending.recommender import Recommender
from lightgc2n.recommending.results import Recommendations
from lightgc2n.recommending.scorer import PreparedQuery
from lightgc2n.serving.errors import busy

MOST_ROWS = 64  # of one batch; more rows are no faster and take more memory
MOST_SCORES, MOST_CELLS = 2**21, 2**16  # of one batch: rows x items, rows x events


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

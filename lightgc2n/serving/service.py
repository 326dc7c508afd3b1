"""What all routes of a worker share."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from fastapi import Request

from lightgc2n.recommending.results import Recommendations
from lightgc2n.recommending.scorer import PreparedQuery
from lightgc2n.serving.batching import Batcher
from lightgc2n.serving.errors import RefusedError
from lightgc2n.serving.fair_pool import Check, FairPool
from lightgc2n.serving.live_bundle import Served, Shelf
from lightgc2n.serving.logs import on_dropped_line
from lightgc2n.serving.metrics import Metrics
from lightgc2n.serving.request_memory import Memory
from lightgc2n.serving.settings import ServiceSettings

Result = TypeVar("Result")
GONE = 499  # the client went away before the answer


class Service:
    """The bundle, the threads that compute, and the numbers of one worker.

    Args:
        shared_metrics: the folder in which several workers add up their numbers.
    """

    def __init__(self, settings: ServiceSettings, shared_metrics: str | None = None) -> None:
        self.settings, self.limits = settings, settings.limits
        self.metrics = Metrics(shared_metrics)
        on_dropped_line(self.metrics.dropped_lines.inc)
        self._popular, self._personal = (self.metrics.lists.labels(flag) for flag in ("true", "false"))
        self.draining = False
        self.working = 0  # requests that are being computed
        self.memory = Memory(self.limits.max_memory)
        told = self._bundle_changed, self.metrics.stale.set
        self.shelf = Shelf(settings.bundle, settings.titles, settings.watch_seconds, *told)
        # What takes long must not stand in the way of lists, nor of what takes less long: finding people costs a tenth
        # of a second, a search some milliseconds, a new bundle seconds.
        limits = self.limits
        self._lists, self._loading = ThreadPoolExecutor(1, "lists"), ThreadPoolExecutor(1, "loading")
        for lane in (self._lists, self._loading):
            lane.submit(int).result()  # a thread may not be had later
        self.errands = FairPool("errands", 1, limits.max_requests, limits.max_requests)
        self.people = FairPool("people", limits.people_threads, limits.max_people, limits.max_people_per_client)
        self.batcher = Batcher(self._lists, limits.max_waiting, self.metrics.batches.observe)

    @property
    def served(self) -> Served:
        """The bundle of now; a request asks once and keeps it."""
        return self.shelf.current

    async def aside(self, request: Request, work: Callable[[], Result]) -> Result:
        """The result of something slow, computed beside the lists."""
        return await self._run(self.errands, request, lambda _check: work())

    async def find_people(self, request: Request, work: Callable[[Check], Result]) -> Result:
        """The result of work that finds people, which is slower than anything else."""
        return await self._run(self.people, request, work)

    async def _run(self, pool: FairPool, request: Request, work: Callable[[Check], Result]) -> Result:
        """The result, unless the client goes away before it is there: then the work is given up."""
        job, gone = pool.start(request.scope["client_name"], work), asyncio.ensure_future(_gone(request))
        both: set[asyncio.Future[Any]] = {job.result, gone}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not job.result.done():
                raise RefusedError(GONE, "client_gone", "the client went away before the answer.")
            return job.result.result()
        finally:
            pool.stop(job)
            gone.cancel()

    async def watch(self) -> None:
        await self.shelf.watch(self._loading)

    async def lists(self, served: Served, questions: Sequence[PreparedQuery]) -> list[Recommendations]:
        """A list for each question, made together with what others ask at the same time."""
        found = await self.batcher.answer(served.recommender, questions)
        popular = sum(one.fallback for one in found)
        self._popular.inc(popular)
        self._personal.inc(len(found) - popular)
        return found

    def close(self) -> None:
        self.people.close()
        self.errands.close()
        for lane in (self._lists, self._loading):
            lane.shutdown(wait=False, cancel_futures=True)

    def _bundle_changed(self, taken: bool) -> None:
        self.metrics.reloads.labels("taken" if taken else "refused").inc()


async def _gone(request: Request) -> None:
    """Waits until the client is gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass

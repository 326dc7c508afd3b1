"""The state that all routes of a worker share: bundle, thread pools, limits and metrics."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from fastapi import Request

from lightgc2n.recommending.results import Recommendations
from lightgc2n.recommending.scorer import PreparedQuery
from lightgc2n.serving.batching import Batcher
from lightgc2n.serving.errors import RefusedError
from lightgc2n.serving.fair_use import Check, FairPool, RequestMemory
from lightgc2n.serving.live_bundle import BundleWatcher, ServedBundle
from lightgc2n.serving.logs import on_dropped_line
from lightgc2n.serving.metrics import Metrics
from lightgc2n.serving.settings import ServiceSettings

Result = TypeVar("Result")
CLIENT_GONE = 499  # the client disconnected before the response


class Service:
    """The bundle, thread pools and metrics of one worker.

    Args:
        shared_metrics: the folder with the metrics of all workers.
    """

    def __init__(self, settings: ServiceSettings, shared_metrics: str | None = None) -> None:
        self.settings, self.limits = settings, settings.limits
        self.metrics = Metrics(shared_metrics)
        on_dropped_line(self.metrics.dropped_lines.inc)
        self._popular, self._personal = (self.metrics.lists.labels(flag) for flag in ("true", "false"))
        self.draining = False
        self.working = 0  # requests that are being computed
        self.memory = RequestMemory(self.limits.max_memory)
        callbacks = self._bundle_changed, self.metrics.stale.set
        self.watcher = BundleWatcher(settings.bundle, settings.titles, settings.watch_seconds, *callbacks)
        # Separate threads, so that slow work does not delay lists: finding people takes 100 ms, a search some
        # milliseconds, loading a bundle seconds.
        limits = self.limits
        self._lists, self._loading = ThreadPoolExecutor(1, "lists"), ThreadPoolExecutor(1, "loading")
        for executor in (self._lists, self._loading):
            executor.submit(int).result()  # start the thread now: later the system may refuse
        self.background = FairPool("background", 1, limits.max_requests, limits.max_requests)
        self.people = FairPool("people", limits.people_threads, limits.max_people, limits.max_people_per_client)
        self.batcher = Batcher(self._lists, limits.max_waiting, self.metrics.batches.observe)

    @property
    def served(self) -> ServedBundle:
        """The current bundle; a request reads this once and keeps it."""
        return self.watcher.current

    async def run_in_background(self, request: Request, work: Callable[[], Result]) -> Result:
        """Run slow work in a thread that does not delay lists."""
        return await self._run(self.background, request, lambda _check: work())

    async def find_people(self, request: Request, work: Callable[[Check], Result]) -> Result:
        """Run work that finds people, the slowest kind, in its own threads."""
        return await self._run(self.people, request, work)

    async def _run(self, pool: FairPool, request: Request, work: Callable[[Check], Result]) -> Result:
        """Return the result of the work; abandon it when the client disconnects."""
        job, gone = pool.start(request.scope["client_name"], work), asyncio.ensure_future(_disconnected(request))
        both: set[asyncio.Future[Any]] = {job.result, gone}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not job.result.done():
                raise RefusedError(CLIENT_GONE, "client_gone", "the client disconnected before the response.")
            return job.result.result()
        finally:
            pool.stop(job)
            gone.cancel()

    async def watch(self) -> None:
        await self.watcher.watch(self._loading)

    async def lists(self, served: ServedBundle, queries: Sequence[PreparedQuery]) -> list[Recommendations]:
        """A list for each query, batched with those of concurrent requests."""
        lists = await self.batcher.answer(served.recommender, queries)
        popular = sum(one.fallback for one in lists)
        self._popular.inc(popular)
        self._personal.inc(len(lists) - popular)
        return lists

    def close(self) -> None:
        self.people.close()
        self.background.close()
        for executor in (self._lists, self._loading):
            executor.shutdown(wait=False, cancel_futures=True)

    def _bundle_changed(self, taken: bool) -> None:
        self.metrics.reloads.labels("taken" if taken else "refused").inc()


async def _disconnected(request: Request) -> None:
    """Wait until the client disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass

"""The state that all routes of a worker share: the bundle being served, thread pools, limits and Prometheus metrics.

A watcher replaces the bundle when a new one is at its path. Several workers write their metrics to a shared folder, and
each of them can report the totals.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, TypeVar

from fastapi import Request
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from lightgc2n.recommending.queries import PreparedQuery
from lightgc2n.recommending.results import Recommendations
from lightgc2n.serving.audit import AuditLog
from lightgc2n.serving.errors import RefusedError
from lightgc2n.serving.keys import KeyRing
from lightgc2n.serving.live_histories import Live
from lightgc2n.serving.live_quality import LiveQuality
from lightgc2n.serving.live_store import LiveStore
from lightgc2n.serving.logs import on_dropped_line
from lightgc2n.serving.recorder import EventRecorder
from lightgc2n.serving.scheduling import Batcher, Check, FairPool, RequestMemory
from lightgc2n.serving.served_bundle import BundleWatcher, ServedBundle
from lightgc2n.serving.settings import ServiceSettings

Result = TypeVar("Result")
CLIENT_GONE = 499  # the client disconnected before the response
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
ROWS = (1, 2, 4, 8, 16, 32, 64)
EVENTS = (1, 3, 10, 30, 100, 300, 1000, 3000)


class Metrics:
    """The metrics of one worker."""

    def __init__(self, shared_folder: str | None) -> None:
        self._shared_folder = shared_folder
        self._registry = here = CollectorRegistry()
        self.requests = Counter(
            "lightgc2n_requests", "Requests answered.", ("method", "route", "status"), registry=here
        )
        self.seconds = Histogram(
            "lightgc2n_request_seconds", "Time from head to last byte.", ("route",), buckets=SECONDS, registry=here
        )
        self.lists = Counter("lightgc2n_lists", "Lists made.", ("fallback",), registry=here)
        self.batches = Histogram("lightgc2n_batch_rows", "Lists computed in one batch.", buckets=ROWS, registry=here)
        self.reloads = Counter(
            "lightgc2n_bundle_changes", "Attempts to load a new bundle.", ("outcome",), registry=here
        )
        self.stale = Gauge(
            "lightgc2n_bundle_stale",
            "1 while the bundle at the path cannot be loaded and an older one is served.",
            registry=here,
            multiprocess_mode="livemax",
        )
        self.working = Gauge(
            "lightgc2n_requests_in_progress", "Requests being worked on.", registry=here, multiprocess_mode="livesum"
        )
        self.connections = Gauge(
            "lightgc2n_connections", "Open connections.", registry=here, multiprocess_mode="livesum"
        )
        self.closed = Counter(
            "lightgc2n_connections_closed",
            "Connections closed to make room, or rejected.",
            ("reason",),
            registry=here,
        )
        self.events = Counter("lightgc2n_events", "Events sent.", ("outcome",), registry=here)
        self.commits = Histogram(
            "lightgc2n_commit_events", "Events stored in one transaction.", buckets=EVENTS, registry=here
        )
        self.erasures = Counter("lightgc2n_erasures", "Accounts and events erased.", ("kind",), registry=here)
        self.store_down = Gauge(
            "lightgc2n_store_down",
            "1 while the store of events does not answer.",
            registry=here,
            multiprocess_mode="livemax",
        )
        self.dropped_lines = Counter(
            "lightgc2n_log_lines_dropped", "Log lines dropped because stderr was blocked.", registry=here
        )
        self._of_request = lru_cache(1000)(self._labelled)

    def _labelled(self, method: str, route: str, status: int) -> tuple[Counter, Histogram]:
        return self.requests.labels(method, route, str(status)), self.seconds.labels(route)

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a response; the labelled metrics are cached."""
        counter, histogram = self._of_request(method, route, status)
        counter.inc()
        histogram.observe(seconds)

    def text(self) -> tuple[bytes, str]:
        """The text that Prometheus scrapes, and its content type."""
        registry = self._registry
        if self._shared_folder:
            registry = CollectorRegistry()
            MultiProcessCollector(registry, self._shared_folder)  # type: ignore[no-untyped-call]
        return generate_latest(registry), CONTENT_TYPE_LATEST


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
        self.keys = KeyRing(settings.keys, settings.key_file)
        self.audit = AuditLog(settings.audit_log)
        self.quality: LiveQuality | None = None
        self.store: LiveStore | None = None
        if settings.store is not None:
            self.metrics.store_down.set(1)
            self.store = live = LiveStore(
                settings.store,
                limits,
                lambda: self.served,
                lambda up: self.metrics.store_down.set(not up),
                self.metrics.commits.observe,
            )
            self.quality = LiveQuality(lambda: live.store, lambda: self.served)
        self.recorder: EventRecorder | None = self.quality

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
        """Watch the bundle, the file of keys and the store while the service runs."""
        watched = [self.watcher.watch(self._loading), self._watch_keys()]
        if self.store is not None:
            watched.append(self.store.watch())
        await asyncio.gather(*watched)

    async def _watch_keys(self) -> None:
        while True:
            await asyncio.sleep(self.settings.watch_seconds)
            await asyncio.get_running_loop().run_in_executor(self._loading, self.keys.look)

    async def histories(self, served: ServedBundle, accounts: Collection[str | None]) -> dict[str, Live | RefusedError]:
        """The current history of each account, or the error for it; nothing without a store."""
        named = dict.fromkeys(account for account in accounts if account is not None)
        return await self.store.histories(served, named) if self.store is not None and named else {}

    async def lists(self, served: ServedBundle, queries: Sequence[PreparedQuery]) -> list[Recommendations]:
        """A list for each query, batched with those of concurrent requests."""
        lists = await self.batcher.answer(served.recommender, queries)
        popular = sum(one.fallback for one in lists)
        self._popular.inc(popular)
        self._personal.inc(len(lists) - popular)
        return lists

    def close(self) -> None:
        if self.quality is not None:
            self.quality.close()
        self.people.close()
        self.background.close()
        for executor in (self._lists, self._loading):
            executor.shutdown(wait=False, cancel_futures=True)
        self.audit.close()
        if self.store is not None:
            self.store.close()

    def _bundle_changed(self, taken: bool) -> None:
        self.metrics.reloads.labels("taken" if taken else "refused").inc()


async def _disconnected(request: Request) -> None:
    """Wait until the client disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass

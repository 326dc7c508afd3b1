"""The state that all routes of a worker share: the bundle being served, thread pools, limits and Prometheus metrics.

A watcher replaces the bundle when a new one is at its path. Several workers write their metrics to a shared folder, and
each of them can report the totals.
"""

import asyncio
import gc
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from fastapi import Request
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from lightgc2n.data.catalogue import Catalogue, read_titles
from lightgc2n.errors import LightGC2NError
from lightgc2n.recommending.bundle_files import CONFIG, PEOPLE, SERVER, SUMS
from lightgc2n.recommending.load_bundle import load_bundle
from lightgc2n.recommending.recommender import Recommender
from lightgc2n.recommending.results import Recommendations
from lightgc2n.recommending.scorer import PreparedQuery
from lightgc2n.serving.errors import RefusedError
from lightgc2n.serving.logs import log, on_dropped_line
from lightgc2n.serving.scheduling import Batcher, Check, FairPool, RequestMemory
from lightgc2n.serving.settings import ServiceSettings

Result = TypeVar("Result")
CLIENT_GONE = 499  # the client disconnected before the response
SHORT = 12  # characters of a checksum that are shown
LONGEST_PAUSE = 60.0  # seconds between two attempts to load the same bundle
MOST_DOUBLINGS = 10  # of that pause
Fingerprint = tuple[Any, ...]
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
ROWS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, eq=False)
class ServedBundle:
    """A bundle in memory; a request keeps using the one that it started with."""

    folder: Path
    recommender: Recommender
    checksum: str
    card: str
    titles: dict[str, str]
    facts: dict[str, dict[str, Any]]  # what responses say of an item besides its id
    device_files: frozenset[str]


@dataclass(frozen=True)
class ReloadFailure:
    """Why the bundle at the path is not being served."""

    reason: str
    since: float  # Unix time of the first failed attempt
    tries: int


def load_served(path: Path, titles: Path | None) -> ServedBundle:
    """Load the bundle at `path`; its graph runs once here, so that the first request is not slower."""
    folder = Path(os.path.realpath(path))
    recommender = load_bundle(folder)
    recommender.knows("anybody")
    named = recommender.titles | (read_titles(titles) if titles else {})
    return ServedBundle(
        folder=folder,
        recommender=recommender,
        checksum=recommender.dataset.checksum[:SHORT],
        card=recommender.source.card,
        titles=named,
        facts=item_facts(recommender.catalogue, named),
        device_files=frozenset({*recommender.source.config["files"], CONFIG, SUMS}),  # clients may download these
    )


def item_facts(catalogue: Catalogue, titles: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Title, categories, year and image of each item, as far as they are known."""
    facts: dict[str, dict[str, Any]] = {item: {"title": title} for item, title in titles.items()}
    for item, entry in catalogue.items():
        known = {"categories": list(entry.categories), "year": entry.year, "image": entry.image}
        if any(known.values()):
            facts.setdefault(item, {}).update({name: value for name, value in known.items() if value})
    return facts


def fingerprint(path: Path) -> Fingerprint:
    """A value that changes when the bundle at `path`, or a file of it, is replaced."""
    real = os.path.realpath(path)
    return (real, *(_file_facts(os.path.join(real, part)) for part in ("", PEOPLE, SERVER)))


def _file_facts(folder: str) -> tuple[Any, ...] | None:
    """Name, inode, size and modification time of every file of a folder."""
    try:
        with os.scandir(folder) as entries:
            files = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    except OSError:
        return None
    return tuple(sorted((name, one.st_ino, one.st_size, one.st_mtime_ns) for name, one in files))


class BundleWatcher:
    """Holds the bundle that is served, and checks periodically whether there is a new one at its path.

    A bundle that cannot be loaded is retried with exponential backoff until it loads or another one replaces it.

    Args:
        changed: called with True when a new bundle is served, with False when one cannot be loaded.
        stale: called with True while the bundle at the path is not the one that is served.
    """

    def __init__(
        self,
        path: Path,
        titles: Path | None,
        seconds: float,
        changed: Callable[[bool], None] = lambda _taken: None,
        stale: Callable[[bool], None] = lambda _stale: None,
    ) -> None:
        self._path, self._titles, self._seconds, self._changed, self._stale = path, titles, seconds, changed, stale
        # Taken before loading, so that a change meanwhile is noticed.
        self._served = self._seen = self._tried = fingerprint(path)
        self._tries, self._retry_at = 0, 0.0  # failed attempts, and the time of the next one
        self._logged: set[str] = set()  # reasons already logged for the bundle that was tried last
        self.fault: ReloadFailure | None = None
        self.current = load_served(path, titles)

    async def watch(self, executor: Executor) -> None:
        """Serve every new bundle that loads; if one does not, report it and keep serving the old one."""
        while True:
            await asyncio.sleep(self._seconds)
            try:
                await self._look(executor)
            except Exception as problem:  # keep watching, whatever went wrong
                with suppress(Exception):
                    self._refuse(problem)

    async def _look(self, executor: Executor) -> None:
        now, before = fingerprint(self._path), self._seen
        self._seen = now
        if now == self._served:
            self._clear(now)
        elif now != before:
            return  # wait until a folder that is being written has not changed between two checks
        elif now != self._tried or time.monotonic() >= self._retry_at:
            if now != self._tried:
                self._tried, self._tries, self._logged = now, 0, set()
            new = await asyncio.get_running_loop().run_in_executor(executor, load_served, self._path, self._titles)
            self._serve(new, now)

    def _serve(self, new: ServedBundle, at: Fingerprint) -> None:
        accounts, before = (len(one.recommender.dataset.accounts) for one in (new, self.current))
        level = "warning" if before and not accounts else "info"  # a bundle without its server part has no accounts
        facts = {"checksum": new.checksum, "before": self.current.checksum, "accounts": accounts}
        self.current = new
        self._clear(at)
        log("bundle_taken", level, model=new.recommender.name, **facts)
        freeze_garbage_collector()
        self._changed(True)

    def _clear(self, served: Fingerprint) -> None:
        self._served = self._tried = served
        if self.fault is not None:
            self.fault = None
            self._stale(False)

    def _refuse(self, problem: Exception) -> None:
        """Record the failure, log it once, and double the time until the next attempt."""
        reason = str(problem) if isinstance(problem, LightGC2NError) else f"{type(problem).__name__}: {problem}"
        self._tries += 1
        self._retry_at = time.monotonic() + min(self._seconds * 2 ** min(self._tries, MOST_DOUBLINGS), LONGEST_PAUSE)
        self.fault = ReloadFailure(reason, self.fault.since if self.fault else time.time(), self._tries)
        self._stale(True)
        if reason not in self._logged:
            self._logged.add(reason)
            self._changed(False)
            log("bundle_refused", "error", reason=reason, serving=self.current.checksum)


def freeze_garbage_collector() -> None:
    """Call gc.freeze() so that collections skip long-lived objects; scanning a bundle takes 50 ms."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


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
        self.reloads = Counter("lightgc2n_bundle_changes", "New bundles found.", ("outcome",), registry=here)
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

"""Prometheus metrics; several workers write to a shared folder, and each of them can report the totals."""

from functools import lru_cache

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

SHARED = "PROMETHEUS_MULTIPROC_DIR"  # the folder that workers share; prometheus_client reads it on import
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
ROWS = (1, 2, 4, 8, 16, 32, 64)


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

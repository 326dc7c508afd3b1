"""The ASGI application of the service: model card, health probes, metrics, and the outer middleware.

The middleware counts, times and logs every response, and adds security headers. The other routes are in routes.py.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lightgc2n import __version__
from lightgc2n.serving.errors import (
    HEADER,
    RefusedError,
    add_error_handlers,
    id_for,
    out_of_resources,
    request_id,
    unavailable,
)
from lightgc2n.serving.event_routes import add_event_routes
from lightgc2n.serving.limits import LimitsMiddleware
from lightgc2n.serving.logs import log, log_problem
from lightgc2n.serving.quality_routes import add_quality_routes
from lightgc2n.serving.routes import add_account_routes, add_list_routes, json_response
from lightgc2n.serving.schemas import Health, ModelFacts, ProblemBody, Readiness
from lightgc2n.serving.served_bundle import ServedBundle
from lightgc2n.serving.service import CLIENT_GONE, Service
from lightgc2n.serving.static_files import add_file_routes, has_runtime

ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": ProblemBody, "description": "The request cannot be answered; the message says why."},
    401: {"model": ProblemBody, "description": "An API key is needed."},
    403: {"model": ProblemBody, "description": "The API key lacks the scope of this route."},
    404: {"model": ProblemBody, "description": "The account, item or file is unknown."},
    405: {"model": ProblemBody, "description": "The route has no such method."},
    408: {"model": ProblemBody, "description": "The request took too long to arrive."},
    413: {"model": ProblemBody, "description": "The body is too large."},
    421: {"model": ProblemBody, "description": "The Host header names another service."},
    422: {"model": ProblemBody, "description": "The request is not of the expected form, or exceeds a limit."},
    429: {"model": ProblemBody, "description": "Too many requests at once; retry in a moment."},
    500: {"model": ProblemBody, "description": "An internal error, which has been logged."},
    503: {"model": ProblemBody, "description": "No response in time, the store is down, or the service shuts down."},
    507: {"model": ProblemBody, "description": "The disk of the store is full; nothing was stored."},
}
METHODS = frozenset({"GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"})
Headers = tuple[tuple[bytes, bytes], ...]
ALL_HEADERS: Headers = ((b"x-content-type-options", b"nosniff"), (b"cross-origin-resource-policy", b"same-origin"))
API_HEADERS: Headers = (*ALL_HEADERS, (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"))
PAGE_POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src {images}; "
    "connect-src 'self'; font-src 'self'; manifest-src 'self'; worker-src 'self'; frame-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS: Headers = (
    *ALL_HEADERS,
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
# A self-contained file; the page may show it in a frame, and it may not run scripts.
REPORT_HEADERS: Headers = (
    *ALL_HEADERS,
    (b"referrer-policy", b"no-referrer"),
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'; sandbox",
    ),
)


def create_app(service: Service) -> FastAPI:
    """Create the application; it watches the bundle while it runs."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.create_task(service.watch())
        yield
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        service.close()

    app = FastAPI(
        title="lightgc2n",
        version=__version__,
        description="Recommendations for accounts that several people share.",
        lifespan=lifespan,
        docs_url=None,  # these load scripts from a CDN; docs_page makes a page without
        redoc_url=None,
        redirect_slashes=False,
        responses=ERRORS,
    )
    for add in (
        add_list_routes,
        add_account_routes,
        add_event_routes,
        add_quality_routes,
        add_health_routes,
        add_file_routes,
    ):
        add(app, service)
    add_error_handlers(app)
    # The last one added is the outermost.
    app.add_middleware(LimitsMiddleware, service=service)
    if service.settings.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=service.settings.cors,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-API-Key", "X-Request-Id"],
            expose_headers=["X-Request-Id", "Retry-After"],
        )
    app.add_middleware(AccessLogMiddleware, service=service)
    if service.settings.keys:
        _document_keys(app)
    return app


def _document_keys(app: FastAPI) -> None:
    """Declare in the OpenAPI document that a key is needed."""
    plain = app.openapi

    def with_keys() -> dict[str, Any]:
        document = plain()
        schemes = {
            "key": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
        document.setdefault("components", {})["securitySchemes"] = schemes
        for path, operations in document["paths"].items():
            if path.startswith("/v1/") or path == "/metrics":
                for operation in operations.values():
                    operation["security"] = [{"key": []}, {"header": []}]
        return document

    app.openapi = with_keys  # type: ignore[method-assign]


def add_health_routes(app: FastAPI, service: Service) -> None:
    """Add the routes for the model card, probes and metrics."""
    report = service.settings.report is not None
    runtime = has_runtime()

    @app.get("/v1/model", response_model=ModelFacts, tags=["upkeep"])
    async def model() -> Response:
        """The model card, its metrics, and what the service can do with it."""
        served = service.served
        return json_response(
            {
                **_facts(served),
                "report": report,
                "device": runtime,
                "store": _store(service),
                "reload": _reload(service),
            }
        )

    @app.get("/healthz", response_model=Health, tags=["upkeep"])
    async def healthz() -> dict[str, str]:
        """The process is running."""
        return {"status": "draining" if service.draining else "ok"}

    @app.get("/readyz", response_model=Readiness, response_model_exclude_none=True, tags=["upkeep"])
    async def readyz() -> dict[str, str]:
        """A bundle is loaded and requests are accepted; `reload` reports that a newer bundle could not be loaded."""
        if service.draining:
            raise unavailable("draining", "the service is shutting down.")
        store = {"store": "unavailable"} if _store(service) == "unavailable" else {}
        return {"status": "ok"} | ({"reload": "failed"} if service.watcher.fault else {}) | store

    @app.get("/metrics", response_class=Response, tags=["upkeep"], responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Prometheus metrics."""
        text, kind = service.metrics.text()
        if service.quality is not None:
            text += service.quality.metrics_text().encode()
        return Response(text, headers={"Content-Type": kind})


def _store(service: Service) -> str | None:
    if service.store is None:
        return None
    return "ok" if service.store.available else "unavailable"


def _reload(service: Service) -> dict[str, Any] | None:
    """Why the newest bundle is not being served; None if it is."""
    fault = service.watcher.fault
    if fault is None:
        return None
    since = datetime.fromtimestamp(fault.since, UTC).isoformat(timespec="seconds")
    return {"reason": fault.reason, "since": since, "tries": fault.tries}


def _facts(served: ServedBundle) -> dict[str, Any]:
    config, dataset = served.recommender.source.config, served.recommender.dataset
    return {
        "model": served.recommender.name,
        "dataset": dataset.name,
        "metrics": config.get("metrics", {}),
        "card": served.card,
        "settings": config.get("settings", {}),
        "items": len(dataset.items),
        "accounts": len(dataset.accounts),
        "checksum": served.checksum,
        "schema": config["schema"],
        "people": served.recommender.finds_people,
        "titles": bool(served.titles),
    }


class AccessLogMiddleware:
    """Logs every request and converts unexpected errors into error responses."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service
        self._metrics, self._log_ids = service.metrics, service.settings.log_ids

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status, sent = time.perf_counter(), CLIENT_GONE, 0
        request_id.set(id_for(scope["headers"]))
        inner = scope
        if scope["method"] == "HEAD":  # handled as GET; the web server omits the body
            inner = {**scope, "method": "GET", "head": True}

        async def observed(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                self._add_headers(scope["path"], message)
            elif inner is scope:
                sent += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(inner, receive, observed)
        except Exception as problem:
            log_problem(problem, self._log_ids, request_id=request_id.get(), **self._ids(scope))
            if status != CLIENT_GONE:
                raise  # part of the response is sent: abort the connection, so that it is not taken for complete
            error = out_of_resources(problem) or RefusedError(
                500, "internal", "an internal error, which has been logged."
            )
            await error.response()(scope, receive, observed)
        finally:
            self._log_request(scope["method"], inner, status, sent, time.perf_counter() - started)

    def _add_headers(self, path: str, message: Message) -> None:
        headers = message["headers"]
        if path in ("/", "/docs") or path.startswith(("/page/", "/ort/")):
            headers += PAGE_HEADERS
            images = " ".join(["'self' data:", *(self._service.served.image_sources if path == "/" else ())])
            headers.append((b"content-security-policy", PAGE_POLICY.format(images=images).encode()))
        elif path == "/report":
            headers += REPORT_HEADERS
        else:
            headers += API_HEADERS
        if not any(name == b"cache-control" for name, _ in headers):
            headers.append((b"cache-control", b"no-store"))
        headers.append((HEADER, request_id.get().encode()))
        if self._service.draining:
            headers.append((b"connection", b"close"))

    def _log_request(self, requested: str, scope: Scope, status: int, sent: int, seconds: float) -> None:
        method = requested if requested in METHODS else "other"
        route = getattr(scope.get("route"), "path_format", "other")
        try:
            self._metrics.count_request(method, route, status, seconds)
        except OSError as problem:  # a shared metrics file failed; the response matters more
            log_problem(problem, self._log_ids)
        facts: dict[str, Any] = {
            "method": method,
            "route": route,
            "status": status,
            "ms": round(1e3 * seconds, 2),
            "bytes": sent,
            "request_id": request_id.get(),
        }
        log("request", **facts, **self._ids(scope))

    def _ids(self, scope: Scope) -> dict[str, Any]:
        """Fields with ids, which are logged only with --log-ids."""
        return {"path": scope["path"], **scope.get("ids", {})} if self._log_ids else {}

"""The outermost middleware: counts, times and logs every response, and adds security headers."""

import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lightgc2n.serving.errors import HEADER, RefusedError, id_for, out_of_resources, request_id
from lightgc2n.serving.logs import log, log_problem
from lightgc2n.serving.service import CLIENT_GONE, Service

METHODS = frozenset({"GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"})
Headers = tuple[tuple[bytes, bytes], ...]

ALL_HEADERS: Headers = ((b"x-content-type-options", b"nosniff"), (b"cross-origin-resource-policy", b"same-origin"))
API_HEADERS: Headers = (*ALL_HEADERS, (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"))
PAGE_HEADERS: Headers = (
    *ALL_HEADERS,
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data:; "
        b"connect-src 'self'; font-src 'self'; manifest-src 'self'; worker-src 'self'; frame-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
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
        if path == "/" or path.startswith(("/page/", "/ort/")):
            headers += PAGE_HEADERS
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

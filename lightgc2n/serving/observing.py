"""Every answer is counted, timed, logged and sent with headers that keep browsers careful."""

import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lightgc2n.serving.logs import log
from lightgc2n.serving.refusals import RefusedError
from lightgc2n.serving.service import Service

GONE = 499  # the client went away before the answer
PAGE_POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; manifest-src 'self'; worker-src 'self'; frame-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# One file with its styles and pictures inside; it may be shown inside the page, and may run nothing.
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'; sandbox"
POLICY = "default-src 'none'; frame-ancestors 'none'"
ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
METHODS = frozenset({"GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"})


class Observer:
    """Stands around everything else, so that nothing leaves unseen."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service
        self._metrics, self._log_ids = service.metrics, service.settings.log_ids

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status, sent = time.perf_counter(), GONE, 0

        async def observed(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *self._headers(scope["path"], message)]
            else:
                sent += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, observed)
        except Exception as problem:
            log("failed", "error", problem, **self._asked(scope))
            if status != GONE:
                raise  # half an answer is out: the connection is cut, so that nobody takes it for a whole one
            await RefusedError(500, "internal", "this should not happen, and it has been logged.").response()(
                scope, receive, observed
            )
        finally:
            self._note(scope, status, sent, time.perf_counter() - started)

    def _headers(self, path: str, message: Message) -> list[tuple[bytes, bytes]]:
        policy = PAGE_POLICY if path == "/" or path.startswith(("/page/", "/ort/")) else POLICY
        if path == "/report":
            policy = REPORT_POLICY
        found = [*ALWAYS, (b"content-security-policy", policy.encode())]
        if not any(name == b"cache-control" for name, _ in message.get("headers", ())):
            found.append((b"cache-control", b"no-store"))
        if self._service.draining:
            found.append((b"connection", b"close"))
        return found

    def _note(self, scope: Scope, status: int, sent: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in METHODS else "other"
        route = getattr(scope.get("route"), "path_format", "other")
        self._metrics.requests.labels(method, route, str(status)).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        log(
            "request",
            method=method,
            route=route,
            status=status,
            ms=round(1e3 * seconds, 2),
            bytes=sent,
            **self._asked(scope),
        )

    def _asked(self, scope: Scope) -> dict[str, Any]:
        """What names somebody; logged only where that was asked for."""
        return {"path": scope["path"], **scope.get("ids", {})} if self._log_ids else {}

"""Middleware that checks keys, host names, body sizes, memory and time before a request reaches its route."""

import asyncio
import ipaddress
import re
from collections.abc import Iterator
from functools import lru_cache, partial

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lightgc2n.serving.connections import client_of
from lightgc2n.serving.errors import RefusedError, busy, out_of_resources, unavailable
from lightgc2n.serving.keys import SHOWN_BYTES
from lightgc2n.serving.logs import log_problem
from lightgc2n.serving.scheduling import BYTES_PER_BODY_BYTE, Reservation, no_room
from lightgc2n.serving.schemas import current_limits
from lightgc2n.serving.service import Service
from lightgc2n.serving.settings import MOST_QUERIES, ServiceSettings, is_loopback

# Paths without personal data, which need no key: the page, its runtime, health probes, the API schema.
PUBLIC_PATHS = frozenset({"/", "/report", "/healthz", "/readyz", "/openapi.json", "/docs", "/favicon.ico"})
PUBLIC_FOLDERS = ("/page/", "/ort/")
FILE_FOLDERS = ("/page/", "/ort/", "/device/")
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
PART_BYTES = 2**16  # a response is sent in parts of this size, each once the client has read the one before
DISCARDED_TIMES = 8  # times the largest body: read and discarded, so that the client can read the error response
UNCHECKED_BYTES = 2**15  # the values of a smaller body are not counted
MOST_NESTED = 8 * MOST_QUERIES  # lists and objects; a query has at most five
STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
Headers = dict[bytes, bytes]


class LimitsMiddleware:
    """Reads the bodies of requests and passes on those within the limits."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service
        self._limits, self._settings = service.limits, service.settings
        self._is_allowed_host = lru_cache(256)(partial(_is_allowed_host, service.settings))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            scope["client_name"] = self._admit(scope)
        except RefusedError as refusal:
            await refusal.response()(scope, receive, send)
            return
        current_limits.set(self._limits)
        scope["reservation"] = reservation = self._service.memory.reserve(scope["client_name"])
        answer = ResponseSender(self._service, reservation, send)
        try:
            await self._answer(scope, receive, answer)
        except RefusedError as refusal:
            await refusal.response()(scope, receive, send)
        except Exception as problem:
            exhausted = None if answer.begun else out_of_resources(problem)
            if exhausted is None:
                raise
            log_problem(problem, with_message=False)
            await exhausted.response()(scope, receive, send)
        finally:
            answer.end_work()
            reservation.release()

    def _admit(self, scope: Scope) -> str:
        """Return the client's name, its key or its address; raise an error if the request is not allowed."""
        headers = dict(scope["headers"])
        if b"transfer-encoding" in headers and (b"content-length" in headers or scope["http_version"] == "1.0"):
            # Request smuggling: two servers could disagree on where this request ends.
            message = "Transfer-Encoding cannot be combined with Content-Length or HTTP/1.0: remove one of them."
            raise RefusedError(400, "bad_request", message, headers={"Connection": "close"})
        if self._settings.checks_host and not self._is_allowed_host(headers.get(b"host", b"")):
            message = "the Host header names another service; start this one with --allow-host NAME to accept it."
            raise RefusedError(421, "unknown_host", message)
        ring, path = self._service.keys, scope["path"]
        key = ring.find(_given_key(headers)) if ring.keys else None
        public = path in PUBLIC_PATHS or path.startswith(PUBLIC_FOLDERS)
        if ring.keys and key is None and not public:
            raise RefusedError(
                401, "no_key", "a key is needed: Authorization: Bearer KEY.", (), {"WWW-Authenticate": "Bearer"}
            )
        if key is None:
            return client_of(scope["client"][0])
        if not public:
            ring.check_scope(key, scope["method"], path)
        scope["key"] = key[:SHOWN_BYTES].hex()
        return key.hex()

    async def _answer(self, scope: Scope, receive: Receive, answer: "ResponseSender") -> None:
        """Read the body and run the route, with a timeout until the response starts."""
        seconds, path, body = self._limits.seconds, scope["path"], None
        try:
            async with asyncio.timeout(seconds) as limit:
                answer.limit = limit
                body = await _body(receive, self._limits.max_body, scope["reservation"])
                if body is None:
                    return  # the client has disconnected
                if path in ("/", "/report") or path.startswith(FILE_FOLDERS):
                    limit.reschedule(None)  # no timeout: a large file may take long
                refuse_too_many_values(body, self._limits.max_values)
                if path not in PUBLIC_PATHS:
                    answer.begin_work(self._limits.max_requests)
                await self._app(scope, _replayed(body, receive), answer.send)
                if answer.refusal is not None:
                    raise answer.refusal
        except TimeoutError:
            if answer.begun:
                raise
            raise _timeout(body is not None, seconds) from None


class ResponseSender:
    """Sends the response to one request in parts.

    A request counts as being worked on until its response starts: a slow reader does not block others.
    """

    def __init__(self, service: Service, reservation: Reservation, send: Send) -> None:
        self._service, self._reservation, self._send = service, reservation, send
        self._start: Message | None = None
        self._counted = False
        self.begun = False
        self.limit: asyncio.Timeout | None = None
        self.refusal: RefusedError | None = None  # replaces a response that does not fit into memory

    def begin_work(self, most: int) -> None:
        if self._service.working >= most:
            raise busy(f"{self._service.working:,} requests are being worked on; retry in a moment.")
        self._counted = True
        self._service.working += 1
        self._service.metrics.working.inc()

    def end_work(self) -> None:
        if self._counted:
            self._counted = False
            self._service.working -= 1
            self._service.metrics.working.dec()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        body = message.get("body", b"")
        if not self.begun and not self._begin(len(body)):
            return
        if self._start is not None:
            start, self._start = self._start, None
            await self._send(start)
        for part, more in _parts(body):
            await self._send({**message, "body": part, "more_body": more or message.get("more_body", False)})

    def _begin(self, size: int) -> bool:
        """End the work and its timeout; return False if the response does not fit into the memory limit."""
        if self.refusal is not None or (size > PART_BYTES and not self._reservation.grow_to(size)):
            self.refusal = self.refusal or no_room()
            return False
        self.begun = True
        self.end_work()
        if self.limit is not None:
            self.limit.reschedule(None)
        return True


def _parts(body: bytes) -> Iterator[tuple[bytes, bool]]:
    """The parts of a body, each with whether another follows."""
    if len(body) <= PART_BYTES:
        yield body, False
        return
    for first in range(0, len(body), PART_BYTES):
        yield body[first : first + PART_BYTES], first + PART_BYTES < len(body)


async def _body(receive: Receive, most: int, reservation: Reservation) -> bytes | None:
    """The whole body; None if the client disconnected before its end."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        size += len(message["body"])
        if size <= most:
            reservation.need(size)
            parts.append(message["body"])
        if size > DISCARDED_TIMES * most or (size > most and not message["more_body"]):
            raise RefusedError(413, "too_large", f"a body has at most {most:,} bytes.")
        if not message["more_body"]:
            reservation.need(BYTES_PER_BODY_BYTE * size)
            return parts[0] if len(parts) == 1 else b"".join(parts)


def refuse_too_many_values(body: bytes, most_values: int) -> None:
    """Raise an error if a body has more values, lists or objects than any valid request.

    Parsing 2 MB of brackets blocks the event loop for 100 ms; counting delimiters takes 1 ms.
    """
    if len(body) <= UNCHECKED_BYTES or _fits(body, most_values):
        return
    quotes, escapes = body.count(b'"'), body.count(b"\\")
    if quotes <= 2 * most_values + escapes and escapes <= most_values and _fits(STRING.sub(b"", body), most_values):
        return  # the delimiters are inside strings
    raise RefusedError(
        422, "too_many_values", f"a body has at most {most_values:,} values, and {MOST_NESTED:,} lists and objects."
    )


def _fits(body: bytes, most_values: int) -> bool:
    return body.count(b",") + body.count(b":") <= most_values and body.count(b"[") + body.count(b"{") <= MOST_NESTED


def _timeout(arrived: bool, seconds: float) -> RefusedError:
    if arrived:
        return unavailable("too_slow", f"no answer within {seconds:g} s.")
    message = f"the request did not arrive within {seconds:g} s."
    return RefusedError(408, "too_slow", message, (), {"Connection": "close"})


def _replayed(body: bytes, receive: Receive) -> Receive:
    """A `receive` that returns the body in one piece, then the messages of the client."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _given_key(headers: Headers) -> str:
    scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else headers.get(b"x-api-key", b"").decode("latin-1")


def _is_allowed_host(settings: ServiceSettings, host: bytes) -> bool:
    """Whether the Host header is allowed: a local name, the service's own, or, if it is not on loopback, an address."""
    name, colon, port = host.decode("latin-1").rpartition(":")
    bare = (name if colon and port.isdigit() else host.decode("latin-1")).lower()
    allowed = {*LOCAL_NAMES, settings.host.lower(), *map(str.lower, settings.allow_hosts)}
    if "*" in allowed or bare in allowed:
        return True
    return not is_loopback(settings.host) and _is_address(bare)  # DNS rebinding needs a name, not an address


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text[1:-1] if text.startswith("[") and text.endswith("]") else text)
    except ValueError:
        return False
    return True

"""Who may ask, how much, and for how long: settled before a request reaches its route."""

import asyncio
import ipaddress
from collections.abc import Iterator
from functools import lru_cache, partial
from hmac import compare_digest

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lightgc2n.serving.connections import client_of
from lightgc2n.serving.errors import RefusedError, busy, out_of_resources, unavailable
from lightgc2n.serving.json_size import refuse_shape
from lightgc2n.serving.logs import log_problem
from lightgc2n.serving.request_memory import BODY_TIMES, Hold, no_room
from lightgc2n.serving.schemas import limits_now
from lightgc2n.serving.service import Service
from lightgc2n.serving.settings import ServiceSettings, digest, is_loopback

# What holds nobody's data: the page, the runtime for browsers, what probes ask, what the API looks like.
OPEN = frozenset({"/", "/report", "/healthz", "/readyz", "/openapi.json", "/favicon.ico"})
OPEN_FOLDERS = ("/page/", "/ort/")
FILE_FOLDERS = ("/page/", "/ort/", "/device/")
LOCAL = frozenset({"localhost", "127.0.0.1", "[::1]"})
LARGE = 2**16  # bytes of an answer that are handed on at once; the rest waits until the client has taken them
DISCARDED = 8  # times the largest body that is read and thrown away, so that the client hears the answer
Headers = dict[bytes, bytes]


class Guard:
    """Lets requests through that may pass, with their bodies read."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service
        self._limits, self._settings = service.limits, service.settings
        self._is_known = lru_cache(256)(partial(_is_known, service.settings))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            scope["client_name"] = self._admit(scope)
        except RefusedError as refusal:
            await refusal.response()(scope, receive, send)
            return
        limits_now.set(self._limits)
        scope["hold"] = hold = self._service.memory.hold(scope["client_name"])
        answer = Answer(self._service, hold, send)
        try:
            await self._answer(scope, receive, answer)
        except RefusedError as refusal:
            await refusal.response()(scope, receive, send)
        except Exception as problem:
            exhausted = None if answer.begun else out_of_resources(problem)
            if exhausted is None:
                raise
            log_problem(problem, with_words=False)
            await exhausted.response()(scope, receive, send)
        finally:
            answer.end_work()
            hold.release()

    def _admit(self, scope: Scope) -> str:
        """The name of the client that asks, if it may; with keys each of them is a client."""
        headers = dict(scope["headers"])
        if b"transfer-encoding" in headers and (b"content-length" in headers or scope["http_version"] == "1.0"):
            # Two readers could disagree where this request ends and the next one begins.
            message = "Transfer-Encoding goes with neither Content-Length nor HTTP/1.0: leave one of them out."
            raise RefusedError(400, "bad_request", message, headers={"Connection": "close"})
        if self._settings.checks_host and not self._is_known(headers.get(b"host", b"")):
            message = "this service is not known by that name; start it with --allow-host NAME to change that."
            raise RefusedError(421, "unknown_host", message)
        keys, path = self._settings.key_digests, scope["path"]
        key = _key(headers, keys)
        if keys and key is None and path not in OPEN and not path.startswith(OPEN_FOLDERS):
            raise RefusedError(
                401, "no_key", "a key is needed: Authorization: Bearer KEY.", (), {"WWW-Authenticate": "Bearer"}
            )
        return client_of(scope["client"][0]) if key is None else key.hex()

    async def _answer(self, scope: Scope, receive: Receive, answer: "Answer") -> None:
        """Reads the body and runs the route, with one limit of time until the answer begins."""
        seconds, path, body = self._limits.seconds, scope["path"], None
        try:
            async with asyncio.timeout(seconds) as limit:
                answer.limit = limit
                body = await _body(receive, self._limits.max_body, scope["hold"])
                if body is None:
                    return  # the client is gone
                if path in ("/", "/report") or path.startswith(FILE_FOLDERS):
                    limit.reschedule(None)  # a large file may take its time
                refuse_shape(body, self._limits.max_values)
                if path not in OPEN:
                    answer.begin_work(self._limits.max_requests)
                await self._app(scope, _replayed(body, receive), answer.send)
                if answer.refusal is not None:
                    raise answer.refusal
        except TimeoutError:
            if answer.begun:
                raise
            raise _too_slow(body is not None, seconds) from None


class Answer:
    """The answer to one request, on its way out: begun when its first part is there, and sent in parts.

    A request counts as work until its answer begins: who takes an answer slowly keeps nobody else from asking.
    """

    def __init__(self, service: Service, hold: Hold, send: Send) -> None:
        self._service, self._hold, self._send = service, hold, send
        self._start: Message | None = None
        self._works = False
        self.begun = False
        self.limit: asyncio.Timeout | None = None
        self.refusal: RefusedError | None = None  # in place of an answer that there is no room for

    def begin_work(self, most: int) -> None:
        if self._service.working >= most:
            raise busy(f"{self._service.working:,} requests are being worked on; ask again in a moment.")
        self._works = True
        self._service.working += 1
        self._service.metrics.working.inc()

    def end_work(self) -> None:
        if self._works:
            self._works = False
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
        """Ends the work and the limit of time; false if the answer is too large for what is left of memory."""
        if self.refusal is not None or (size > LARGE and not self._hold.grow_to(size)):
            self.refusal = self.refusal or no_room()
            return False
        self.begun = True
        self.end_work()
        if self.limit is not None:
            self.limit.reschedule(None)
        return True


def _parts(body: bytes) -> Iterator[tuple[bytes, bool]]:
    """A body in parts, each with whether there is another."""
    if len(body) <= LARGE:
        yield body, False
        return
    for first in range(0, len(body), LARGE):
        yield body[first : first + LARGE], first + LARGE < len(body)


async def _body(receive: Receive, most: int, hold: Hold) -> bytes | None:
    """The whole body; none if the client went away before its end."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        size += len(message["body"])
        if size <= most:
            hold.need(size)
            parts.append(message["body"])
        if size > DISCARDED * most or (size > most and not message["more_body"]):
            raise RefusedError(413, "too_large", f"a body has at most {most:,} bytes.")
        if not message["more_body"]:
            hold.need(BODY_TIMES * size)
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_slow(arrived: bool, seconds: float) -> RefusedError:
    if arrived:
        return unavailable("too_slow", f"no answer within {seconds:g} s.")
    message = f"the request did not arrive within {seconds:g} s."
    return RefusedError(408, "too_slow", message, (), {"Connection": "close"})


def _replayed(body: bytes, receive: Receive) -> Receive:
    """What the route reads: the body in one piece, then whatever the client does."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _key(headers: Headers, keys: tuple[bytes, ...]) -> bytes | None:
    """The digest of the key that was given, if it is one of the keys; how long it takes to find out tells nothing."""
    if not keys:
        return None
    scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    given = token.strip() if scheme.lower() == "bearer" else headers.get(b"x-api-key", b"").decode("latin-1")
    found = digest(given)
    return found if sum(compare_digest(found, key) for key in keys) > 0 else None


def _is_known(settings: ServiceSettings, host: bytes) -> bool:
    """Whether a request may call the service so: by a local name, by its own, or, from elsewhere, by an address."""
    name, colon, port = host.decode("latin-1").rpartition(":")
    bare = (name if colon and port.isdigit() else host.decode("latin-1")).lower()
    if "*" in settings.allow_hosts or bare in {*LOCAL, settings.host.lower(), *map(str.lower, settings.allow_hosts)}:
        return True
    return not is_loopback(settings.host) and _is_address(bare)  # no website can make an address its own


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text[1:-1] if text.startswith("[") and text.endswith("]") else text)
    except ValueError:
        return False
    return True

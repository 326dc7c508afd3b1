"""Who may ask, how much, and for how long: settled before a request reaches its route."""

import asyncio
from functools import lru_cache
from hmac import compare_digest

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lightgc2n.serving.refusals import RefusedError, busy
from lightgc2n.serving.service import Service
from lightgc2n.serving.settings import digest

# What holds nobody's data: the page, the runtime for browsers, what probes ask, what the API looks like.
OPEN = frozenset({"/", "/report", "/healthz", "/readyz", "/openapi.json", "/favicon.ico"})
OPEN_FOLDERS = ("/page/", "/ort/")
FILE_FOLDERS = ("/page/", "/ort/", "/device/")
LOCAL = frozenset({"localhost", "127.0.0.1", "[::1]"})
SENDING_SECONDS, LARGE = 120.0, 2**16  # for an answer with more bytes than wait in the connection to be taken
DISCARDED = 8  # times the largest body that is read and thrown away, so that the client hears the answer


class Guard:
    """Lets requests through that may pass, with their bodies read."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service
        self._limits, self._settings = service.limits, service.settings
        self._working = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._admit(scope)
        except RefusedError as refusal:
            await refusal.response()(scope, receive, send)
            return
        self._working += 1
        self._service.metrics.working.inc()
        try:
            await self._answer(scope, receive, send)
        finally:
            self._working -= 1
            self._service.metrics.working.dec()

    def _admit(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        if self._settings.local_names_only and not _is_local(headers.get(b"host", b""), self._settings.host):
            raise RefusedError(421, "unknown_host", "this service answers to its local name alone.")
        keys, path = self._settings.key_digests, scope["path"]
        if keys and path not in OPEN and not path.startswith(OPEN_FOLDERS) and not _has_key(headers, keys):
            raise RefusedError(
                401, "no_key", "a key is needed: Authorization: Bearer KEY.", (), {"WWW-Authenticate": "Bearer"}
            )
        if self._working >= self._limits.max_requests and path not in OPEN:
            raise busy(f"{self._working:,} requests are being worked on; ask again in a moment.")

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reads the body and runs the route, with one limit of time until the answer begins."""
        seconds, path, body, begun = self._limits.seconds, scope["path"], None, False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            large = len(message.get("body", b"")) > LARGE
            limit.reschedule(asyncio.get_running_loop().time() + SENDING_SECONDS if large else None)
            await send(message)

        try:
            async with asyncio.timeout(seconds) as limit:
                body = await _body(receive, self._limits.max_body)
                if body is None:
                    return  # the client is gone
                if path in ("/", "/report") or path.startswith(FILE_FOLDERS):
                    limit.reschedule(None)  # a large file may take its time
                await self._app(scope, _replayed(body, receive), watched)
        except TimeoutError:
            if begun:
                raise
            await _too_slow(body is not None, seconds).response()(scope, receive, send)
        except RefusedError as refusal:
            await refusal.response()(scope, receive, send)


async def _body(receive: Receive, most: int) -> bytes | None:
    """The whole body; none if the client went away before its end."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        size += len(message["body"])
        if size <= most:
            parts.append(message["body"])
        if size > DISCARDED * most or (size > most and not message["more_body"]):
            raise RefusedError(413, "too_large", f"a body has at most {most:,} bytes.")
        if not message["more_body"]:
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_slow(arrived: bool, seconds: float) -> RefusedError:
    if arrived:
        return RefusedError(503, "too_slow", f"no answer within {seconds:g} s.", (), {"Retry-After": "1"})
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


def _has_key(headers: dict[bytes, bytes], keys: tuple[bytes, ...]) -> bool:
    """Whether one of the keys was given; how long that takes to find out tells nothing of them."""
    scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    given = token.strip() if scheme.lower() == "bearer" else headers.get(b"x-api-key", b"").decode("latin-1")
    found = digest(given)
    return sum(compare_digest(found, key) for key in keys) > 0


@lru_cache(256)
def _is_local(host: bytes, listening: str) -> bool:
    name, colon, port = host.decode("latin-1").rpartition(":")
    bare = name if colon and port.isdigit() else host.decode("latin-1")
    return bare.lower() in LOCAL or bare == listening

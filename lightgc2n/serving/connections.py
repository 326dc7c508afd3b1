"""Open connections: HTTP/1.1 with timeouts for slow clients, and which connection to close at the limit.

An idle connection takes memory and a file descriptor. When a new connection arrives at the limit, the one that has been
idle longest is closed, starting with the client that has the most connections. If every connection is being answered,
the new one is rejected.
"""

import asyncio
import ipaddress
import resource
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from lightgc2n.serving.errors import EXHAUSTED, RefusedError, raw_response, unavailable
from lightgc2n.serving.logs import log, log_problem
from lightgc2n.serving.settings import Limits

NOT_HTTP = RefusedError(400, "bad_request", "the request is not valid HTTP/1.1.")


class TimeoutProtocol(H11Protocol):
    """Closes a connection that does not finish its request, or does not read its response, in time.

    Args:
        head_seconds: for the head of a request to arrive.
        send_seconds: for the client to read the next part of a response.
    """

    _head_timer: asyncio.TimerHandle | None = None
    _send_timer: asyncio.TimerHandle | None = None  # set while the client does not read
    transport: Any = None
    has_answered = False  # at least one request

    def __init__(self, *arguments: Any, head_seconds: float, send_seconds: float, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._head_seconds, self._send_seconds = head_seconds, send_seconds
        self.idle_since = time.monotonic()
        self.on_closed: Callable[[TimeoutProtocol], None] = lambda _protocol: None

    @property
    def can_be_closed(self) -> bool:
        """Whether no client waits for a response: there is no complete request, or its response is not being read."""
        if self.transport is None:
            return False
        if self.transport.is_closing():
            return self.is_finished
        return self._between_requests() or self.cycle.more_body or self._send_timer is not None

    @property
    def is_finished(self) -> bool:
        """Whether everything is sent and the connection is closing."""
        return self.transport.is_closing() and not self.transport.get_write_buffer_size()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        self._unset_keepalive_if_required()
        self._stop_send_timer()
        self.on_closed(self)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if not self._between_requests():
            self._stop_head_timer()
        elif self._head_timer is None and self.conn.trailing_data[0]:
            self._start_head_timer()

    def on_response_complete(self) -> None:
        self.has_answered, self.idle_since = True, time.monotonic()
        super().on_response_complete()
        if self.transport.is_closing() and self.transport.get_write_buffer_size():
            self._start_send_timer()  # time for the client to read the rest of the response

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # close() would wait for a client that does not read
        else:
            super().timeout_keep_alive_handler()

    def pause_writing(self) -> None:
        self._start_send_timer()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stop_send_timer()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Send the JSON error for invalid HTTP."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # no part of a response has been sent
            answer, own_id = raw_response(NOT_HTTP)
            self.transport.write(answer)
            log("request", method="other", route="other", status=NOT_HTTP.status, request_id=own_id)
        self.transport.close()

    def _start_send_timer(self) -> None:
        self._stop_send_timer()
        self._send_timer = self.loop.call_later(self._send_seconds, self.transport.abort)

    def _stop_send_timer(self) -> None:
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None

    def _between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(self._head_seconds, self._head_timed_out)

    def _head_timed_out(self) -> None:
        self._head_timer = None
        if self._between_requests() and not self.transport.is_closing():
            self.transport.close()

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


ACCEPTED_AT_ONCE = 64  # connections accepted before the event loop does other work
RETRY_SECONDS = 0.1  # pause after accepting failed
LEAST_IDLE_SECONDS = 5.0  # least idle time of a connection that is closed to free its file descriptor
NO_ROOM = unavailable("no_room", "all connections are in use; retry in a moment.")
RESERVED_FILES = 64  # file descriptors kept free for files and libraries


class Connections:
    """Accepts connections from listening sockets and keeps their number within the limits.

    Args:
        protocol: creates the protocol of one connection.
        closed: called with the reason when a connection is closed to make room, or rejected.
    """

    def __init__(
        self,
        limits: Limits,
        protocol: Callable[[], TimeoutProtocol],
        closed: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        self._protocol, self._closed = protocol, closed
        self._most, self._most_per_client = most_connections(limits), limits.max_connections_per_client
        self._open: dict[TimeoutProtocol, str] = {}  # connection -> client
        self._of_client: Counter[str] = Counter()
        self._starting: set[asyncio.Task[None]] = set()
        self._listening: set[socket.socket] = set()

    def __len__(self) -> int:
        return len(self._open)

    def listen(self, at: socket.socket) -> None:
        """Start accepting connections from this socket."""
        at.setblocking(False)
        self._listening.add(at)
        asyncio.get_running_loop().add_reader(at.fileno(), self._accept, at)

    def stop_listening(self) -> None:
        """Stop accepting; other workers that share the sockets continue."""
        for at in self._listening:
            asyncio.get_running_loop().remove_reader(at.fileno())
        self._listening.clear()

    async def wait_for_starting(self) -> None:
        """Wait until the protocol of every accepted connection has started."""
        if self._starting:
            await asyncio.wait(self._starting)

    def admit(self, connection: socket.socket, address: str) -> None:
        """Start the protocol of a connection, closing another one if needed, or reject it."""
        client = client_of(address)
        if (self._of_client[client] >= self._most_per_client and not self._make_room(client)) or (
            len(self._open) >= self._most and not self._make_room()
        ):
            _reject(connection)
            self._closed("refused")
            return
        protocol = self._protocol()
        protocol.on_closed = self._remove
        self._open[protocol] = client
        self._of_client[client] += 1
        task = asyncio.get_running_loop().create_task(self._start(protocol, connection))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _start(self, protocol: TimeoutProtocol, connection: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, connection)
        except Exception as problem:  # other connections are not affected
            log_problem(problem, with_message=False)
            connection.close()
            self._remove(protocol)

    def _accept(self, at: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            if self._starting and len(self._open) >= min(self._most, self._most_per_client):
                return  # which of them can be closed is known only once they have started
            try:
                connection, address = at.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as problem:
                self._pause_accepting(at, problem)
                return
            connection.setblocking(False)
            self.admit(connection, str(address[0]))

    def _pause_accepting(self, at: socket.socket, problem: OSError) -> None:
        """Stop accepting for a moment; if file descriptors have run out, close an idle connection."""
        log("cannot_accept", "error", reason=problem.strerror or str(problem), connections=len(self._open))
        if problem.errno in EXHAUSTED:
            self._make_room(idle_seconds=LEAST_IDLE_SECONDS)
        loop = asyncio.get_running_loop()
        loop.remove_reader(at.fileno())
        loop.call_later(RETRY_SECONDS, lambda: self.listen(at) if at in self._listening else None)

    def _make_room(self, client: str | None = None, idle_seconds: float = 0.0) -> bool:
        """Close the connection that is needed least; return whether there was one.

        Args:
            client: close a connection of this client.
            idle_seconds: the least idle time of a connection that has had a request before.
        """
        before = time.monotonic() - idle_seconds
        candidates = [
            one
            for one, owner in self._open.items()
            if client in (None, owner) and one.can_be_closed and (not one.has_answered or one.idle_since <= before)
        ]
        if not candidates:
            return False
        closing = min(candidates, key=self._closing_order)
        if not closing.is_finished:
            self._closed("spared")
        self._remove(closing)
        closing.transport.abort()
        return True

    def _closing_order(self, one: TimeoutProtocol) -> tuple[bool, int, bool, float]:
        """The sort key that puts the connection that is needed least first."""
        return not one.is_finished, -self._of_client[self._open[one]], one.has_answered, one.idle_since

    def _remove(self, protocol: TimeoutProtocol) -> None:
        client = self._open.pop(protocol, None)
        if client is not None:
            self._of_client[client] -= 1
            if not self._of_client[client]:
                del self._of_client[client]


def most_connections(limits: Limits) -> int:
    """The largest number of open connections: the setting, or less if the process may not open so many files."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or limits.max_connections + RESERVED_FILES <= limit:
        return limits.max_connections
    most = max(1, limit - RESERVED_FILES)
    log("connections_limited", "warning", max_connections=most, reason=f"this process may open {limit:,} files")
    return most


@lru_cache(4096)
def client_of(address: str) -> str:
    """The client of an address: the IPv4 address, or the /64 network, since an IPv6 client owns all addresses in it."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, 64), strict=False))


def _reject(connection: socket.socket) -> None:
    with connection, suppress(OSError):
        connection.send(raw_response(NO_ROOM)[0])

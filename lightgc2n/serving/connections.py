"""Limits the number of open connections, and chooses which one to close when the limit is reached.

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

from lightgc2n.serving.errors import EXHAUSTED, raw_response, unavailable
from lightgc2n.serving.logs import log, log_problem
from lightgc2n.serving.protocol import TimeoutProtocol
from lightgc2n.serving.settings import Limits

ACCEPTED_AT_ONCE = 64  # connections accepted before the event loop does other work
RETRY_SECONDS = 0.1  # until the next attempt, when accepting failed
LEAST_IDLE_SECONDS = 5.0  # of a connection that is closed to free its file descriptor
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
        self._open: dict[TimeoutProtocol, str] = {}  # with the client of each
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

"""Connections: how many may be open, and whose is closed when there is no room.

A connection that asks nothing costs memory and a file descriptor. When a newcomer finds no room, the connection that
has waited longest without a whole request is closed for it, first of the client that has most of them. Only where every
connection is being answered is the newcomer sent away.
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
from lightgc2n.serving.protocol import PatientProtocol
from lightgc2n.serving.settings import Limits

AT_ONCE = 64  # connections accepted before others have their turn
RESTING_SECONDS = 0.1  # before another try, when nothing could be accepted
SPARED_SECONDS = 5.0  # that a connection has waited before it is closed to get back its descriptor
NO_ROOM = unavailable("no_room", "all connections are in use; try again in a moment.")
OTHER_FILES = 64  # descriptors that are kept free for files and libraries


class Connections:
    """Accepts connections at listening sockets, and keeps their number within the limits.

    Args:
        protocol: makes what answers at one connection.
        closed: is told why a connection was closed to make room, or not let in.
    """

    def __init__(
        self,
        limits: Limits,
        protocol: Callable[[], PatientProtocol],
        closed: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        self._protocol, self._closed = protocol, closed
        self._most, self._most_of_one = most_connections(limits), limits.max_connections_per_client
        self._open: dict[PatientProtocol, str] = {}  # and whose each is
        self._of_client: Counter[str] = Counter()
        self._starting: set[asyncio.Task[None]] = set()
        self._listening: set[socket.socket] = set()

    def __len__(self) -> int:
        return len(self._open)

    def listen(self, at: socket.socket) -> None:
        """Accept connections at this socket from now on."""
        at.setblocking(False)
        self._listening.add(at)
        asyncio.get_running_loop().add_reader(at.fileno(), self._accept, at)

    def stop_listening(self) -> None:
        """Leave who comes from now on to others that share the sockets."""
        for at in self._listening:
            asyncio.get_running_loop().remove_reader(at.fileno())
        self._listening.clear()

    async def wait_for_starting(self) -> None:
        """Wait until every connection that was accepted is looked after."""
        if self._starting:
            await asyncio.wait(self._starting)

    def admit(self, connection: socket.socket, address: str) -> None:
        """Look after a connection, closing another if need be, or send it away."""
        client = client_of(address)
        if (self._of_client[client] >= self._most_of_one and not self._make_room(client)) or (
            len(self._open) >= self._most and not self._make_room()
        ):
            _send_away(connection)
            self._closed("refused")
            return
        protocol = self._protocol()
        protocol.on_closed = self._forget
        self._open[protocol] = client
        self._of_client[client] += 1
        task = asyncio.get_running_loop().create_task(self._start(protocol, connection))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _start(self, protocol: PatientProtocol, connection: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, connection)
        except Exception as problem:  # whatever it is, the others are still served
            log_problem(problem, with_words=False)
            connection.close()
            self._forget(protocol)

    def _accept(self, at: socket.socket) -> None:
        for _ in range(AT_ONCE):
            if self._starting and len(self._open) >= min(self._most, self._most_of_one):
                return  # which of them can be spared is not known before they have started
            try:
                connection, address = at.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as problem:
                self._rest(at, problem)
                return
            connection.setblocking(False)
            self.admit(connection, str(address[0]))

    def _rest(self, at: socket.socket, problem: OSError) -> None:
        """Stop accepting for a moment; where descriptors are used up, some that nobody needs are given back."""
        log("cannot_accept", "error", reason=problem.strerror or str(problem), connections=len(self._open))
        if problem.errno in EXHAUSTED:
            self._make_room(idle_seconds=SPARED_SECONDS)
        loop = asyncio.get_running_loop()
        loop.remove_reader(at.fileno())
        loop.call_later(RESTING_SECONDS, lambda: self.listen(at) if at in self._listening else None)

    def _make_room(self, client: str | None = None, idle_seconds: float = 0.0) -> bool:
        """Close the connection that can be spared best; returns whether there is one.

        Args:
            client: close one of this client's.
            idle_seconds: that one must have waited, if it has asked before.
        """
        before = time.monotonic() - idle_seconds
        able = [
            one
            for one, owner in self._open.items()
            if client in (None, owner) and one.can_be_spared and (not one.has_asked or one.idle_since <= before)
        ]
        if not able:
            return False
        spared = min(able, key=self._use)
        if not spared.is_over:
            self._closed("spared")
        self._forget(spared)
        spared.transport.abort()
        return True

    def _use(self, one: PatientProtocol) -> tuple[bool, int, bool, float]:
        """What orders connections, the one that can be spared best first."""
        return not one.is_over, -self._of_client[self._open[one]], one.has_asked, one.idle_since

    def _forget(self, protocol: PatientProtocol) -> None:
        client = self._open.pop(protocol, None)
        if client is not None:
            self._of_client[client] -= 1
            if not self._of_client[client]:
                del self._of_client[client]


def most_connections(limits: Limits) -> int:
    """How many connections may be open: as many as the limit says, and as there are descriptors for."""
    able, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if able == resource.RLIM_INFINITY or limits.max_connections + OTHER_FILES <= able:
        return limits.max_connections
    most = max(1, able - OTHER_FILES)
    log("connections_limited", "warning", max_connections=most, reason=f"this process may open {able:,} files")
    return most


@lru_cache(4096)
def client_of(address: str) -> str:
    """Whose an address is: itself, or its /64 network, of which a client of IPv6 has all addresses."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))


def _send_away(connection: socket.socket) -> None:
    with connection, suppress(OSError):
        connection.send(raw_response(NO_ROOM)[0])

"""The web server of one worker, with a graceful shutdown that resets no connection in the accept queue.

The kernel completes handshakes before the program calls accept(), and resets the queued connections when the socket is
closed. So a packet filter first drops new handshakes, then the queue is accepted, then the socket is closed. A client
whose handshake was dropped retries and finds the port closed. Only Linux has such filters; on other systems a
connection that arrives between the last accept() and close() is reset.
"""

import array
import asyncio
import math
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterator

import uvicorn

from lightgc2n.serving.app import create_app
from lightgc2n.serving.connections import Connections, TimeoutProtocol
from lightgc2n.serving.logs import flush_logs, log, log_suppressed
from lightgc2n.serving.service import Service
from lightgc2n.serving.workers import BACKLOG

SETTLING_SECONDS = 0.2  # time for the request of a connection that was just accepted


class Server(uvicorn.Server):
    """The web server of one worker; it runs until a shutdown is requested.

    Args:
        parent: the process id of the supervisor, if there is one.
        all_end: returns whether all workers shut down, not only this one.
    """

    def __init__(self, service: Service, parent: int | None = None, all_end: Callable[[], bool] = lambda: True) -> None:
        self._service, self._parent, self._all_end = service, parent, all_end
        limits = service.limits
        config = uvicorn.Config(
            create_app(service),
            http=TimeoutProtocol,
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_keep_alive=math.ceil(limits.idle_seconds),
            timeout_graceful_shutdown=int(2 * limits.seconds) + 1,
        )
        super().__init__(config)
        self._connections = Connections(limits, self._protocol, lambda why: service.metrics.closed.labels(why).inc())

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        for one in sockets or []:
            one.listen(BACKLOG)  # before the server counts as started: connections are queued from now on
        await super().startup(sockets=[])
        for one in sockets or []:
            self._connections.listen(one)

    async def on_tick(self, counter: int) -> bool:
        """Return whether to shut down: on request, or when the parent process has died."""
        if self._orphaned():
            self.should_exit = True
        if counter % 10 == 0:
            log_suppressed()
            self._service.metrics.connections.set(len(self._connections))
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain: report not ready, close the listening sockets, answer what was accepted, then end.

        A worker that ends alone stops accepting at once; the others continue.
        """
        log("draining")
        self._service.draining = True  # from now on every response closes its connection
        if not self._all_workers_end():
            self._connections.stop_listening()
        await asyncio.sleep(self._service.limits.drain_seconds)
        if self._all_workers_end():  # known for sure only now: a signal may reach workers before their parent
            self._close_sockets(sockets or [])
        await self._connections.wait_for_starting()
        await asyncio.sleep(SETTLING_SECONDS)
        await super().shutdown(sockets)
        log("ended")
        flush_logs()

    def _all_workers_end(self) -> bool:
        return self._all_end() or self._orphaned()

    def _orphaned(self) -> bool:
        return self._parent is not None and self._parent != os.getppid()

    def _close_sockets(self, sockets: list[socket.socket]) -> None:
        for one in sockets:
            block_new_connections(one)
        last = [connection for one in sockets for connection in pending_connections(one)]
        self._connections.stop_listening()
        for one in sockets:
            one.close()
        for connection, address in last:
            self._connections.admit(connection, address)

    def _protocol(self) -> TimeoutProtocol:
        limits, words = self._service.limits, {"config": self.config, "server_state": self.server_state}
        return TimeoutProtocol(
            **words,
            app_state=self.lifespan.state,
            head_seconds=limits.head_seconds,
            send_seconds=limits.send_seconds,
        )


ATTACH_FILTER = 26  # SO_ATTACH_FILTER
DROP_ALL = struct.pack("HBBI", 0x06, 0, 0, 0)  # one BPF instruction: return 0, which drops the packet


def block_new_connections(listening: socket.socket) -> None:
    """Drop new handshakes; connections in the accept queue are kept."""
    if sys.platform == "linux":
        program = array.array("B", DROP_ALL)
        where = struct.pack("HP", 1, program.buffer_info()[0])
        listening.setsockopt(socket.SOL_SOCKET, ATTACH_FILTER, where)


def pending_connections(listening: socket.socket) -> Iterator[tuple[socket.socket, str]]:
    """The connections in the accept queue, with their addresses."""
    while True:
        try:
            connection, address = listening.accept()
        except OSError:  # the queue is empty, or no file descriptor is left
            return
        connection.setblocking(False)
        yield connection, str(address[0])

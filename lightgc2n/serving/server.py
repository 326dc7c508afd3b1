"""The web server of one worker, and how it ends without losing a request."""

import asyncio
import os
import socket

import uvicorn

from lightgc2n.serving.app import create_app
from lightgc2n.serving.door import bar, waiting_at
from lightgc2n.serving.logs import log
from lightgc2n.serving.protocol import PatientProtocol
from lightgc2n.serving.running import BACKLOG
from lightgc2n.serving.service import Service

IDLE_SECONDS = 75  # that a connection may wait for its next request
SETTLING_SECONDS = 0.2  # in which a connection that was just accepted may still bring its request


class Server(uvicorn.Server):
    """Answers until it is told to end.

    Args:
        parent: the process that looks after this one, if there is one.
    """

    def __init__(self, service: Service, parent: int | None = None) -> None:
        self._service, self._parent = service, parent
        config = uvicorn.Config(
            create_app(service),
            http=PatientProtocol,
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=int(2 * service.limits.seconds) + 1,
        )
        super().__init__(config)

    async def on_tick(self, counter: int) -> bool:
        """Whether it is time to end: when told to, or when the parent is gone."""
        if self._parent is not None and self._parent != os.getppid():
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """First others are told to go elsewhere, then the door is closed, then what is inside is answered."""
        log("draining")
        self._service.draining = True  # from now on every answer ends its connection
        await asyncio.sleep(self._service.limits.drain_seconds)
        await self._close_door(sockets or [])
        await asyncio.sleep(SETTLING_SECONDS)
        await super().shutdown(sockets)
        log("ended")

    async def _close_door(self, sockets: list[socket.socket]) -> None:
        for one in sockets:
            bar(one)
        last = [connection for one in sockets for connection in waiting_at(one)]
        for server in self.servers:
            server.close()
        for one in sockets:
            one.close()
        for connection in last:
            await asyncio.get_running_loop().connect_accepted_socket(self._protocol, connection)

    def _protocol(self) -> PatientProtocol:
        return PatientProtocol(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

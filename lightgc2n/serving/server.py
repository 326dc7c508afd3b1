"""The web server of one worker, and how it ends without losing a request."""

import asyncio
import socket

import uvicorn

from lightgc2n.serving.app import create_app
from lightgc2n.serving.logs import log
from lightgc2n.serving.protocol import PatientProtocol
from lightgc2n.serving.service import Service

BACKLOG = 2048
IDLE_SECONDS = 75  # that a connection may wait for its next request
SETTLING_SECONDS = 0.2  # in which a connection that was just accepted may still bring its request


class Server(uvicorn.Server):
    """Answers until it is told to end."""

    def __init__(self, service: Service) -> None:
        self._service = service
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

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """First others are told to go elsewhere, then the door is closed, then what is inside is answered."""
        log("draining")
        self._service.draining = True  # from now on every answer ends its connection
        await asyncio.sleep(self._service.limits.drain_seconds)
        for server in self.servers:
            server.close()
        for one in sockets or []:
            one.close()
        await asyncio.sleep(SETTLING_SECONDS)
        await super().shutdown(sockets)
        log("ended")

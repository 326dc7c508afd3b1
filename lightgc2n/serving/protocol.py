"""HTTP/1.1 by uvicorn and h11, with patience that ends, and with our shape for what is no HTTP at all."""

import asyncio
import json
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 20.0  # for the head of the first request to arrive


class PatientProtocol(H11Protocol):
    """A connection that brings no request does not stay for ever."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._impatience: asyncio.TimerHandle | None = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        self._calm()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None:
            self._calm()

    def send_400_response(self, msg: str) -> None:
        """What cannot be read gets the error shape too; h11 may have given up on the connection already."""
        error = {"error": {"code": "bad_request", "message": "this is not HTTP as it should be.", "details": []}}
        body = json.dumps(error).encode()
        head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        self.transport.close()

    def _give_up(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()

    def _calm(self) -> None:
        if self._impatience is not None:
            self._impatience.cancel()
            self._impatience = None

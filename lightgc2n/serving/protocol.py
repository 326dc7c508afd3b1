"""HTTP/1.1 by uvicorn and h11, with patience that ends, and with our shape for what is no HTTP at all."""

import asyncio
import json
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 20.0  # for the head of a request to arrive
NO_HTTP = {"error": {"code": "bad_request", "message": "this is not HTTP as it should be.", "details": []}}


class PatientProtocol(H11Protocol):
    """A connection that brings half a request does not stay for ever."""

    _impatience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if not self._between_requests():
            self._stop_waiting()
        elif self._impatience is None and self.conn.trailing_data[0]:
            self._wait_for_head()

    def send_400_response(self, msg: str) -> None:
        """What cannot be read gets the error shape too."""
        body = json.dumps(NO_HTTP).encode()
        head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # nothing of an answer is out yet
            self.transport.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        self.transport.close()

    def _between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait_for_head(self) -> None:
        self._impatience = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _give_up(self) -> None:
        self._impatience = None
        if self._between_requests() and not self.transport.is_closing():
            self.transport.close()

    def _stop_waiting(self) -> None:
        if self._impatience is not None:
            self._impatience.cancel()
            self._impatience = None

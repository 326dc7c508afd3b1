"""HTTP/1.1 by uvicorn and h11, with patience that ends, and with our shape for what is no HTTP at all."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from lightgc2n.serving.errors import RefusedError, raw_response
from lightgc2n.serving.logs import log

NO_HTTP = RefusedError(400, "bad_request", "this is not HTTP as it should be.")


class PatientProtocol(H11Protocol):
    """A connection that brings half a request, or does not take its answer, does not stay for ever.

    Args:
        head_seconds: for the head of a request to arrive.
        send_seconds: for a client to take the next part of an answer.
    """

    _impatience: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None  # while the client takes nothing
    transport: Any = None
    has_asked = False  # at least one whole request

    def __init__(self, *arguments: Any, head_seconds: float, send_seconds: float, **words: Any) -> None:
        super().__init__(*arguments, **words)
        self._head_seconds, self._send_seconds = head_seconds, send_seconds
        self.idle_since = time.monotonic()
        self.on_closed: Callable[[PatientProtocol], None] = lambda _protocol: None

    @property
    def can_be_spared(self) -> bool:
        """Whether nobody waits for an answer here: no whole request is there, or its answer is not taken."""
        if self.transport is None:
            return False
        if self.transport.is_closing():
            return self.is_over
        return self._between_requests() or self.cycle.more_body or self._stalled is not None

    @property
    def is_over(self) -> bool:
        """Whether everything is sent and the connection is about to be gone."""
        return self.transport.is_closing() and not self.transport.get_write_buffer_size()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._unset_keepalive_if_required()
        self._moves_on()
        self.on_closed(self)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if not self._between_requests():
            self._stop_waiting()
        elif self._impatience is None and self.conn.trailing_data[0]:
            self._wait_for_head()

    def on_response_complete(self) -> None:
        self.has_asked, self.idle_since = True, time.monotonic()
        super().on_response_complete()
        if self.transport.is_closing() and self.transport.get_write_buffer_size():
            self._stalls()  # what is left of the answer may be taken for a while

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # closing would wait for a reader who does not read
        else:
            super().timeout_keep_alive_handler()

    def pause_writing(self) -> None:
        self._stalls()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._moves_on()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """What cannot be read gets the error shape too."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # nothing of an answer is out yet
            answer, told = raw_response(NO_HTTP)
            self.transport.write(answer)
            log("request", method="other", route="other", status=NO_HTTP.status, request_id=told)
        self.transport.close()

    def _stalls(self) -> None:
        self._moves_on()
        self._stalled = self.loop.call_later(self._send_seconds, self.transport.abort)

    def _moves_on(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait_for_head(self) -> None:
        self._impatience = self.loop.call_later(self._head_seconds, self._give_up)

    def _give_up(self) -> None:
        self._impatience = None
        if self._between_requests() and not self.transport.is_closing():
            self.transport.close()

    def _stop_waiting(self) -> None:
        if self._impatience is not None:
            self._impatience.cancel()
            self._impatience = None

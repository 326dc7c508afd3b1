"""uvicorn's HTTP/1.1 protocol with timeouts for slow clients, and JSON errors for invalid HTTP."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from lightgc2n.serving.errors import RefusedError, raw_response
from lightgc2n.serving.logs import log

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

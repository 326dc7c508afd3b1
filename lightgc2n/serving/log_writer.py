"""A background thread that writes log lines to stderr, so that a blocked stderr never delays a request.

The queue is bounded. When it is full, lines are dropped and counted; the count is logged when stderr accepts lines
again.
"""

import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable

MOST_BYTES = 4 * 2**20  # of queued lines
WRITTEN_AT_ONCE = 2**16
RESTING_SECONDS = 0.1  # after a failed write


class LineWriter:
    """Writes lines in order from its own thread.

    Args:
        write: writes bytes; may block.
        lost: formats the line that reports how many lines were dropped.
        dropped: called for each dropped line.
    """

    def __init__(
        self,
        write: Callable[[bytes], None],
        lost: Callable[[int], bytes],
        dropped: Callable[[], None] = lambda: None,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._write, self._lost, self.dropped, self._most_bytes = write, lost, dropped, most_bytes
        self._lines: deque[bytes] = deque()
        self._bytes, self._unreported = 0, 0  # bytes queued or being written; dropped lines not yet reported
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="logs", daemon=True).start()

    def put(self, line: bytes) -> None:
        """Queue a line, or drop it when the queue is full."""
        with self._changed:
            if self._bytes + len(line) <= self._most_bytes:
                self._lines.append(line)
                self._bytes += len(line)
                self._changed.notify_all()
                return
            self._unreported += 1
        self.dropped()

    def flush(self, seconds: float) -> bool:
        """Wait until everything is written, at most this long; return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._bytes, seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines)
                lines = self._next_lines()
            written = self._try(b"".join(lines))
            with self._changed:
                self._bytes -= sum(map(len, lines))
                self._unreported += 0 if written else len(lines)
                unreported, self._unreported = self._unreported, 0
                self._changed.notify_all()
            if unreported and not self._try(self._lost(unreported)):
                with self._changed:
                    self._unreported += unreported

    def _next_lines(self) -> list[bytes]:
        lines, size = [], 0
        while self._lines and size < WRITTEN_AT_ONCE:
            lines.append(self._lines.popleft())
            size += len(lines[-1])
        return lines

    def _try(self, data: bytes) -> bool:
        try:
            self._write(data)
        except OSError:  # the disk is full, or the pipe is closed
            time.sleep(RESTING_SECONDS)
            return False
        return True


def to_stderr(data: bytes) -> None:
    """Write all bytes to stderr, bypassing the buffer of `sys.stderr`: its lock could block the exit of the process."""
    stream = sys.stderr
    if stream is not sys.__stderr__ or stream is None:
        if stream is not None:
            stream.write(data.decode())
            stream.flush()
        return
    number = stream.fileno()
    while data:
        try:
            data = data[os.write(number, data) :]
        except BlockingIOError:
            select.select([], [number], [])

"""Lines that a thread writes to stderr, so that a reader who does not read holds up nobody.

Lines wait in a queue of bounded size. When it is full, further lines are dropped and counted; a line tells how many as
soon as there is a reader again.
"""

import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable

MOST_BYTES = 4 * 2**20  # that may wait
AT_ONCE = 2**16
RESTING_SECONDS = 0.1  # after a write that failed


class LineWriter:
    """Writes lines in their order, from a thread of its own.

    Args:
        write: writes bytes, for as long as that takes.
        lost: makes the line that tells how many lines were dropped.
        dropped: is called for each line that is dropped.
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
        self._bytes, self._untold = 0, 0  # that wait or are being written; lines dropped and not told of
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
            self._untold += 1
        self.dropped()

    def flush(self, seconds: float) -> bool:
        """Wait until everything is written, but no longer than this; returns whether it is."""
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
                self._untold += 0 if written else len(lines)
                untold, self._untold = self._untold, 0
                self._changed.notify_all()
            if untold and not self._try(self._lost(untold)):
                with self._changed:
                    self._untold += untold

    def _next_lines(self) -> list[bytes]:
        lines, size = [], 0
        while self._lines and size < AT_ONCE:
            lines.append(self._lines.popleft())
            size += len(lines[-1])
        return lines

    def _try(self, data: bytes) -> bool:
        try:
            self._write(data)
        except OSError:  # the disk is full, or the reader is gone
            time.sleep(RESTING_SECONDS)
            return False
        return True


def to_stderr(data: bytes) -> None:
    """Write all bytes to stderr. The buffers of `sys.stderr` are passed by: who exits would wait for their lock."""
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

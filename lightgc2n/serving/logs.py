"""JSON log lines on stderr; ids of accounts and items appear only with --log-ids.

A background thread writes them, so that a blocked stderr never delays a request. Its queue is bounded: when it is full,
lines are dropped and counted, and the count is logged when stderr accepts lines again.
"""

import json
import logging
import os
import select
import sys
import threading
import time
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any

MOST_BYTES = 4 * 2**20  # size of all queued lines
WRITTEN_AT_ONCE = 2**16
RESTING_SECONDS = 0.1  # pause after a failed write


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


FRAMES = 8  # innermost frames of a traceback that are logged
REPEAT_SECONDS, MOST_KINDS = 1.0, 1000  # seconds between two lines of one error; number of errors that are remembered
FLUSH_SECONDS = 1.0  # how long the process waits for the log when it ends
LIBRARIES = ("uvicorn", "asyncio", "concurrent.futures")

_writer: LineWriter | None = None  # None: lines are written synchronously


class RepeatFilter:
    """Passes one line per second about the same error, and counts the others."""

    def __init__(self) -> None:
        # For each error the time of its last line, the number of suppressed lines since, and the newest of them.
        self._kinds: OrderedDict[Any, tuple[float, int, dict[str, Any]]] = OrderedDict()

    def passing(self, line: dict[str, Any], now: float) -> dict[str, Any] | None:
        """The line, with the number of suppressed lines before it; None if it is suppressed too."""
        kind = (line["event"], line.get("problem"), str(line.get("at")), line.get("message"), line.get("reason"))
        last, suppressed, _ = self._kinds.pop(kind, (-REPEAT_SECONDS, 0, line))
        if now - last < REPEAT_SECONDS:
            self._kinds[kind] = (last, suppressed + 1, line)
            return None
        self._kinds[kind] = (now, 0, line)
        while len(self._kinds) > MOST_KINDS:
            self._kinds.popitem(last=False)
        return {**line, "suppressed": suppressed} if suppressed else line

    def due(self, now: float) -> list[dict[str, Any]]:
        """The newest suppressed line of each error that has not been logged for a second."""
        due = []
        for kind, (last, suppressed, line) in list(self._kinds.items()):
            if suppressed and now - last >= REPEAT_SECONDS:
                self._kinds[kind] = (now, 0, line)
                due.append({**line, "suppressed": suppressed})
        return due


_repeats = RepeatFilter()


def log(event: str, level: str = "info", **facts: Any) -> None:
    """Write one line; `logging` is not used, because it takes more time than the rest of a request.

    A warning or an error that repeats within a second is counted instead.
    """
    line: dict[str, Any] | None = {"level": level, "worker": os.getpid(), "event": event, **facts}
    if level != "info":
        line = _repeats.passing(line or {}, time.monotonic())
    if line is not None:
        _put(line)


def log_suppressed() -> None:
    """Write the suppressed lines that are due; to be called periodically."""
    for line in _repeats.due(time.monotonic()):
        _put(line)


def log_problem(problem: BaseException, with_message: bool, **facts: Any) -> None:
    """Log an unexpected error with its innermost frames.

    Args:
        with_message: whether to log its message, which may contain ids.
    """
    at = [f"{one.filename}:{one.lineno}" for one in traceback.extract_tb(problem.__traceback__)][-FRAMES:]
    words = {"words": str(problem)} if with_message else {}
    log("failed", "error", problem=type(problem).__name__, at=at, **words, **facts)


class LibraryLogHandler(logging.Handler):
    """Writes the records of other libraries in the same format."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            log_problem(record.exc_info[1], with_message=False)
        else:
            log("server", record.levelname.lower(), message=record.getMessage())


def set_up_logs() -> None:
    """Log warnings of other libraries in this format, and start the writer thread."""
    global _writer
    handler = LibraryLogHandler()
    for name in LIBRARIES:
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.WARNING)
    _writer = _writer or LineWriter(to_stderr, lambda lines: _encoded({**_DROPPED, "lines": lines}))


def on_dropped_line(count: Callable[[], None]) -> None:
    """Call `count` for each dropped line from now on."""
    if _writer is not None:
        _writer.dropped = count


def flush_logs() -> None:
    """Wait until everything is written, at most a second."""
    log_suppressed()
    if _writer is not None:
        _writer.flush(FLUSH_SECONDS)


_DROPPED = {"level": "warning", "worker": os.getpid(), "event": "log_lines_dropped"}


def _put(line: dict[str, Any]) -> None:
    data = _encoded(line)
    if _writer is None:
        to_stderr(data)
    else:
        _writer.put(data)


def _encoded(line: dict[str, Any]) -> bytes:
    now = time.time()
    moment = f"{_second(int(now))}.{int(1e3 * (now % 1)):03d}Z"
    return (json.dumps({"time": moment, **line}) + "\n").encode()


@lru_cache(1)
def _second(moment: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))

"""Logs as lines of JSON on stderr: what happened, never to whom, unless somebody asked for that."""

import json
import logging
import os
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from lightgc2n.serving.log_writer import LineWriter, to_stderr

FRAMES = 8  # of a traceback, the innermost
REPEAT_SECONDS, MOST_KINDS = 1.0, 1000  # between two lines of one problem; problems that are remembered
FLUSH_SECONDS = 1.0  # that the end of the process waits for a reader
LIBRARIES = ("uvicorn", "asyncio", "concurrent.futures")

_writer: LineWriter | None = None  # none: lines are written at once, by whoever logs


class Repeats:
    """Lets a line about the same problem pass once a second, and counts the others."""

    def __init__(self) -> None:
        self._kinds: OrderedDict[Any, tuple[float, int, dict[str, Any]]] = OrderedDict()  # last passed, held back, line

    def passing(self, line: dict[str, Any], now: float) -> dict[str, Any] | None:
        """The line, with the number of those that were held back before it; none if it is held back too."""
        kind = (line["event"], line.get("problem"), str(line.get("at")), line.get("message"), line.get("reason"))
        last, held, _ = self._kinds.pop(kind, (-REPEAT_SECONDS, 0, line))
        if now - last < REPEAT_SECONDS:
            self._kinds[kind] = (last, held + 1, line)
            return None
        self._kinds[kind] = (now, 0, line)
        while len(self._kinds) > MOST_KINDS:
            self._kinds.popitem(last=False)
        return {**line, "suppressed": held} if held else line

    def due(self, now: float) -> list[dict[str, Any]]:
        """The newest of the lines that were held back, of each problem that has been quiet for a second."""
        found = []
        for kind, (last, held, line) in list(self._kinds.items()):
            if held and now - last >= REPEAT_SECONDS:
                self._kinds[kind] = (now, 0, line)
                found.append({**line, "suppressed": held})
        return found


_repeats = Repeats()


def log(event: str, level: str = "info", **facts: Any) -> None:
    """Write one line; without the machinery of `logging`, which costs more than everything else about a request.

    A warning or an error that comes again within a second is counted instead.
    """
    line: dict[str, Any] | None = {"level": level, "worker": os.getpid(), "event": event, **facts}
    if level != "info":
        line = _repeats.passing(line or {}, time.monotonic())
    if line is not None:
        _put(line)


def log_suppressed() -> None:
    """Write how often problems came again since their last line; to be called now and then."""
    for line in _repeats.due(time.monotonic()):
        _put(line)


def log_problem(problem: BaseException, with_words: bool, **facts: Any) -> None:
    """Write where something unexpected came from.

    Args:
        with_words: whether its own words may be told; they may name somebody.
    """
    at = [f"{one.filename}:{one.lineno}" for one in traceback.extract_tb(problem.__traceback__)][-FRAMES:]
    words = {"words": str(problem)} if with_words else {}
    log("failed", "error", problem=type(problem).__name__, at=at, **words, **facts)


class ServerWords(logging.Handler):
    """What the web server has to say, in the same form."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            log_problem(record.exc_info[1], with_words=False)
        else:
            log("server", record.levelname.lower(), message=record.getMessage())


def set_up_logs() -> None:
    """Let libraries warn in our form, and say nothing else; from now on a thread does the writing."""
    global _writer
    words = ServerWords()
    for name in LIBRARIES:
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [words], False
        logger.setLevel(logging.WARNING)
    _writer = _writer or LineWriter(to_stderr, lambda lines: _written({**_DROPPED, "lines": lines}))


def on_dropped_line(count: Callable[[], None]) -> None:
    """Call `count` for each line that is dropped from now on."""
    if _writer is not None:
        _writer.dropped = count


def flush_logs() -> None:
    """Wait a moment until everything is written."""
    log_suppressed()
    if _writer is not None:
        _writer.flush(FLUSH_SECONDS)


_DROPPED = {"level": "warning", "worker": os.getpid(), "event": "log_lines_dropped"}


def _put(line: dict[str, Any]) -> None:
    data = _written(line)
    if _writer is None:
        to_stderr(data)
    else:
        _writer.put(data)


def _written(line: dict[str, Any]) -> bytes:
    now = time.time()
    moment = f"{_second(int(now))}.{int(1e3 * (now % 1)):03d}Z"
    return (json.dumps({"time": moment, **line}) + "\n").encode()


@lru_cache(1)
def _second(moment: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))

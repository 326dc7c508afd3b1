"""Logs as lines of JSON on stderr: what happened, never to whom, unless somebody asked for that."""

import json
import logging
import os
import sys
import time
import traceback
from functools import lru_cache
from typing import Any

FRAMES = 8  # of a traceback, the innermost


def log(event: str, level: str = "info", **facts: Any) -> None:
    """Writes one line; without the machinery of `logging`, which costs more than everything else about a request."""
    now = time.time()
    line = {"time": f"{_second(int(now))}.{int(1e3 * (now % 1)):03d}Z", "level": level, "worker": os.getpid()}
    sys.stderr.write(json.dumps({**line, "event": event, **facts}) + "\n")
    sys.stderr.flush()


def log_problem(problem: BaseException, with_words: bool, **facts: Any) -> None:
    """Writes where something unexpected came from.

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
    """Lets the web server warn in our form, and say nothing else."""
    logger = logging.getLogger("uvicorn")
    logger.handlers, logger.propagate = [ServerWords()], False
    logger.setLevel(logging.WARNING)


@lru_cache(1)
def _second(moment: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))

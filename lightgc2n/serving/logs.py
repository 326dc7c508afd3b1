"""Logs as lines of JSON on stderr: what happened, never to whom, unless somebody asked for that."""

import json
import logging
import os
import sys
import time
import traceback
from typing import Any

LOGGER = logging.getLogger("lightgc2n.serving")


class JsonLines(logging.Formatter):
    """One JSON object a line.

    Args:
        with_ids: whether the words of an unexpected error may be told; they may name somebody.
    """

    def __init__(self, with_ids: bool) -> None:
        super().__init__()
        self._with_ids = with_ids

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        facts = {"time": f"{moment}.{int(record.msecs):03d}Z", "level": record.levelname.lower(), "worker": os.getpid()}
        facts |= record.facts if hasattr(record, "facts") else {"event": "server", "message": record.getMessage()}
        if record.exc_info and record.exc_info[1] is not None:
            problem = record.exc_info[1]
            facts["problem"] = type(problem).__name__
            facts["at"] = [f"{one.filename}:{one.lineno}" for one in traceback.extract_tb(problem.__traceback__)][-8:]
            if self._with_ids:
                facts["words"] = str(problem)
        return json.dumps(facts)


def set_up_logs(with_ids: bool) -> None:
    """Sends everything, the web server's words too, to stderr in one format."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(with_ids))
    for name, level in (("lightgc2n.serving", logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
    # The names of threads and tasks are in no line: looking them up costs more than writing it.
    logging.logThreads = logging.logMultiprocessing = logging.logProcesses = logging.logAsyncioTasks = False  # type: ignore[attr-defined]


def log(event: str, level: str = "info", problem: BaseException | None = None, **facts: Any) -> None:
    number = logging.getLevelNamesMapping()[level.upper()]
    LOGGER.log(number, "", exc_info=problem, extra={"facts": {"event": event, **facts}})

"""A request id, which links a response, its error and its log line."""

import os
import re
from contextvars import ContextVar

HEADER = b"x-request-id"
WELL_FORMED = re.compile(rb"[A-Za-z0-9._-]{1,128}")
RANDOM_BYTES = 8

request_id: ContextVar[str] = ContextVar("request_id", default="")


def new_id() -> str:
    return os.urandom(RANDOM_BYTES).hex()


def id_for(headers: list[tuple[bytes, bytes]]) -> str:
    """The client's X-Request-Id if it is well-formed, else a new id."""
    for name, value in headers:
        if name == HEADER and WELL_FORMED.fullmatch(value):
            return value.decode("ascii")
    return new_id()

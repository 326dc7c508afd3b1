"""Error responses, `{"error": {"code", "message", "details", "request_id"}}`, and request ids.

A request id links a response, its error and its log line.
"""

import errno
import json
import os
import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from lightgc2n.errors import LightGC2NError
from lightgc2n.store.databases import StoreFullError, StoreUnavailableError

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


MOST_DETAILS = 20
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
RETRY = {"Retry-After": "1"}
CODES = {404: "not_found", 405: "method_not_allowed", 400: "bad_request", 415: "unsupported_media_type"}


class RefusedError(Exception):
    """An error response: its status, code and message."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        details: Sequence[Any] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.details = status, code, message, list(details)
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        fields = {"code": self.code, "message": self.message, "details": self.details, "request_id": request_id.get()}
        return {"error": fields}

    def response(self) -> Response:
        # Escaped to ASCII: a request may contain lone surrogates, which UTF-8 cannot encode.
        return Response(json.dumps(self.body), self.status, self.headers, "application/json")


def raw_response(refusal: RefusedError) -> tuple[bytes, str]:
    """The bytes of an error response that closes the connection, for use before a request was read, and its id."""
    token = request_id.set(new_id())
    body, own_id = json.dumps(refusal.body).encode(), request_id.get()
    request_id.reset(token)
    headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
    headers |= {name.lower(): value for name, value in refusal.headers.items()} | {"x-request-id": own_id}
    first = f"HTTP/1.1 {refusal.status} {HTTPStatus(refusal.status).phrase}"
    head = "\r\n".join([first, *(f"{name}: {value}" for name, value in headers.items())])
    return head.encode("ascii") + b"\r\n\r\n" + body, own_id


def busy(message: str) -> RefusedError:
    return RefusedError(429, "too_many_requests", message, headers=RETRY)


def unavailable(code: str, message: str) -> RefusedError:
    return RefusedError(503, code, message, headers=RETRY)


def out_of_resources(problem: BaseException) -> RefusedError | None:
    """The response when memory, file descriptors or threads have run out; None for other errors."""
    no_thread = isinstance(problem, RuntimeError) and "can't start new thread" in str(problem)
    if isinstance(problem, MemoryError) or no_thread or getattr(problem, "errno", None) in EXHAUSTED:
        return unavailable("out_of_resources", "memory or file descriptors are used up; retry in a moment.")
    return None


def unknown(what: str, name: str) -> RefusedError:
    return RefusedError(404, f"unknown_{what}", f"{what} {name[:100]!r} is not known here.")


def store_down() -> RefusedError:
    return unavailable("store_unavailable", "the store of events does not answer; retry in a moment.")


def from_library_error(problem: LightGC2NError) -> RefusedError:
    """The response for an error of the library; what its message calls an option is a field here."""
    if isinstance(problem, StoreFullError):
        message = "the disk of the store of events is full; nothing was stored."
        return RefusedError(problem.status, "store_full", message, headers={"Retry-After": "60"})
    if isinstance(problem, StoreUnavailableError):
        return store_down()
    code = "cannot_be_answered" if problem.status < 500 else "internal"
    return RefusedError(problem.status, code, problem.service)


def add_error_handlers(app: FastAPI) -> None:
    """Make every error response use this JSON."""

    async def refused(_request: Request, problem: Exception) -> Response:
        assert isinstance(problem, RefusedError)
        return problem.response()

    async def library_error(_request: Request, problem: Exception) -> Response:
        assert isinstance(problem, LightGC2NError)
        return from_library_error(problem).response()

    async def invalid(request: Request, problem: Exception) -> Response:
        assert isinstance(problem, RequestValidationError)
        # The input is not repeated: it may be long, and may contain personal data.
        details = [{"where": _path(one["loc"]), "message": one["msg"]} for one in problem.errors()[:MOST_DETAILS]]
        message = "the request is not of the expected form"
        if request.method == "POST" and "json" not in request.headers.get("content-type", ""):
            message += "; send the header Content-Type: application/json"
        return RefusedError(422, "invalid", message, details).response()

    async def http_error(_request: Request, problem: Exception) -> Response:
        assert isinstance(problem, HTTPException)
        code = CODES.get(problem.status_code, "refused")
        message = problem.detail or HTTPStatus(problem.status_code).phrase
        return RefusedError(problem.status_code, code, message, headers=problem.headers).response()

    app.add_exception_handler(RefusedError, refused)
    app.add_exception_handler(LightGC2NError, library_error)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http_error)


def _path(parts: Sequence[str | int]) -> str:
    return ".".join(str(part)[:100] for part in parts)

"""One shape for everything that is refused: `{"error": {"code", "message", "details", "request_id"}}`."""

import errno
import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from lightgc2n.errors import LightGC2NError
from lightgc2n.serving.request_ids import new_id, request_id

MOST_DETAILS = 20
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
RETRY = {"Retry-After": "1"}
WORDS = {404: "not_found", 405: "method_not_allowed", 400: "bad_request", 415: "unsupported_media_type"}


class RefusedError(Exception):
    """A request that is not answered, and why."""

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
        told = {"code": self.code, "message": self.message, "details": self.details, "request_id": request_id.get()}
        return {"error": told}

    def response(self) -> Response:
        # Escaped to ASCII, because what was asked may hold halves of letters that no UTF-8 can say.
        return Response(json.dumps(self.body), self.status, self.headers, "application/json")


def raw_response(refusal: RefusedError) -> tuple[bytes, str]:
    """The whole answer where no request was read, which ends the connection, and the id that it was given."""
    token = request_id.set(new_id())
    body, told = json.dumps(refusal.body).encode(), request_id.get()
    request_id.reset(token)
    headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
    headers |= {name.lower(): value for name, value in refusal.headers.items()} | {"x-request-id": told}
    first = f"HTTP/1.1 {refusal.status} {HTTPStatus(refusal.status).phrase}"
    head = "\r\n".join([first, *(f"{name}: {value}" for name, value in headers.items())])
    return head.encode("ascii") + b"\r\n\r\n" + body, told


def busy(message: str) -> RefusedError:
    return RefusedError(429, "too_many_requests", message, headers=RETRY)


def unavailable(code: str, message: str) -> RefusedError:
    return RefusedError(503, code, message, headers=RETRY)


def out_of_resources(problem: BaseException) -> RefusedError | None:
    """What to answer where the machine has no memory, file descriptor or thread left; none for other problems."""
    no_thread = isinstance(problem, RuntimeError) and "can't start new thread" in str(problem)
    if isinstance(problem, MemoryError) or no_thread or getattr(problem, "errno", None) in EXHAUSTED:
        return unavailable("out_of_resources", "memory or file descriptors are used up; ask again in a moment.")
    return None


def not_known(what: str, name: str) -> RefusedError:
    return RefusedError(404, f"unknown_{what}", f"{what} {name[:100]!r} is not known here.")


def from_problem(problem: LightGC2NError) -> RefusedError:
    """What the library refuses, in its own words; an option of the command is a field here."""
    code = "cannot_be_answered" if problem.status < 500 else "internal"
    return RefusedError(problem.status, code, problem.service)


def add_handlers(app: FastAPI) -> None:
    """Gives every error the one shape."""

    async def refused(_request: Request, problem: Exception) -> Response:
        assert isinstance(problem, RefusedError)
        return problem.response()

    async def mendable(_request: Request, problem: Exception) -> Response:
        assert isinstance(problem, LightGC2NError)
        return from_problem(problem).response()

    async def invalid(request: Request, problem: Exception) -> Response:
        assert isinstance(problem, RequestValidationError)
        # What was sent is not repeated: it may be long, and it may name somebody.
        found = [{"where": _place(one["loc"]), "message": one["msg"]} for one in problem.errors()[:MOST_DETAILS]]
        message = "the request is not of the expected form"
        if request.method == "POST" and "json" not in request.headers.get("content-type", ""):
            message += "; send the header Content-Type: application/json"
        return RefusedError(422, "invalid", message, found).response()

    async def by_http(_request: Request, problem: Exception) -> Response:
        assert isinstance(problem, HTTPException)
        code = WORDS.get(problem.status_code, "refused")
        message = problem.detail or HTTPStatus(problem.status_code).phrase
        return RefusedError(problem.status_code, code, message, headers=problem.headers).response()

    app.add_exception_handler(RefusedError, refused)
    app.add_exception_handler(LightGC2NError, mendable)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, by_http)


def _place(parts: Sequence[str | int]) -> str:
    return ".".join(str(part)[:100] for part in parts)

"""The ASGI application of the service."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware

from lightgc2n import __version__
from lightgc2n.serving.access_log import AccessLogMiddleware
from lightgc2n.serving.errors import add_error_handlers
from lightgc2n.serving.limits import LimitsMiddleware
from lightgc2n.serving.routes_accounts import add_account_routes
from lightgc2n.serving.routes_health import add_health_routes
from lightgc2n.serving.routes_lists import add_list_routes
from lightgc2n.serving.schemas import ProblemBody
from lightgc2n.serving.service import Service
from lightgc2n.serving.static_files import add_file_routes

ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": ProblemBody, "description": "The request cannot be answered; the message says why."},
    401: {"model": ProblemBody, "description": "An API key is needed."},
    404: {"model": ProblemBody, "description": "The account, item or file is unknown."},
    405: {"model": ProblemBody, "description": "The route has no such method."},
    408: {"model": ProblemBody, "description": "The request took too long to arrive."},
    413: {"model": ProblemBody, "description": "The body is too large."},
    421: {"model": ProblemBody, "description": "The Host header names another service."},
    422: {"model": ProblemBody, "description": "The request is not of the expected form, or exceeds a limit."},
    429: {"model": ProblemBody, "description": "Too many requests at once; retry in a moment."},
    500: {"model": ProblemBody, "description": "An internal error, which has been logged."},
    503: {"model": ProblemBody, "description": "No response in time, or the service is shutting down."},
}


def create_app(service: Service) -> FastAPI:
    """Create the application; it watches the bundle while it runs."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.create_task(service.watch())
        yield
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        service.close()

    app = FastAPI(
        title="lightgc2n",
        version=__version__,
        description="Recommendations for accounts that several people share.",
        lifespan=lifespan,
        docs_url=None,  # they load scripts from a CDN
        redoc_url=None,
        redirect_slashes=False,
        responses=ERRORS,
    )
    for add in (add_list_routes, add_account_routes, add_health_routes, add_file_routes):
        add(app, service)
    add_error_handlers(app)
    # The last one added is the outermost.
    app.add_middleware(LimitsMiddleware, service=service)
    if service.settings.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=service.settings.cors,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-API-Key", "X-Request-Id"],
            expose_headers=["X-Request-Id", "Retry-After"],
        )
    app.add_middleware(AccessLogMiddleware, service=service)
    if service.settings.key_digests:
        _document_keys(app)
    return app


def _document_keys(app: FastAPI) -> None:
    """Declare in the OpenAPI document that a key is needed."""
    plain = app.openapi

    def with_keys() -> dict[str, Any]:
        document = plain()
        schemes = {
            "key": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
        document.setdefault("components", {})["securitySchemes"] = schemes
        for path, operations in document["paths"].items():
            if path.startswith("/v1/") or path == "/metrics":
                for operation in operations.values():
                    operation["security"] = [{"key": []}, {"header": []}]
        return document

    app.openapi = with_keys  # type: ignore[method-assign]

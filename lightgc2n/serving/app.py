"""The whole service as one ASGI application."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware

from lightgc2n import __version__
from lightgc2n.serving.access_log import Observer
from lightgc2n.serving.errors import add_handlers
from lightgc2n.serving.limits import Guard
from lightgc2n.serving.routes_accounts import add_accounts
from lightgc2n.serving.routes_health import add_upkeep
from lightgc2n.serving.routes_lists import add_lists
from lightgc2n.serving.schemas import ProblemBody
from lightgc2n.serving.service import Service
from lightgc2n.serving.static_files import add_files

REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": ProblemBody, "description": "It cannot be answered: the message says why."},
    401: {"model": ProblemBody, "description": "A key is needed."},
    404: {"model": ProblemBody, "description": "An account, an item or a file is not known here."},
    405: {"model": ProblemBody, "description": "The route has no such method."},
    408: {"model": ProblemBody, "description": "The request took too long to arrive."},
    413: {"model": ProblemBody, "description": "The body is too large."},
    421: {"model": ProblemBody, "description": "The service is called by a name that it does not answer to."},
    422: {"model": ProblemBody, "description": "The request is not of the expected form, or asks for too much."},
    429: {"model": ProblemBody, "description": "Too many requests at once; ask again in a moment."},
    500: {"model": ProblemBody, "description": "A mistake of the service, which has logged it."},
    503: {"model": ProblemBody, "description": "No answer in time, or the service is about to end."},
}


def create_app(service: Service) -> FastAPI:
    """The application; it watches the bundle as long as it runs."""

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
        docs_url=None,  # they would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        responses=REFUSALS,
    )
    for add in (add_lists, add_accounts, add_upkeep, add_files):
        add(app, service)
    add_handlers(app)
    # From the inside out.
    app.add_middleware(Guard, service=service)
    if service.settings.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=service.settings.cors,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-API-Key", "X-Request-Id"],
            expose_headers=["X-Request-Id", "Retry-After"],
        )
    app.add_middleware(Observer, service=service)
    if service.settings.key_digests:
        _tell_of_keys(app)
    return app


def _tell_of_keys(app: FastAPI) -> None:
    """Lets the OpenAPI document say that a key is needed."""
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

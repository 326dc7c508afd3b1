"""The routes that send files: the page, onnxruntime-web, the report and the device part of the bundle.

Only listed names are sent; a request cannot name a path.
"""

import errno
import os
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, HTMLResponse, Response, StreamingResponse

from lightgc2n.errors import DataError
from lightgc2n.recommending.bundle_files import open_regular
from lightgc2n.serving.api_docs import docs_page
from lightgc2n.serving.errors import RefusedError
from lightgc2n.serving.service import Service

PAGE = Path(__file__).parent / "page"
RUNTIME = "ort"  # the folder of onnxruntime-web inside the page; scripts/fetch-web makes it
SWAGGER = "swagger/swagger-ui-bundle.js"  # likewise
CHUNK = 64 * 1024
OUT_OF_FILES = (errno.EMFILE, errno.ENFILE)
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".wasm": "application/wasm",
    ".onnx": "application/octet-stream",
    ".safetensors": "application/octet-stream",
    ".txt": "text/plain; charset=utf-8",
    ".tsv": "text/plain; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
    "": "text/plain; charset=utf-8",
}


def page_files(folder: Path = PAGE) -> dict[str, Path]:
    """The files of the page by request path; listed once, when the service starts."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix in TYPES)
    return {path.relative_to(folder).as_posix(): path for path in files}


def add_file_routes(app: FastAPI, service: Service) -> None:
    """Add the routes that send files; they are not part of the API."""
    known = page_files()
    report = service.settings.report

    @app.get("/", include_in_schema=False)
    async def page(request: Request) -> Response:
        answer = _file_response(request, known.get("index.html"))
        answer.headers["Cache-Control"] = "no-store"  # its policy depends on the bundle
        return answer

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(docs_page(app.openapi(), interactive=SWAGGER in known))

    @app.get("/page/{name:path}", include_in_schema=False)
    async def page_file(request: Request, name: str) -> Response:
        return _file_response(request, known.get(name))

    @app.get("/ort/{name:path}", include_in_schema=False)
    async def runtime_file(request: Request, name: str) -> Response:
        return _file_response(request, known.get(f"{RUNTIME}/{name}"))

    @app.get("/device/{name:path}", include_in_schema=False)
    async def device_file(request: Request, name: str) -> Response:
        served = service.served
        if name not in served.device_files:
            raise _missing()
        return _sent_from(request, served.folder, name)

    @app.get("/report", include_in_schema=False)
    async def report_file(request: Request) -> Response:
        return _file_response(request, report)


def has_runtime() -> bool:
    """Whether onnxruntime-web is installed, so that browsers can run the model."""
    return any(path.suffix == ".wasm" for path in (PAGE / RUNTIME).glob("*"))


def _file_response(request: Request, path: Path | None) -> Response:
    if path is None or not path.is_file():
        raise _missing()
    facts = path.stat()
    headers, kind = _headers(facts), TYPES[path.suffix]
    return _without_body(request, facts, kind) or FileResponse(
        path, headers=headers, media_type=kind, stat_result=facts
    )


def _sent_from(request: Request, folder: Path, name: str) -> Response:
    """Send a file of a bundle. A link that was put there since the bundle was loaded is not followed."""
    try:
        file = open_regular(folder, name)
    except DataError as problem:
        if isinstance(cause := problem.__context__, OSError) and cause.errno in OUT_OF_FILES:
            raise cause from None  # the response is 503 with Retry-After
        raise _missing() from None
    facts, kind = os.fstat(file.fileno()), TYPES[Path(name).suffix]
    if (answer := _without_body(request, facts, kind)) is not None:
        file.close()
        return answer
    headers = {**_headers(facts), "Content-Length": str(facts.st_size)}
    return StreamingResponse(_chunks(file, facts.st_size), headers=headers, media_type=kind)


def _chunks(file: BufferedReader, size: int) -> Iterator[bytes]:
    """Yield the first `size` bytes of an open file; one that is cut off meanwhile ends the connection."""
    with file:
        while size and (chunk := file.read(min(size, CHUNK))):
            size -= len(chunk)
            yield chunk


def _without_body(request: Request, facts: os.stat_result, kind: str) -> Response | None:
    """Return the answer to a client that has the file already, or that asks for its headers alone."""
    headers = _headers(facts)
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    if request.scope.get("head"):
        return Response(headers={**headers, "Content-Length": str(facts.st_size)}, media_type=kind)
    return None


def _headers(facts: os.stat_result) -> dict[str, str]:
    """Return headers that make clients revalidate a file on every request, so that it is sent only if it changed."""
    return {"ETag": f'"{facts.st_mtime_ns:x}-{facts.st_size:x}"', "Cache-Control": "no-cache"}


def _missing() -> RefusedError:
    return RefusedError(404, "not_found", "there is no such file.")

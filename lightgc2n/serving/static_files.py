"""Static files: the page, onnxruntime-web, the report and the device part of the bundle; only listed names are sent."""

from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, Response

from lightgc2n.serving.errors import RefusedError
from lightgc2n.serving.service import Service

PAGE = Path(__file__).parent / "page"
RUNTIME = "ort"  # the folder of onnxruntime-web inside the page; scripts/fetch-web makes it
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
        return _file_response(request, known.get("index.html"))

    @app.get("/page/{name:path}", include_in_schema=False)
    async def page_file(request: Request, name: str) -> Response:
        return _file_response(request, known.get(name))

    @app.get("/ort/{name:path}", include_in_schema=False)
    async def runtime_file(request: Request, name: str) -> Response:
        return _file_response(request, known.get(f"{RUNTIME}/{name}"))

    @app.get("/device/{name:path}", include_in_schema=False)
    async def device_file(request: Request, name: str) -> Response:
        served = service.served
        return _file_response(request, served.folder / name if name in served.device_files else None)

    @app.get("/report", include_in_schema=False)
    async def report_file(request: Request) -> Response:
        return _file_response(request, report)


def has_runtime() -> bool:
    """Whether onnxruntime-web is installed, so that browsers can run the model."""
    return any(path.suffix == ".wasm" for path in (PAGE / RUNTIME).glob("*"))


def _file_response(request: Request, path: Path | None) -> Response:
    if path is None or not path.is_file():
        raise RefusedError(404, "not_found", "there is no such file.")
    facts = path.stat()
    tag = f'"{facts.st_mtime_ns:x}-{facts.st_size:x}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}  # revalidated on each request, sent again only if changed
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    kind = TYPES[path.suffix]
    if request.scope.get("head"):
        return Response(headers={**headers, "Content-Length": str(facts.st_size)}, media_type=kind)
    return FileResponse(path, headers=headers, media_type=kind, stat_result=facts)

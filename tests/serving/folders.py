"""Folders behind a local address, with the headers that the service sends, and a browser to open them."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "lightgc2n" / "serving" / "page"
CHROMIUM = shutil.which("chromium")
NEEDS_CHROMIUM = pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium is not installed (Debian: apt-get install chromium)"
)
NEEDS_RUNTIME = pytest.mark.skipif(
    not (PAGE / "ort" / "VERSION.txt").is_file(), reason="onnxruntime-web is not there (scripts/fetch-web fetches it)"
)
POLICY = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'"


class Handler(SimpleHTTPRequestHandler):
    """Sends files of some folders, each under a name of its own."""

    extensions_map = {  # noqa: RUF012
        **SimpleHTTPRequestHandler.extensions_map, ".mjs": "text/javascript", ".wasm": "application/wasm"
    }  # fmt: skip

    def __init__(self, *arguments: Any, folders: dict[str, Path], **words: Any) -> None:
        self.folders = folders
        super().__init__(*arguments, **words)

    def translate_path(self, path: str) -> str:
        name, _, file = path.lstrip("/").partition("/")
        return str(self.folders[name] / file) if name in self.folders else "/nowhere"

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(folders: dict[str, Path]) -> Iterator[str]:
    """The address of a server that sends these folders; more may be added while it runs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, folders=folders))
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def opened_page(address: str) -> Iterator[Any]:
    """A page of Chromium at this address; whatever it complains about fails the test."""
    from playwright.sync_api import sync_playwright

    problems: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("pageerror", lambda problem: problems.append(str(problem)))
        page.on("console", lambda message: problems.extend(_complaints(message)))
        page.goto(address)
        yield page
        browser.close()
    assert not problems, problems


def _complaints(message: Any) -> list[str]:
    """What the console calls an error, except that a script alone has no icon."""
    return [message.text] if message.type == "error" and not message.location["url"].endswith("favicon.ico") else []

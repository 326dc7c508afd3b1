"""A service to ask: in a thread of the tests, or as the command in a process of its own."""

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightgc2n.serving.running import listen
from lightgc2n.serving.server import Server
from lightgc2n.serving.service import Service
from lightgc2n.serving.settings import Limits, ServiceSettings

QUICK = {"drain_seconds": 0.0}


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of an error, which has no other shape than the one."""
        assert self.headers["content-type"] == "application/json"
        assert set(self.json) == {"error"}
        assert set(self.json["error"]) == {"code", "message", "details"}
        return str(self.json["error"]["code"])


@dataclass
class Client:
    """Asks over one connection at a time; opens another when that was closed."""

    port: int
    headers: dict[str, str] = field(default_factory=dict)
    connection: http.client.HTTPConnection | None = None

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Reply:
        if self.connection is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        given = self.headers | ({"Content-Type": "application/json"} if sent is not None else {}) | (headers or {})
        try:
            self.connection.request(method, path, sent, given)
            answer = self.connection.getresponse()
            reply = Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        except BaseException:
            self.close()
            raise
        if reply.headers.get("connection") == "close":
            self.close()
        return reply

    def get(self, path: str, **headers: str) -> Reply:
        return self.ask("GET", path, None, headers)

    def post(self, path: str, body: Any, **headers: str) -> Reply:
        return self.ask("POST", path, body, headers)

    def recommend(self, **body: Any) -> Reply:
        return self.post("/v1/recommend", body)

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


@dataclass
class Running:
    """A service in a thread."""

    service: Service
    port: int

    def client(self, **headers: str) -> Client:
        return Client(self.port, headers)


@contextmanager
def running(bundle: Path, limits: dict[str, Any] | None = None, **settings: Any) -> Iterator[Running]:
    """A service in a thread, on a port that was free; ended at the end of the block."""
    chosen = ServiceSettings(bundle=bundle, port=0, limits=Limits(**QUICK | (limits or {})), **settings)
    listening = listen(chosen)
    service = Service(chosen)
    server = Server(service)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        wait_for(lambda: server.started or not thread.is_alive())
        yield Running(service, listening.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


@contextmanager
def command(
    *words: object, environment: dict[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], Client]]:
    """`lightgc2n serve` in a process of its own, and a client; killed at the end of the block if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "lightgc2n", "serve", *map(str, words), "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | (environment or {}),
    )
    try:
        yield process, Client(_told_port(process))
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def _told_port(process: "subprocess.Popen[str]") -> int:
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if line.startswith("}"):
            return int(json.loads(text)["address"].rpartition(":")[2])
    raise AssertionError(process.communicate()[1])


def wait_for(holds: Any, seconds: float = 30) -> None:
    """Waits until something holds; a test fails by its own words if it never does."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)

"""A service to ask: in a thread of the tests, or as the command in a process of its own."""

import http.client
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from lightgc2n.serving.server import Server
from lightgc2n.serving.service import Service
from lightgc2n.serving.settings import Limits, ServiceSettings
from lightgc2n.serving.workers import reserve
from tests.export.town import bundle_of
from tests.recommending.test_bundle_files import sign

QUICK = {"drain_seconds": 0.0}


def seeing_two(to: Path, model: str = "lightgc2n") -> Path:
    """A bundle of the town that finds two or more people behind an account: its own finder is not that bold."""
    shutil.copytree(bundle_of(model), to)
    facts = to / "people" / "finder.json"
    facts.write_text(json.dumps(json.loads(facts.read_text()) | {"caution": -9.0}))
    sign(to)
    return to


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
        assert set(self.json["error"]) == {"code", "message", "details", "request_id"}
        assert self.json["error"]["request_id"] == self.headers["x-request-id"]
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
    clients: list[Client] = field(default_factory=list)

    def client(self, **headers: str) -> Client:
        """Another client; closed with the service."""
        self.clients.append(Client(self.port, headers))
        return self.clients[-1]


@contextmanager
def running(bundle: Path, limits: dict[str, Any] | None = None, **settings: Any) -> Iterator[Running]:
    """A service in a thread, on a port that was free; ended at the end of the block."""
    chosen = ServiceSettings(bundle=bundle, port=0, limits=Limits(**QUICK | (limits or {})), **settings)
    listening = reserve(chosen)
    service = Service(chosen)
    server = Server(service)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        wait_for(lambda: server.started or not thread.is_alive())
        yield (actual := Running(service, listening.getsockname()[1]))
        for client in actual.clients:
            client.close()
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


class Command(NamedTuple):
    """A service in a process of its own."""

    process: "subprocess.Popen[str]"
    client: Client
    logs: Path

    def events(self) -> list[dict[str, Any]]:
        """What has been logged, in whole lines."""
        return [json.loads(line) for line in self.logs.read_text().split("\n")[:-1]]


@contextmanager
def command(
    *options: object,
    python: object = sys.executable,
    words: list[str] | None = None,
    environment: dict[str, str] | None = None,
    most: dict[int, int] | None = None,
    stderr: int | None = None,
) -> Iterator["Command"]:
    """`lightgc2n serve` in a process of its own, and a client; killed at the end of the block if it still runs.

    Args:
        words: the whole command, where it is another one.
        most: what the process may have of each resource (`resource.RLIMIT_NOFILE` ...).
        stderr: a file descriptor in place of the file of logs.
    """

    def bound() -> None:
        for what, number in (most or {}).items():
            resource.setrlimit(what, (number, resource.getrlimit(what)[1]))

    serve = [str(python), "-m", "lightgc2n", "serve", *map(str, options), "--port", "0", "--json"]
    client = Client(0)
    with tempfile.NamedTemporaryFile("a") as logs:  # not a pipe: one that nobody reads stops who writes
        process = subprocess.Popen(
            words or serve,
            stdout=subprocess.PIPE,
            stderr=logs if stderr is None else stderr,
            text=True,
            env=environment,
            preexec_fn=bound if most else None,
        )
        try:
            client.port = _told_port(process, Path(logs.name))
            yield Command(process, client, Path(logs.name))
        finally:
            client.close()
            if process.poll() is None:
                process.kill()
            process.communicate()


def _told_port(process: "subprocess.Popen[str]", logs: Path) -> int:
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if line.startswith("}"):
            return int(json.loads(text)["address"].rpartition(":")[2])
    raise AssertionError(logs.read_text())


def wait_for(holds: Any, seconds: float = 30) -> None:
    """Waits until something holds; a test fails by its own words if it never does."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)

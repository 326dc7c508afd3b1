"""Connections that ask nothing are closed for those that do, and a lack of descriptors passes."""

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from lightgc2n.serving import connections
from lightgc2n.serving.connections import RESERVED_FILES, client_of, most_connections
from lightgc2n.serving.settings import Limits
from tests.export.town import bundle_of
from tests.serving.running import Client, command, running, wait_for
from tests.serving.test_limits import BODY, HEAD, stalled

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextmanager
def idle(port: int, number: int, source: str = "127.0.0.1", message: bytes = b"") -> Iterator[list[socket.socket]]:
    """Connections that stay open and bring nothing, or this."""
    with ExitStack() as stack:
        made = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in made:
            one.bind((source, 0))
            one.settimeout(20)
            one.connect(("127.0.0.1", port))
            one.sendall(message)
        yield made


def is_closed(one: socket.socket) -> bool:
    one.setblocking(False)
    try:
        return one.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def closed(client: Client, reason: str) -> float:
    lines = client.get("/metrics").body.decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if f'connections_closed_total{{reason="{reason}"}}' in line)


def test_many_idle_connections_and_few_descriptors() -> None:
    """Anybody can hold connections open; whoever asks is answered all the same, and the log stays short."""
    most = {resource.RLIMIT_NOFILE: 160}
    with command(bundle_of("lightgc2n"), most=most) as served, idle(served.client.port, 300) as made:
        for _ in range(5):
            served.client.close()
            assert served.client.get("/healthz").status == 200
        assert len(served.events()) < 50
        assert not [one for one in served.events() if one["event"] == "failed"]
        wait_for(lambda: sum(map(is_closed, made)) > 300 - 160)
        assert closed(served.client, "spared") > 300 - 160


def test_the_longest_idle_connection_is_closed_first() -> None:
    with running(bundle_of("lightgc2n"), {"max_connections": 4}) as service:
        client = service.client()
        assert client.get("/healthz").status == 200
        with idle(service.port, 3) as made, idle(service.port, 2) as more:
            wait_for(lambda: [is_closed(one) for one in [*made, *more]] == [True, True, False, False, False])
            kept = client.connection
            assert client.get("/healthz").status == 200
            assert client.connection is kept, "who has asked stays longer than who has not"


def test_a_slow_request_makes_room_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(bundle_of("lightgc2n"), {"max_connections": 4}) as service:
        client = service.client()
        with idle(service.port, 4, message=HEAD % 50 + BODY) as made:
            assert client.get("/healthz").status == 200
            assert sum(map(is_closed, made)) == 1


def test_a_connection_that_waits_for_an_answer_is_not_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(bundle_of("lightgc2n"), {"max_connections": 3}) as service:
        with stalled(service, monkeypatch) as go, idle(service.port, 3, message=HEAD % len(BODY) + BODY) as made:
            wait_for(lambda: service.service.working == 3)
            with idle(service.port, 1, message=HEALTH) as (late,):
                answer = late.recv(1000)
            assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
            assert b"retry-after: 1\r\n" in answer
            go.set()
            assert all(one.recv(1000).startswith(b"HTTP/1.1 200 OK") for one in made)
        assert service.client().get("/healthz").status == 200


def test_one_client_makes_room_for_itself() -> None:
    limits = {"max_connections": 9, "max_connections_per_client": 4}
    with running(bundle_of("lightgc2n"), limits) as service, ExitStack() as stack:
        others, own = (stack.enter_context(idle(service.port, number, f"127.0.0.{number}")) for number in (4, 6))
        wait_for(lambda: [is_closed(one) for one in own] == [True, True, False, False, False, False])
        assert not any(map(is_closed, others))
        assert service.client().get("/healthz").status == 200


def test_who_has_most_gives_first() -> None:
    with running(bundle_of("lightgc2n"), {"max_connections": 9}) as service, ExitStack() as stack:
        others, own, third = (
            stack.enter_context(idle(service.port, number, f"127.0.0.{number}")) for number in (3, 4, 2)
        )
        assert service.client().get("/healthz").status == 200
        assert [is_closed(one) for one in [*others, *own, *third]].index(True) == 3, "who has most gives first"


def settled_descriptors(process: int) -> set[int]:
    """The open descriptors of a process once they no longer change: a file that was just sent may be open still."""

    def now() -> set[int]:
        return {int(one.name) for one in Path(f"/proc/{process}/fd").iterdir()}

    seen = [now()]
    while len(seen) < 4 or len({frozenset(one) for one in seen[-4:]}) > 1:
        time.sleep(0.1)
        seen.append(now())
    return seen[-1]


def test_descriptors_that_run_out_while_it_runs() -> None:
    """Who is connected is served on, files are refused in our shape, and it recovers by itself."""
    with command(bundle_of("lightgc2n")) as served:
        client, process = served.client, served.process
        assert client.get("/page/style.css").status == 200
        assert client.get("/healthz").status == 200
        used = {int(one.name) for one in Path(f"/proc/{process.pid}/fd").iterdir()}
        free = min(set(range(len(used) + 1)) - used)
        before = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (free, before[1]))
        with idle(client.port, 1, message=HEALTH) as (newcomer,):
            wait_for(lambda: [one for one in served.events() if one["event"] == "cannot_accept"])
            for _ in range(3):
                assert client.recommend(account="h000001").status == 200
                reply = client.get("/page/style.css")
                assert (reply.status, reply.code, reply.headers["retry-after"]) == (503, "out_of_resources", "1")
                assert client.get("/device/items.txt").status == 503
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, before)
            assert newcomer.recv(100).startswith(b"HTTP/1.1 200 OK")
        assert client.get("/page/style.css").status == 200
        assert len([one for one in served.events() if one["event"] == "cannot_accept"]) < 20
        assert process.poll() is None


def test_a_reader_who_takes_nothing_does_not_stay() -> None:
    asks = b'{"requests": [' + b",".join([b'{"history": [], "k": 100}'] * 1000) + b"]}"
    with running(bundle_of("lightgc2n"), {"send_seconds": 0.2}) as service:
        with socket.socket() as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.connect(("127.0.0.1", service.port))
            raw.sendall(HEAD % len(asks) + asks)
            wait_for(lambda: service.service.memory.held > 0)
            wait_for(lambda: service.service.memory.held == 0)
        assert service.client().recommend(history=[]).status == 200


def test_whose_an_address_is() -> None:
    assert client_of("192.0.2.7") == client_of("::ffff:192.0.2.7") == "192.0.2.7"
    assert client_of("2001:db8::1") == client_of("2001:db8::2:3:4:5") != client_of("2001:db8:0:1::1")
    assert client_of("fe80::1%eth0") == client_of("fe80::2%eth0")


def test_as_many_as_there_are_descriptors_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def able(number: int) -> Any:
        return lambda _what: (number, number)

    for number, most in ((10_000, 512), (512 + RESERVED_FILES, 512), (300, 300 - RESERVED_FILES), (3, 1)):
        monkeypatch.setattr(connections.resource, "getrlimit", able(number))
        assert most_connections(Limits()) == most

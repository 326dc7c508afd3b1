"""Too much, too long, too slow: refused in time, while everybody else is answered."""

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from lightgc2n.serving import routes
from lightgc2n.serving.errors import RefusedError
from tests.export.town import bundle_of
from tests.serving.running import Client, Running, running, wait_for

HEAD = b"POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
BODY = b'{"history": [], "k": 3}'


@contextmanager
def stalled(service: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A service whose lists are made only when the event is set; it is in the end."""
    recommender, go = service.service.served.recommender, threading.Event()
    answer = recommender.answer

    def waiting(questions: Any) -> Any:
        go.wait(30)
        return answer(questions)

    monkeypatch.setattr(recommender, "answer", waiting)
    try:
        yield go
    finally:
        go.set()


def statuses(clients: list[Client], **body: Any) -> list[int]:
    with ThreadPoolExecutor(len(clients)) as pool:
        return sorted(reply.status for reply in pool.map(lambda client: client.recommend(**body), clients))


def test_more_requests_than_a_worker_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(bundle_of("lightgc2n"), {"max_requests": 4}) as service:
        clients, prober = [service.client() for _ in range(9)], service.client()
        with stalled(service, monkeypatch) as go, ThreadPoolExecutor(9) as pool:
            asked = [pool.submit(client.recommend, history=[]) for client in clients]
            wait_for(lambda: sum(one.done() for one in asked) == 5)
            assert prober.get("/healthz").status == prober.get("/readyz").status == 200
            reply = prober.get("/v1/model")
            assert (reply.code, reply.headers["retry-after"]) == ("too_many_requests", "1")
            go.set()
            assert sorted(one.result().status for one in asked) == [200] * 4 + [429] * 5
        assert statuses(clients[:4], history=[]) == [200] * 4


def test_a_full_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(bundle_of("lightgc2n"), {"max_waiting": 20}) as service:
        clients = [service.client() for _ in range(6)]
        with stalled(service, monkeypatch) as go, ThreadPoolExecutor(6) as pool:
            asks = [{"history": []}] * 8
            asked = [pool.submit(client.recommend, requests=asks) for client in clients]
            wait_for(lambda: sum(one.done() for one in asked) == 4)
            go.set()
            replies = [one.result() for one in asked]
        assert sorted(reply.status for reply in replies) == [200] * 2 + [429] * 4
        assert all(len(reply.json["answers"]) == 8 for reply in replies if reply.status == 200)


def test_an_answer_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(bundle_of("lightgc2n"), {"seconds": 0.3}) as service:
        clients = [service.client() for _ in range(3)]
        with stalled(service, monkeypatch):
            reply = clients[0].recommend(history=[])
            assert (reply.status, reply.code) == (503, "too_slow")
            assert statuses(clients, history=[]) == [503] * 3
        wait_for(lambda: service.service.batcher.waiting == 0)
        assert statuses(clients, history=[]) == [200] * 3


def test_a_slow_client_gets_its_answer_and_delays_no_other() -> None:
    with running(bundle_of("lightgc2n")) as service, socket.create_connection(("127.0.0.1", service.port)) as slow:
        message, client = HEAD % len(BODY) + BODY, service.client()
        for place in range(0, len(message), 20):
            slow.sendall(message[place : place + 20])
            assert client.recommend(history=[], k=1).status == 200
        assert slow.recv(20).startswith(b"HTTP/1.1 200 OK")


def test_a_client_that_never_finishes() -> None:
    with running(bundle_of("lightgc2n"), {"seconds": 0.3, "head_seconds": 0.3}) as service:

        def answer_to(message: bytes) -> bytes:
            with socket.create_connection(("127.0.0.1", service.port)) as raw:
                raw.settimeout(20)
                raw.sendall(message)
                return b"".join(iter(lambda: raw.recv(1000), b""))

        half = answer_to(HEAD % 50 + BODY)
        assert half.startswith(b"HTTP/1.1 408 ")
        assert b'"code": "too_slow"' in half
        assert answer_to(b"") == answer_to(b"POST /v1/rec") == b"", "closed without a word: nothing was asked"
        whole = HEAD % len(BODY) + BODY
        assert answer_to(whole + whole[:30]).count(b"HTTP/1.1 200 OK") == 1, "half a second request ends it too"


def test_a_cut_connection(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with running(bundle_of("lightgc2n")) as service:
        with stalled(service, monkeypatch) as go:
            for message in (HEAD % 50 + BODY, HEAD % len(BODY) + BODY):
                with socket.create_connection(("127.0.0.1", service.port)) as raw:
                    raw.sendall(message)
                    time.sleep(0.1)
            go.set()
        client, noted = service.client(), ""

        def both_noted() -> bool:
            nonlocal noted
            noted += capsys.readouterr().err
            return noted.count('"event": "request"') == 2

        wait_for(both_noted)
        assert client.recommend(history=[]).status == 200
        assert '"status": 499' in noted
        assert '"event": "failed"' not in noted


def test_a_client_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long answer waits for its reader; others do not."""
    with running(bundle_of("lightgc2n")) as service:
        asks = b'{"requests": [' + b",".join([b'{"history": [], "k": 100}'] * 1000) + b"]}"
        with socket.socket() as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.connect(("127.0.0.1", service.port))
            raw.sendall(HEAD % len(asks) + asks)
            client = service.client()
            wait_for(lambda: service.service.batcher.waiting == 0)
            assert client.recommend(history=[]).status == 200
            raw.settimeout(20)
            head, _, body = raw.recv(2000).partition(b"\r\n\r\n")
            (length,) = [int(line.split()[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length")]
            while len(body) < length:
                body += raw.recv(2**16)
        assert body.endswith(b"}]}")


def test_an_internal_error_has_the_same_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(bundle_of("lightgc2n")) as service:
        monkeypatch.setattr(service.service.served.recommender, "answer", lambda _questions: {}["h000001"])
        reply = service.client().recommend(account="h000001")
        assert (reply.status, reply.code) == (500, "internal")
        assert b"h000001" not in reply.body
    noted = capsys.readouterr().err
    assert '"event": "failed"' in noted
    assert '"problem": "KeyError"' in noted
    assert "h000001" not in noted


class SlowPeople:
    """A finder of people that waits until it may go on, and counts how often it was asked."""

    def __init__(self, service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked, self.go = 0, threading.Event()
        recommender = service.service.served.recommender
        people = recommender.people

        def waiting(*arguments: Any, **words: Any) -> Any:
            self.asked += 1
            assert self.go.wait(30)
            return people(*arguments, **words)

        monkeypatch.setattr(recommender, "people", waiting)


def people_request(account: str) -> bytes:
    return f"GET /v1/accounts/{account}/people HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def test_finding_people_is_shared_and_holds_up_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks too often is refused; lists and searches go on; another client is answered."""
    with running(bundle_of("lightgc2n"), {"max_people_per_client": 3}) as service:
        slow, client, pool = SlowPeople(service, monkeypatch), service.client(), service.service.people
        with ExitStack() as stack:
            greedy = [stack.enter_context(socket.create_connection(("127.0.0.1", service.port))) for _ in range(5)]
            for one in greedy:
                one.settimeout(30)
                one.sendall(people_request("h000001"))
            wait_for(lambda: (pool.running, pool.waiting) == (1, 2))
            assert client.recommend(account="h000001").status == 200
            assert client.get("/v1/accounts?search=h").status == 200
            other = stack.enter_context(socket.socket())
            other.bind(("127.0.0.2", 0))
            other.connect(("127.0.0.1", service.port))
            other.sendall(people_request("h000002"))
            wait_for(lambda: pool.waiting == 3)
            slow.go.set()
            other.settimeout(30)
            assert other.recv(20).startswith(b"HTTP/1.1 200")
            assert sorted(one.recv(12)[-3:] for one in greedy) == [b"200"] * 3 + [b"429"] * 2


def test_work_of_disconnected_clients_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three who ask two go away: one before its turn, one while it is worked on."""
    with running(bundle_of("lightgc2n")) as service:
        slow, client = SlowPeople(service, monkeypatch), service.client()

        def worked_on() -> float:
            lines = client.get("/metrics").body.decode().splitlines()
            return next(float(line.split()[-1]) for line in lines if line.startswith("lightgc2n_requests_in_p")) - 1

        with socket.create_connection(("127.0.0.1", service.port)) as first:
            first.sendall(people_request("h000001"))
            wait_for(lambda: slow.asked == 1)
            with socket.create_connection(("127.0.0.1", service.port)) as second:
                second.sendall(people_request("h000002"))
                wait_for(lambda: worked_on() == 2)
            wait_for(lambda: worked_on() == 1)
        slow.go.set()
        assert service.client().get("/v1/accounts/h000003/people").status == 200
        assert slow.asked == 2


def test_work_stops_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request for a thousand persons' lists is given up in the middle."""
    prepared, begun, go = [], threading.Event(), threading.Event()

    def slowly(_served: Any, ask: Any, _current: Any) -> Any:
        prepared.append(ask)
        begun.set()
        assert go.wait(30)
        return RefusedError(404, "unknown_account", "nobody")

    monkeypatch.setattr(routes, "_prepared", slowly)
    with running(bundle_of("lightgc2n"), {"seconds": 0.3}) as service:
        reply = service.client().recommend(requests=[{"account": "h000001", "person": "A"}] * 1000)
        assert (reply.status, reply.code, reply.headers["retry-after"]) == (503, "too_slow", "1")
        go.set()
        assert service.client().recommend(account="h000001", person="A").status == 404
    assert len(prepared) == 2


def test_memory_for_large_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies and answers that are held at once have a bound; small requests pass all the same."""
    many = {"requests": [{"history": ["v00001"] * 20, "k": 5}] * 100}
    with running(bundle_of("lightgc2n"), {"max_memory": 500_000}) as service:
        clients = [service.client() for _ in range(4)]
        with stalled(service, monkeypatch) as go, ThreadPoolExecutor(4) as pool:
            first = pool.submit(clients[0].recommend, **many)
            wait_for(lambda: service.service.batcher.waiting == 100)
            reply = clients[1].recommend(**many)
            assert (reply.status, reply.code, reply.headers["retry-after"]) == (429, "too_many_requests", "1")
            small = pool.submit(clients[2].recommend, history=["v00001"], k=5)
            wait_for(lambda: service.service.batcher.waiting == 101)
            go.set()
            assert (first.result().status, small.result().status) == (200, 200)
        assert clients[3].recommend(**many).status == 200
        wait_for(lambda: service.service.memory.held == 0)  # given back after the answer is out

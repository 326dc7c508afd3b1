"""Kills, full disks and broken connections: no acknowledged event is lost, none counts twice, none is half there.

The short form kills a few times; the long form (marked slow) at 50 random moments.
"""

import http.client
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lightgc2n.store.event_store import create_store, open_store
from tests.export.town import bundle_of
from tests.serving.events import filled, send
from tests.serving.running import Client, Command, command, running, wait_for
from tests.store.postgres import PostgresServer

MODEL = "markov-recency"
WRITERS, BATCH = 3, 5
SHORT, LONG = 3, 50  # kills


class Sender(threading.Thread):
    """Sends batches with ids of their own, each until it is acknowledged; keeps which were."""

    def __init__(self, port: int, name: str) -> None:
        super().__init__()
        self._port, self.name, self.stop = port, name, threading.Event()
        self.acknowledged: set[str] = set()
        self.sent: set[str] = set()
        self.statuses: set[int] = set()

    def run(self) -> None:
        client, number = Client(self._port), 0
        while not self.stop.is_set():
            ids = [f"{self.name}-{number}-{place}" for place in range(BATCH)]
            self.sent |= set(ids)
            if self._send(client, ids):
                self.acknowledged |= set(ids)
                number += 1
        client.close()

    def _send(self, client: Client, ids: list[str]) -> bool:
        events = [{"account": f"account-{self.name}", "item": f"item-{one[-1]}", "id": one} for one in ids]
        try:
            reply = send(client, *events)
        except (OSError, http.client.HTTPException):  # the worker was killed, perhaps in the middle of its answer
            time.sleep(0.05)
            return False
        self.statuses.add(reply.status)
        if reply.status != 201:
            time.sleep(0.05)
        return reply.status == 201


@contextmanager
def load(port: int) -> Iterator[list[Sender]]:
    senders = [Sender(port, f"s{place}") for place in range(WRITERS)]
    for one in senders:
        one.start()
    try:
        yield senders
    finally:
        for one in senders:
            one.stop.set()
        for one in senders:
            one.join(60)
            assert not one.is_alive(), "a request hangs"


def check(url: str, senders: list[Sender]) -> None:
    """What was acknowledged is there once, and nothing that was never sent."""
    store = open_store(url)
    for sender in senders:
        ids = [event.id for event in store.events(f"account-{sender.name}", limit=1_000_000)]
        assert len(ids) == len(set(ids)), "an event counts twice"
        missing = sender.acknowledged - set(ids)
        assert not missing, f"lost: {sorted(missing)[:3]}"
        assert set(ids) <= sender.sent  # type: ignore[operator]
        whole = {str(one).rpartition("-")[0] for one in ids}
        assert len(ids) == BATCH * len(whole), "a part of a batch is there"
        assert sender.acknowledged, "nothing was acknowledged"
        assert sender.statuses <= {201, 503}, sender.statuses
    store.close()


def workers_of(service: Command) -> list[int]:
    path = Path(f"/proc/{service.process.pid}/task/{service.process.pid}/children")
    children = [int(pid) for pid in path.read_text().split()]
    return [pid for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def grows(senders: list[Sender]) -> Callable[[], bool]:
    """Whether each sender has had another batch acknowledged since now."""
    before = [len(one.acknowledged) for one in senders]
    return lambda: all(len(one.acknowledged) > count for one, count in zip(senders, before, strict=True))


KILLS = pytest.mark.parametrize(
    "kills",
    [pytest.param(SHORT, marks=pytest.mark.services), pytest.param(LONG, marks=pytest.mark.slow)],
)


@KILLS
@pytest.mark.parametrize("every", [False, True], ids=["one worker", "all workers"])
def test_killed_workers_lose_nothing(url: str, kills: int, every: bool) -> None:
    filled(url)
    dice = random.Random(kills)
    with command(bundle_of(MODEL), "--store", url, "--workers", 2) as service:
        wait_for(lambda: len(workers_of(service)) == 2)
        with load(service.client.port) as senders:
            for _ in range(kills):
                wait_for(grows(senders), 90)
                time.sleep(dice.random() * 0.3)
                victims = workers_of(service)
                for pid in victims if every else dice.sample(victims, min(1, len(victims))):
                    os.kill(pid, signal.SIGKILL)
            wait_for(grows(senders), 90)
    check(url, senders)


@KILLS
def test_a_killed_database_loses_nothing(postgres: PostgresServer, kills: int) -> None:
    """While it is down, reads come from the bundle and say so, and writes get 503; nothing hangs."""
    url = filled(postgres.new_database(f"killed_{kills}"))
    dice = random.Random(kills)
    with running(bundle_of(MODEL), store=url) as service:
        client, account = service.client(), service.service.served.recommender.dataset.accounts[0]
        before = client.recommend(account=account, k=5).json
        assert before["notes"] == []
        with load(service.port) as senders:
            for _ in range(kills):
                wait_for(grows(senders), 60)
                time.sleep(dice.random() * 0.3)
                postgres.kill()
                try:
                    wait_for(lambda: not service.service.store.available)  # type: ignore[union-attr]
                    started = time.monotonic()
                    down = client.recommend(account=account, k=5).json
                    assert time.monotonic() - started < 5, "a read waits for a database that is down"
                    assert down["items"] == before["items"]
                    assert any("does not answer" in note for note in down["notes"])
                    reply = send(client, {"account": account, "item": "v1"})
                    assert (reply.status, reply.code) == (503, "store_unavailable")
                    assert reply.headers["retry-after"]
                finally:
                    postgres.start()
                wait_for(lambda: service.service.store.available, 60)  # type: ignore[union-attr]
            wait_for(grows(senders), 60)
        assert client.recommend(account=account, k=5).json["notes"] == []
    check(url, senders)


@pytest.mark.services
def test_a_database_that_hangs_does_not_hang_the_service(postgres: PostgresServer) -> None:
    url = filled(postgres.new_database("hanging"))
    with running(bundle_of(MODEL), store=url) as service:
        client, account = service.client(), service.service.served.recommender.dataset.accounts[0]
        assert client.recommend(account=account).json["notes"] == []
        with postgres.stopped():
            started = time.monotonic()
            reply = client.recommend(account=account)
            assert (reply.status, len(reply.json["notes"])) == (200, 1)
            assert client.recommend(account=account).status == 200
            assert send(client, {"account": account, "item": "v1"}).status == 503
            assert time.monotonic() - started < 20
        wait_for(lambda: client.recommend(account=account).json["notes"] == [], 60)
        assert send(client, {"account": account, "item": "v1"}).status == 201


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", folder], check=False, capture_output=True
    )
    if not mounted or mounted.returncode:
        pytest.skip("mounting a small file system needs more rights")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_loses_nothing_that_was_acknowledged(small_disk: Path) -> None:
    url = str(small_disk / "events.db")
    create_store(url).close()
    with running(bundle_of(MODEL), store=url) as service:
        client, stored, statuses = service.client(), 0, set()
        for number in range(400):
            reply = send(client, *({"account": "a", "item": "i" * 400, "id": f"{number}-{at}"} for at in range(100)))
            stored += 100 if reply.status == 201 else 0
            statuses.add(reply.status)
            if reply.status != 201:
                assert reply.code in ("store_full", "store_unavailable")
                assert "retry-after" in reply.headers
                break
        assert statuses - {201} <= {503, 507}
        assert len(statuses) == 2, "the disk did not fill up"
        assert client.recommend(account="a").status == 200
        assert count(client, "a") == stored
        subprocess.run(["mount", "-o", "remount,size=30m", small_disk], check=True)
        wait_for(lambda: send(client, {"account": "a", "item": "i", "id": "after"}).status == 201)
        assert count(client, "a") == stored + 1


def test_a_log_of_sqlite_that_somebody_removes_loses_nothing(tmp_path: Path) -> None:
    url = str(tmp_path / "events.db")
    create_store(url).close()
    with running(bundle_of(MODEL), store=url) as service:
        client = service.client()
        assert send(client, {"account": "a", "item": "i", "id": "before"}).status == 201
        (tmp_path / "events.db-wal").unlink()
        wait_for((tmp_path / "events.db-wal").exists)  # the service has saved its events and opened the store again
        wait_for(lambda: send(client, {"account": "a", "item": "i", "id": "after"}).status == 201)
        after = open_store(url)  # as after a kill of the service
        assert [event.id for event in after.events("a", 10)] == ["after", "before"]
        after.close()


def count(client: Client, account: str) -> int:
    return int(client.get(f"/v1/accounts?search={account}").json["accounts"][0]["events"])


def test_a_connection_that_breaks_in_the_body_stores_nothing(tmp_path: Path) -> None:
    url = str(tmp_path / "events.db")
    create_store(url).close()
    body = b'{"events": [{"account": "a", "item": "i"}, {"account": "a", "item": "j"}]}'
    with running(bundle_of(MODEL), store=url) as service:
        for cut in (len(body) // 2, len(body) - 1):
            head = b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            with socket.create_connection(("127.0.0.1", service.port)) as connection:
                connection.sendall(head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body[:cut])
        client = service.client()
        assert send(client, {"account": "b", "item": "i"}).status == 201
        assert client.get("/v1/accounts/a/events").status == 404

"""Keys with scopes, rotated while the service runs, and the audit log."""

import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lightgc2n.errors import OutputError, SettingError
from lightgc2n.serving.audit import refuse_foreign_file
from lightgc2n.serving.keys import read_keys
from lightgc2n.store.event_store import open_store
from tests.export.town import bundle_of
from tests.serving.events import filled_file, send
from tests.serving.running import Running, running, wait_for

READER, WRITER, ERASER, OLD = (f"{name}-key-of-enough-letters" for name in ("reader", "writer", "eraser", "old"))
FILE = f"# keys of the shop\nread {READER}\nread,write {WRITER}\nerase {ERASER}\n\n{OLD}\n"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text(FILE)
    path.chmod(0o600)
    return path


@pytest.fixture
def service(keys: Path, tmp_path: Path) -> Iterator[Running]:
    words: dict[str, Any] = {"keys": read_keys(keys), "key_file": keys, "watch_seconds": 0.05}
    words |= {"store": filled_file(tmp_path), "audit_log": tmp_path / "audit.log"}
    with running(bundle_of("lightgc2n"), **words) as actual:
        yield actual


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_scope_allows_its_routes_alone(service: Running) -> None:
    account = service.service.served.recommender.dataset.accounts[0]
    clients = {key: service.client(Authorization=f"Bearer {key}") for key in (READER, WRITER, ERASER, OLD)}
    event = {"account": account, "item": "v1"}
    requests = {
        "read": lambda client: client.recommend(account=account),
        "write": lambda client: send(client, event),
        "erase": lambda client: client.ask("DELETE", f"/v1/accounts/{account}/events/~1"),
    }
    allowed = {READER: {"read"}, WRITER: {"read", "write"}, ERASER: {"erase"}, OLD: {"read"}}
    for key, client in clients.items():
        for scope, request in requests.items():
            reply = request(client)
            assert (reply.status != 403) is (scope in allowed[key]), (key, scope, reply.body)
            if reply.status == 403:
                assert reply.code == "wrong_scope"
    assert clients[WRITER].get(f"/v1/accounts/{account}/events").status == 200
    assert send(service.client(), event).status == 401
    for client in (clients[ERASER], service.client()):
        assert (client.get("/healthz").status, client.get("/v1/model").status) in ((200, 403), (200, 401))


def test_a_fifo_in_the_place_of_the_keys_does_not_stop_their_rotation(service: Running, keys: Path) -> None:
    old = service.client(Authorization=f"Bearer {OLD}")
    beside = keys.with_name("next")
    os.mkfifo(beside)
    os.replace(beside, keys)
    wait_for(lambda: service.service.keys._seen[1] == keys.stat().st_ino)  # type: ignore[index]
    assert old.get("/v1/model").status == 200
    beside.write_text(f"read {READER}\n")
    beside.chmod(0o600)
    os.replace(beside, keys)
    wait_for(lambda: old.get("/v1/model").status == 401)


def test_what_takes_the_place_of_the_audit_log_neither_stops_writes_nor_is_changed(
    service: Running, tmp_path: Path
) -> None:
    writer, log = service.client(**{"X-API-Key": WRITER}), tmp_path / "audit.log"
    event = {"account": "new", "item": "v1"}
    os.mkfifo(log)
    assert send(writer, event).status == 201
    reader = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    assert send(writer, event).status == 201
    os.close(reader)
    log.unlink()
    log.write_text("mine")
    assert send(writer, event).status == 201
    assert log.read_text() == "mine"
    log.unlink()
    assert send(writer, event).status == 201
    assert len(lines(log)) == 1


def test_a_changed_file_of_keys_is_used_without_a_restart(service: Running, keys: Path) -> None:
    new = service.client(Authorization="Bearer a-new-key-of-enough-letters")
    old = service.client(Authorization=f"Bearer {OLD}")
    assert (new.get("/v1/model").status, old.get("/v1/model").status) == (401, 200)
    beside = keys.with_name("next")
    beside.write_text("read a-new-key-of-enough-letters\n")
    beside.chmod(0o600)
    os.replace(beside, keys)
    wait_for(lambda: new.get("/v1/model").status == 200)
    assert old.get("/v1/model").status == 401
    keys.write_text("admin a-new-key-of-enough-letters\n")  # not a scope: the keys before stay
    wait_for(lambda: service.service.keys._seen[2] == keys.stat().st_size)  # type: ignore[index]
    keys.unlink()
    wait_for(lambda: service.service.keys._seen is None)
    assert (new.get("/v1/model").status, old.get("/v1/model").status) == (200, 401)


def test_unknown_scopes_and_too_many_words_are_explained(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    for text, problem in (
        (f"raed {READER}", "keys:1: expected scopes and a key: .*raed.*read"),
        (f"read write {READER}", "keys:1: expected a key"),
        ("read,write short", "keys:1: expected a key"),
    ):
        path.write_text(text + "\n")
        with pytest.raises(SettingError, match=problem):
            read_keys(path)
    path.write_text(f"read {READER}\nwrite {READER}\n")
    assert list(read_keys(path).values()) == [{"read", "write"}]


def test_the_audit_log_has_hashes_of_accounts_and_no_items(service: Running, tmp_path: Path) -> None:
    writer, eraser = (service.client(**{"X-API-Key": key}) for key in (WRITER, ERASER))
    item = "a-secret-film"
    reply = send(
        writer, {"account": "somebody", "item": item, "id": "e1"}, {"account": "somebody", "item": item, "id": "e1"}, {}
    )
    assert eraser.ask("DELETE", "/v1/accounts/somebody/events/e1").status == 200
    assert eraser.ask("DELETE", "/v1/accounts/somebody").status == 200
    store = open_store(service.service.store._url)  # type: ignore[union-attr]
    digest = store.hash_of("somebody")
    store.close()
    write, event, account = lines(tmp_path / "audit.log")
    assert write["request_id"] == reply.headers["x-request-id"]
    assert (write["audit"], write["stored"], write["duplicates"], write["refused"]) == ("write", 1, 1, 1)
    assert [one["what"] for one in (event, account)] == ["event", "account"]
    assert write["accounts"] == event["accounts"] == account["accounts"] == [digest]
    assert write["key"] != event["key"] == account["key"]
    text = (tmp_path / "audit.log").read_text()
    assert "somebody" not in text
    assert item not in text
    assert (tmp_path / "audit.log").stat().st_mode & 0o777 == 0o600


def test_an_erasure_that_takes_longer_than_its_request_is_in_the_audit_log(tmp_path: Path) -> None:
    store, log = filled_file(tmp_path), tmp_path / "audit.log"
    with running(bundle_of("lightgc2n"), store=store, audit_log=log, limits={"seconds": 0.5}) as service:
        client, account = service.client(), service.service.served.recommender.dataset.accounts[0]
        other = sqlite3.connect(store, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")  # as `store compact` would
        assert client.ask("DELETE", f"/v1/accounts/{account}").status == 503
        assert not log.exists()
        other.execute("ROLLBACK")
        other.close()
        wait_for(lambda: client.recommend(account=account).status == 404)
        wait_for(log.exists)
        (line,) = lines(log)
        assert (line["audit"], line["what"]) == ("erase", "account")


def test_ids_are_in_the_audit_log_when_requested(tmp_path: Path) -> None:
    words: dict[str, Any] = {"store": filled_file(tmp_path), "audit_log": tmp_path / "audit.log", "log_ids": True}
    with running(bundle_of("lightgc2n"), **words) as service:
        assert send(service.client(), {"account": "somebody", "item": "a-film"}).status == 201
    (line,) = lines(tmp_path / "audit.log")
    assert (line["ids"], line["items"]) == (["somebody"], ["a-film"])


def test_the_audit_log_is_no_file_of_yours(tmp_path: Path) -> None:
    mine, link = tmp_path / "thesis.txt", tmp_path / "link"
    mine.write_text("thesis")
    link.symlink_to(tmp_path / "elsewhere")
    for path, problem in (
        (mine, "did not begin"),
        (link, "regular"),
        (tmp_path / "no" / "audit", "there is no folder"),
    ):
        with pytest.raises(OutputError, match=problem):
            refuse_foreign_file(path)
    refuse_foreign_file(tmp_path / "new")
    (tmp_path / "new").write_bytes(b'{"audit": "write"}\n')
    refuse_foreign_file(tmp_path / "new")

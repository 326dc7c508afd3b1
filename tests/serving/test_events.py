"""Events over HTTP: stored once acknowledged, used by the next answer, erased for good."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lightgc2n.recommending.load_bundle import load_bundle
from lightgc2n.serving.recorder import RecordedEvent
from lightgc2n.serving.served_bundle import ServedBundle
from lightgc2n.store.event_store import create_store, open_store
from lightgc2n.store.events import NewEvent
from tests.export.town import bundle_of
from tests.serving.events import filled, history_of, send
from tests.serving.running import Client, Running, command, running, wait_for

MODEL = "lightgc2n-plus"
LATE = "2031-01-01T20:00"


@pytest.fixture
def live(url: str) -> Iterator[Running]:
    with running(bundle_of(MODEL), store=filled(url)) as service:
        yield service


@pytest.fixture
def client(live: Running) -> Client:
    return live.client()


def accounts(service: Running) -> list[str]:
    return list(service.service.served.recommender.dataset.accounts)


def test_without_new_events_the_answers_are_those_of_the_bundle(live: Running, client: Client) -> None:
    recommender = load_bundle(bundle_of(MODEL))
    for account in accounts(live)[:5]:
        reply = client.recommend(account=account, k=5)
        expected = recommender.recommend(account, k=5).items
        assert [one["item"] for one in reply.json["items"]] == [one.item_id for one in expected]
        assert reply.json["notes"] == []


def test_an_event_counts_once_and_the_next_answer_uses_it(live: Running, client: Client) -> None:
    account, item = accounts(live)[0], live.service.served.recommender.dataset.items[3]
    before = history_of(client, account)
    event = {"account": account, "item": item, "time": LATE, "id": "click-1"}
    first, again = client.post("/v1/events", event), client.post("/v1/events", event)
    assert first.status == again.status == 201
    assert first.json == {"stored": 1, "duplicates": 0, "refused": 0, "results": [{"status": "stored"}]}
    assert again.json["duplicates"] == 1
    assert history_of(client, account) == [*before, item]
    given = client.recommend(account=account, history=[*before, item], k=7).json
    assert client.recommend(account=account, k=7).json["items"] == given["items"]


def test_bad_events_are_refused_one_by_one(client: Client) -> None:
    good = {"account": "new", "item": "v1", "time": LATE}
    bad: list[Any] = [
        {"item": "v1"}, {**good, "item": ""}, {**good, "time": "yesterday"}, {**good, "account": "a\nb"}, 7,
        {**good, "colour": "red"}, {**good, "id": "~1"}, {**good, "time": 2**61},
    ]  # fmt: skip
    reply = client.post("/v1/events", {"events": [good, *bad]})
    assert reply.status == 201
    assert [one["status"] for one in reply.json["results"]] == ["stored", *["refused"] * len(bad)]
    assert all(one["message"] for one in reply.json["results"][1:])
    reply = client.post("/v1/events", {"events": bad})
    assert (reply.status, reply.code) == (422, "events_refused")
    assert len(reply.json["error"]["details"]) == len(bad)
    for body in ({"events": []}, {"events": [good] * 1001}, {}):
        assert client.post("/v1/events", body).status == 422
    assert client.ask("POST", "/v1/events", json.dumps(good).encode(), {"Content-Type": "text/plain"}).status == 422
    assert len(client.get("/v1/accounts/new/events").json["events"]) == 1


def test_an_unknown_item_is_stored_and_used_once_a_model_knows_it(url: str, tmp_path: Path) -> None:
    shutil.copytree(bundle_of(MODEL), tmp_path / "small")
    item = "brand-new"
    with running(bundle_of(MODEL), store=filled(url)) as service:
        client, account = service.client(), accounts(service)[1]
        before = history_of(client, account)
        assert send(client, {"account": account, "item": item, "time": LATE}).status == 201
        assert history_of(client, account) == before
        notes = client.recommend(account=account).json["notes"]
        assert notes == ["events of items that the model does not know yet: 1"]
        dataset = service.service.served.recommender.dataset
        dataset.items[3], old = item, dataset.items[3]  # as after training on an export: the model knows the item
        dataset.__dict__.pop("item_index", None)
        service.service.watcher.current = ServedBundle(**vars(service.service.served))
        assert history_of(client, account)[-1] == item
        dataset.items[3] = old
        dataset.__dict__.pop("item_index", None)


def test_a_new_account_gets_lists(live: Running, client: Client) -> None:
    first, second = live.service.served.recommender.dataset.items[:2]
    assert client.recommend(account="newcomer").status == 404
    assert send(client, {"account": "newcomer", "item": "nothing known"}).status == 201
    assert client.recommend(account="newcomer").json["fallback"]
    assert send(client, *({"account": "newcomer", "item": item} for item in (first, second))).status == 201
    reply = client.recommend(account="newcomer", k=5)
    assert reply.status == 200
    assert not reply.json["fallback"]
    assert client.get("/v1/accounts?search=newcomer").json["accounts"] == [{"account": "newcomer", "events": 3}]


def test_the_first_event_takes_the_history_of_the_bundle_along(url: str) -> None:
    create_store(url).close()
    with running(bundle_of(MODEL), store=url) as service:
        client, account = service.client(), accounts(service)[0]
        before = history_of(client, account)
        assert send(client, {"account": account, "item": before[0], "time": LATE}).status == 201
        assert history_of(client, account) == [*before, before[0]]
    store = open_store(url)
    assert store.facts().events == len(before) + 1
    store.close()


def test_pages_of_events_and_erasing_one(live: Running, client: Client) -> None:
    account = accounts(live)[2]
    before = history_of(client, account)
    send(client, {"account": account, "item": before[0], "time": LATE, "id": "a/b?c"})
    pages: list[dict[str, Any]] = []
    path = f"/v1/accounts/{account}/events?limit=7"
    while True:
        page = client.get(path + (f"&before={pages[-1]['next']}" if pages else "")).json
        pages.append(page)
        if page["next"] is None:
            break
    events = [event for page in pages for event in page["events"]]
    assert [event["item"] for event in events][::-1] == [*before, before[0]]
    assert len({event["event"] for event in events}) == len(events)
    assert client.ask("DELETE", f"/v1/accounts/{account}/events/a%2Fb%3Fc").json["events"] == 1
    assert history_of(client, account) == before
    newest = events[1]["event"]
    assert newest.startswith("~")
    assert client.ask("DELETE", f"/v1/accounts/{account}/events/{newest}").status == 200
    assert history_of(client, account) == before[:-1]
    for event in (newest, "a%2Fb%3Fc", "~", "~x", "nothing"):
        assert client.ask("DELETE", f"/v1/accounts/{account}/events/{event}").code == "unknown_event"
    again = send(client, {"account": account, "item": before[0], "time": LATE, "id": "a/b?c"})
    assert again.json["error"]["details"][0]["code"] == "erased"


def test_an_erased_account_is_in_no_answer(live: Running, client: Client) -> None:
    account, other = accounts(live)[:2]
    population = client.get("/v1/population").json
    first = population["examples"][0]["account"]
    for one in {account, first}:
        reply = client.ask("DELETE", f"/v1/accounts/{one}")
        assert reply.status == 200
        assert reply.json["events"] > 0
        assert any("bundle" in words for words in reply.json["stays"])
    assert client.recommend(account=account).code == "unknown_account"
    assert client.get(f"/v1/accounts/{account}/people").code == "unknown_account"
    assert client.get(f"/v1/accounts/{account}/events").code == "unknown_account"
    assert client.post("/v1/who", {"account": account, "time": LATE}).code == "unknown_account"
    assert account not in [one["account"] for one in client.get("/v1/accounts?limit=1000").json["accounts"]]
    assert first not in [one["account"] for one in client.get("/v1/population").json["examples"]]
    assert client.ask("DELETE", f"/v1/accounts/{account}").json["events"] == 0
    assert client.ask("DELETE", "/v1/accounts/nobody").code == "unknown_account"
    history = history_of(client, other)[:5]
    with_account = client.recommend(account=account, history=history)
    assert with_account.json["items"] == client.recommend(history=history).json["items"]
    assert with_account.json["account"] == account
    assert send(client, {"account": account, "item": "v1"}).status == 422


def test_an_account_with_slashes(client: Client) -> None:
    send(client, {"account": "a/events/b", "item": "v1"}, {"account": "a", "item": "v1", "id": "b"})
    assert client.ask("DELETE", "/v1/accounts/a%2Fevents%2Fb").json["events"] == 1
    assert len(client.get("/v1/accounts/a/events").json["events"]) == 1
    assert client.ask("DELETE", "/v1/accounts/a/x/b").status == 404


def test_an_id_with_nul_is_unknown(client: Client) -> None:
    """PostgreSQL has no text with NUL, and reads of concurrent requests are one query."""
    for method, path in (
        ("GET", "/v1/accounts/a%00/events"),
        ("GET", "/v1/accounts/a%00/people"),
        ("DELETE", "/v1/accounts/a%00"),
        ("DELETE", "/v1/accounts/h1/events/%00"),
    ):
        assert client.ask(method, path).status == 404
    assert client.get("/v1/accounts?search=%00").json["total"] == 0
    assert client.recommend(account="a\0").code == "unknown_account"


def test_many_requests_at_once_with_a_store(live: Running, client: Client) -> None:
    names = [*accounts(live), "nobody"]
    reply = client.post("/v1/recommend", {"requests": [{"account": name, "k": 3} for name in names]})
    answers = reply.json["answers"]
    assert [one.get("account") for one in answers[:-1]] == names[:-1]
    assert answers[-1]["error"]["code"] == "unknown_account"


class Recorder:
    """Keeps all events."""

    def __init__(self) -> None:
        self.got: list[RecordedEvent] = []

    def select(self, events: Any) -> list[int]:
        return list(range(len(events)))

    def record(self, served: ServedBundle, events: Any) -> None:
        self.got += events


def test_a_recorder_gets_each_stored_event_with_the_history_before_it(live: Running, client: Client) -> None:
    live.service.recorder = recorder = Recorder()
    dataset, account = live.service.served.recommender.dataset, accounts(live)[0]
    before = history_of(client, account)
    new = [{"account": account, "item": dataset.items[at], "time": LATE, "id": str(at)} for at in range(2)]
    assert send(client, *new, new[0]).json["duplicates"] == 1
    first, second = recorder.got
    assert isinstance(first.event, NewEvent)
    assert [dataset.items[item] for item in first.before.items.tolist()] == before
    assert second.before.items.tolist() == [*first.before.items.tolist(), 0]


def test_without_a_store_the_service_stays_read_only() -> None:
    with running(bundle_of(MODEL)) as service:
        client = service.client()
        assert send(client, {"account": "a", "item": "v1"}).code == "no_store"
        assert client.ask("DELETE", "/v1/accounts/a").code == "no_store"
        assert client.get("/v1/model").json["store"] is None


def test_two_services_on_one_store_see_each_others_writes(url: str) -> None:
    filled(url)
    with running(bundle_of(MODEL), store=url) as one, running(bundle_of(MODEL), store=url) as two:
        here, there, account = one.client(), two.client(), accounts(one)[0]
        item = one.service.served.recommender.dataset.items[0]
        expected = history_of(there, account)
        for turn in range(10):
            assert send(here, {"account": account, "item": item, "time": f"2031-01-{turn + 1:02}"}).status == 201
            expected.append(item)
            assert history_of(there, account) == expected
            here, there = there, here
        assert here.ask("DELETE", f"/v1/accounts/{account}").status == 200
        assert there.recommend(account=account).status == 404


def test_every_worker_uses_what_was_acknowledged(url: str) -> None:
    filled(url)
    with command(bundle_of(MODEL), "--store", url, "--workers", 2) as service:
        account = load_bundle(bundle_of(MODEL)).dataset.accounts[0]
        expected = history_of(service.client, account)
        for turn in range(12):
            client = Client(service.client.port)  # a new connection: any worker takes it
            event = {"account": account, "item": expected[0], "time": f"2031-01-{turn + 1:02}"}
            assert send(client, event).status == 201
            expected.append(expected[0])
            for _ in range(4):
                client.close()
                assert history_of(client, account) == expected
            client.close()
        answered = {line["worker"] for line in service.events() if line["event"] == "request"}
        assert len(answered) == 2, "or this test sees one worker alone"


def test_a_store_that_is_replaced_is_opened_anew(tmp_path: Path) -> None:
    place = tmp_path / "events.db"
    with running(bundle_of(MODEL), store=filled(str(place))) as service:
        client, account = service.client(), accounts(service)[0]
        before = history_of(client, account)
        for name in ("events.db", "events.db-wal", "events.db-shm"):
            (tmp_path / name).unlink(missing_ok=True)
        wait_for(lambda: client.get("/v1/model").json["store"] == "unavailable")
        reply = send(client, {"account": account, "item": "v1"})
        assert (reply.status, reply.code) == (503, "store_unavailable")
        assert "retry-after" in reply.headers
        assert any("does not answer" in note for note in client.recommend(account=account).json["notes"])
        assert client.get("/readyz").json == {"status": "ok", "store": "unavailable"}
        create_store(str(place)).close()
        wait_for(lambda: client.get("/v1/model").json["store"] == "ok")
        assert history_of(client, account) == before
        assert send(client, {"account": account, "item": before[0], "time": LATE}).status == 201
        assert history_of(client, account) == [*before, before[0]]

"""The service gives the answers of the bundle, in the shapes that its OpenAPI document promises."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from lightgc2n.recommending.load_bundle import load_bundle
from lightgc2n.recommending.recommender import Recommender
from lightgc2n.recommending.results import Recommendations
from lightgc2n.serving import event_schemas, schemas
from lightgc2n.serving.served_bundle import MOST_ORIGINS, image_sources
from tests.serving.running import Client, Reply, Running, running, seeing_two


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return seeing_two(tmp_path_factory.mktemp("bundles") / "two")


@pytest.fixture(scope="module")
def bundle(folder: Path) -> Recommender:
    return load_bundle(folder)


@pytest.fixture(scope="module")
def titles(bundle: Recommender) -> dict[str, str]:
    return {item: f"The Story of {item.upper()}" for item in bundle.dataset.items[::2]}


@pytest.fixture(scope="module")
def service(folder: Path, tmp_path_factory: pytest.TempPathFactory, titles: dict[str, str]) -> Iterator[Running]:
    beside = tmp_path_factory.mktemp("service")
    (beside / "titles.tsv").write_text("".join(f"{item}\t{title}\n" for item, title in titles.items()))
    (beside / "report.html").write_text("<!doctype html><title>found</title>")
    with running(folder, titles=beside / "titles.tsv", report=beside / "report.html") as found:
        yield found


@pytest.fixture(scope="module")
def client(service: Running) -> Client:
    return service.client()


def valid(reply: Reply, model: type[BaseModel]) -> Any:
    """The body of an answer, which has all that the schema asks for, and nothing else."""
    assert reply.status == 200, reply.body
    read = model.model_validate_json(reply.body)
    told = reply.json
    assert read.model_dump(mode="json", by_alias=True, exclude_unset=True) == told
    return told


def assert_list(found: dict[str, Any], wanted: Recommendations, titles: dict[str, str]) -> None:
    assert (found["account"], found["fallback"]) == (wanted.account_id, wanted.fallback)
    assert found["notes"] == list(wanted.notes)
    assert [(one["item"], one["rank"]) for one in found["items"]] == [(one.item_id, one.rank) for one in wanted]
    assert [one["score"] for one in found["items"]] == pytest.approx([one.score for one in wanted], rel=1e-5, abs=1e-6)
    assert [one.get("title") for one in found["items"]] == [titles.get(one.item_id) for one in wanted]


def log_of(bundle: Recommender, account: str) -> list[str]:
    return [bundle.dataset.items[event] for event in bundle.prepare(account).events]


def ways_to_ask(bundle: Recommender) -> list[dict[str, Any]]:
    accounts, items = bundle.dataset.accounts, list(bundle.dataset.items)
    log = log_of(bundle, accounts[4])
    return [
        {"account": accounts[0]},
        {"account": accounts[1], "k": 3, "exclude_seen": True},
        {"history": log},
        {"account": accounts[2], "history": log[:5], "k": 7},
        {"account": "somebody new", "history": log[:3]},
        {"history": ["?", *log[:4]]},
        {"history": []},
        {"account": accounts[3], "allow": items[:30], "deny": items[:3]},
        {"account": accounts[3], "domain": bundle.dataset.domains[-1].name},
        {"account": accounts[4], "k": 1000},
        {"account": accounts[5], "together": True, "k": 4},
        {"account": accounts[5], "person": "A", "k": 4},
    ]


def test_every_way_to_ask(client: Client, bundle: Recommender, titles: dict[str, str]) -> None:
    for body in ways_to_ask(bundle):
        found = valid(client.recommend(**body), schemas.Answer)
        assert_list(found, bundle.recommend(**body), titles)
    assert valid(client.recommend(history=[]), schemas.Answer)["fallback"] is True
    assert valid(client.recommend(account=bundle.dataset.accounts[0]), schemas.Answer)["fallback"] is False


def test_several_at_once(client: Client, bundle: Recommender, titles: dict[str, str]) -> None:
    asks = ways_to_ask(bundle)
    wrong = [{"account": "nobody"}, {"history": ["x"], "deny": ["not there"]}]
    reply = client.recommend(requests=[*asks, *wrong, {"account": bundle.dataset.accounts[7]}])
    answers = valid(reply, schemas.ManyAnswers)["answers"]
    for found, body in zip(answers, asks, strict=False):
        assert_list(found, bundle.recommend(**body), titles)
    assert [answer["error"]["code"] for answer in answers[-3:-1]] == ["unknown_account", "cannot_be_answered"]
    assert_list(answers[-1], bundle.recommend(bundle.dataset.accounts[7]), titles)


def test_a_thousand_at_once(client: Client, bundle: Recommender, titles: dict[str, str]) -> None:
    accounts = [bundle.dataset.accounts[n % 60] for n in range(1000)]
    reply = client.recommend(requests=[{"account": account, "k": 2} for account in accounts])
    wanted = {account: bundle.recommend(account, k=2) for account in set(accounts)}
    for found, account in zip(reply.json["answers"], accounts, strict=True):
        assert_list(found, wanted[account], titles)
    assert client.recommend(requests=[{"account": "h"}] * 1001).code == "invalid"


def test_the_people_behind_an_account(client: Client, bundle: Recommender, titles: dict[str, str]) -> None:
    for account in bundle.dataset.accounts[:5]:
        found = valid(client.get(f"/v1/accounts/{account}/people?k=3"), schemas.PeopleFound)
        wanted = bundle.people(account, k=3)
        assert (found["account"], found["count"], found["sessions"]) == (account, wanted.count, list(wanted.sessions))
        assert found["chances"] == pytest.approx(wanted.chances)
        told = [(one["item"], one["time"], one["person"], one.get("title")) for one in found["events"]]
        assert told == [(one.item_id, one.time, one.person, titles.get(one.item_id)) for one in wanted.events]
        for person, other in zip(found["people"], wanted.people, strict=True):
            assert (person["name"], person["events"]) == (other.name, other.events)
            assert [like["item"] for like in person["likes"]] == [like.item_id for like in other.likes]
            assert_list(person["next"], other.next, titles)
        assert_list(found["account_list"], wanted.whole, titles)
        assert wanted.together is not None
        assert_list(found["together"], wanted.together, titles)


def test_what_if(client: Client, bundle: Recommender) -> None:
    account = bundle.dataset.accounts[3]
    stored = client.get(f"/v1/accounts/{account}/people").json
    history, times = [one["item"] for one in stored["events"]], [one["time"] for one in stored["events"]]
    found = valid(client.post("/v1/people", {"history": history[:9], "times": times[:9], "k": 2}), schemas.PeopleFound)
    assert [one["item"] for one in found["events"]] == history[:9]
    assert found["account"] is None
    wanted = bundle.people(None, history[:9], times[:9], k=2)
    assert (found["count"], found["confidence"]) == (wanted.count, pytest.approx(wanted.confidence))
    assert client.post("/v1/people", {"history": history[:2], "times": ["tomorrow"] * 2}).code == "cannot_be_answered"
    assert client.post("/v1/people", {"history": history[:2], "times": times[:1]}).code == "times_do_not_fit"


def test_a_history_of_thousands_of_sessions(client: Client, bundle: Recommender) -> None:
    """As the bundle answers in Python: the newest 2,000 sessions, and a note that says so."""
    items = bundle.dataset.items
    history, times = [items[event % 50] for event in range(5000)], [7 * 3600 * 10**6 * event for event in range(5000)]
    found = valid(client.post("/v1/people", {"history": history, "times": times, "k": 3}), schemas.PeopleFound)
    wanted = bundle.people(None, history[-2000:], times[-2000:], k=3)
    assert found["notes"][0] == "people are found in the newest 2,000 sessions: 3,000 older events are left out"
    assert (found["count"], found["sessions"]) == (wanted.count, list(range(2000)))
    assert [one["person"] for one in found["events"]] == [one.person for one in wanted.events]
    one = client.recommend(history=history, times=times, person="B", k=3).json
    assert [listed["item"] for listed in one["items"]] == [listed.item_id for listed in wanted.people[1].next]
    assert one["notes"] == found["notes"][:1]


def test_similar_items(client: Client, bundle: Recommender, titles: dict[str, str]) -> None:
    item = bundle.dataset.items[5]
    assert_list(valid(client.get(f"/v1/items/{item}/similar?k=4"), schemas.Answer), bundle.similar(item, 4), titles)
    assert client.get("/v1/items/nothing/similar").code == "unknown_item"


def test_accounts_by_name(client: Client, bundle: Recommender) -> None:
    found = valid(client.get("/v1/accounts?search=H00001&limit=3"), schemas.AccountsFound)
    assert [one["account"] for one in found["accounts"]] == ["h000010", "h000011", "h000012"]
    assert found["total"] == 10
    assert found["accounts"][0]["events"] == len(log_of(bundle, "h000010"))
    inside = valid(client.get("/v1/accounts?search=7"), schemas.AccountsFound)["accounts"]
    assert [one["account"] for one in inside] == [one for one in bundle.dataset.accounts if "7" in one]
    assert client.get("/v1/accounts").json["total"] == len(bundle.dataset.accounts)
    assert client.get("/v1/accounts?search=nobody").json == {"accounts": [], "total": 0}


def test_items_by_name_or_title(client: Client, bundle: Recommender, titles: dict[str, str]) -> None:
    item = bundle.dataset.items[10]
    found = valid(client.get(f"/v1/items?search=story%20of%20{item}"), schemas.ItemsFound)
    assert {"item": item, "title": titles[item]} in found["items"]
    assert client.get(f"/v1/items?search={item}&limit=1").json["items"][0]["item"] == item
    assert client.get("/v1/items").json["total"] == len(bundle.dataset.items)


def test_what_is_served(client: Client, bundle: Recommender) -> None:
    found = valid(client.get("/v1/model"), schemas.ModelFacts)
    assert (found["model"], found["items"], found["accounts"]) == ("lightgc2n", len(bundle.dataset.items), 60)
    assert found["card"].startswith("# lightgc2n on")
    assert found["metrics"]["values"]["MRR@20"] > 0
    assert (found["people"], found["report"], found["titles"]) == (True, True, True)
    answer = client.recommend(history=[]).json
    assert answer["model"] == found["checksum"]


def test_how_it_is_doing(client: Client) -> None:
    assert client.get("/healthz").json == client.get("/readyz").json == {"status": "ok"}
    client.get("/nowhere")
    client.recommend(history=[])
    reply = client.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain")
    told = reply.body.decode()
    for line in (
        'lightgc2n_requests_total{method="GET",route="other",status="404"}',
        'lightgc2n_requests_total{method="POST",route="/v1/recommend",status="200"}',
        'lightgc2n_lists_total{fallback="true"}',
        "lightgc2n_batch_rows_bucket",
        "lightgc2n_requests_in_progress 1.0",
    ):
        assert line in told, line
    assert "h0000" not in told


def test_the_device_part_is_given_and_nothing_else(client: Client, folder: Path) -> None:
    listed = json.loads((folder / "config.json").read_text())["files"]
    for name in (*listed, "config.json", "SHA256SUMS"):
        reply = client.get(f"/device/{name}")
        assert (reply.status, reply.body) == (200, (folder / name).read_bytes())
    assert client.get("/device/model.onnx").headers["content-type"] == "application/octet-stream"
    for name in (
        *("server/accounts.txt", "server/histories.safetensors", "../config.json", "/etc/passwd", "%2e%2e/x", ""),
        *(
            "people/../server/accounts.txt",
            "server%2Faccounts.txt",
            "..%5cserver",
            ".",
            "config.json/",
            "config.json%00",
        ),
    ):
        reply = client.get(f"/device/{name}")
        assert (reply.status, reply.code) == (404, "not_found"), name


def test_files_are_sent_again_only_when_they_changed(client: Client) -> None:
    first = client.get("/device/items.txt")
    assert first.headers["cache-control"] == "no-cache"
    again = client.ask("GET", "/device/items.txt", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status, again.body) == (304, b"")


def test_the_report_may_run_nothing(client: Client) -> None:
    reply = client.get("/report")
    assert reply.body == b"<!doctype html><title>found</title>"
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert "script-src" not in reply.headers["content-security-policy"]
    assert "default-src 'none'" in reply.headers["content-security-policy"]


def test_the_page_is_served_by_names_of_a_list(client: Client) -> None:
    from lightgc2n.serving.static_files import PAGE, page_files

    for name, path in page_files().items():
        reply = client.get(f"/page/{name}")
        assert (reply.status, reply.body) == (200, path.read_bytes()), name
    assert client.get("/page/../app.py").status == client.get("/page/app.py").status == 404
    if (PAGE / "index.html").exists():
        reply = client.get("/")
        assert reply.headers["content-type"] == "text/html; charset=utf-8"
        policy = reply.headers["content-security-policy"]
        assert "img-src 'self' data:;" in policy, "the bundle has no images"
        assert "'unsafe-inline'" not in policy
        assert "'unsafe-eval'" not in policy
        assert "frame-ancestors 'none'" in policy


def test_only_hosts_without_signs_are_named() -> None:
    given = ["https://b.org/1.png", "http://a.org:8080/x", "https://b.org", "/own.png", "", "https://c;img-src*/x"]
    assert image_sources(given) == ("http://a.org:8080", "https://b.org")
    assert image_sources(["https://me@d.org/x", "https://e,f.org/x", "https://*/x"]) == ()
    many = [f"https://{number}.org/x" for number in range(MOST_ORIGINS + 1)]
    assert image_sources(many) == ("https:",)
    assert len(image_sources(many[1:])) == MOST_ORIGINS


def test_files_that_a_page_may_have(tmp_path: Path) -> None:
    from lightgc2n.serving.static_files import page_files

    (tmp_path / "device").mkdir()
    for name in ("index.html", "app.js", "device/bundle.js", "notes.py", "secret.key"):
        (tmp_path / name).write_text(name)
    assert list(page_files(tmp_path)) == ["app.js", "device/bundle.js", "index.html"]


def test_answers_come_with_careful_headers(client: Client) -> None:
    for path in ("/v1/model", "/nowhere", "/healthz"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers
        assert not [name for name in headers if name.startswith("access-control-")]


def test_who_is_watching(client: Client, bundle: Recommender, titles: dict[str, str]) -> None:
    account = bundle.dataset.accounts[0]
    begun = list(bundle.dataset.items[:3])
    body = {"account": account, "time": "2031-05-04T20:15", "items": begun}
    found, wanted = (
        valid(client.post("/v1/who", body), schemas.WhoFound),
        bundle.who(account, time=body["time"], items=begun),
    )
    assert (found["account"], found["time"], found["people"]) == (account, "2031-05-04 20:15", list(wanted.people))
    assert [step["item"] for step in found["steps"]] == [None, *begun]
    assert [step.get("title") for step in found["steps"]] == [None, *map(titles.get, begun)]
    for step, other in zip(found["steps"], wanted.steps, strict=True):
        assert step["chances"] == pytest.approx(other.chances)
        assert sum(step["chances"]) == pytest.approx(1)


def test_who_is_refused_like_other_questions(client: Client, bundle: Recommender) -> None:
    account, late = bundle.dataset.accounts[0], "2031-05-04T20:15"
    assert client.post("/v1/who", {"time": late}).code == "nobody_named"
    assert client.post("/v1/who", {"account": "nobody", "time": late}).code == "unknown_account"
    assert client.post("/v1/who", {"account": account, "time": late, "items": ["v1"] * 101}).code == "too_many_items"
    assert client.post("/v1/who", {"account": account, "time": late, "item": ["v1"]}).status == 422
    for time in (None, "tomorrow", "1990-01-01T20:15"):
        assert client.post("/v1/who", {"account": account, "time": time}).code == "cannot_be_answered"
    assert client.post("/v1/who", {"history": ["v1"], "times": [], "time": late}).code == "times_do_not_fit"


def test_the_document_tells_everything(client: Client) -> None:
    document = client.get("/openapi.json").json
    assert set(document["paths"]) == {
        *("/v1/recommend", "/v1/items/{item}/similar", "/v1/items", "/v1/accounts", "/v1/accounts/{account}/people"),
        *(
            "/v1/events",
            "/v1/accounts/{account}/events",
            "/v1/accounts/{account}/events/{event}",
            "/v1/accounts/{account}",
        ),
        *("/v1/people", "/v1/who", "/v1/population", "/v1/model", "/v1/quality", "/healthz", "/readyz", "/metrics"),
    }
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert operation["description"], path
            for status in ("404", "413", "422", "429", "503"):
                problem = operation["responses"][status]["content"]["application/json"]["schema"]
                assert problem == {"$ref": "#/components/schemas/ProblemBody"}, path
    assert document["paths"]["/v1/recommend"]["post"]["requestBody"]["content"]["application/json"]["examples"]
    for name in ("Ask", "ManyAsks", "Answer", "ProblemBody", "AskPeople", "AskWho", "Event", "ManyEvents"):
        schema = document["components"]["schemas"][name]
        model = getattr(schemas, name, None) or getattr(event_schemas, name)
        for example in schema["examples"]:
            model.model_validate(example)

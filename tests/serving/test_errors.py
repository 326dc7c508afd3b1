"""Everything that is refused has one shape, whatever the reason, and never repeats what was sent."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lightgc2n.errors import HISTORY, DataError, SettingError, option
from lightgc2n.serving.errors import RefusedError, from_library_error
from lightgc2n.serving.keys import read_keys
from lightgc2n.serving.limits import MOST_NESTED, UNCHECKED_BYTES, refuse_too_many_values
from lightgc2n.serving.settings import Limits, ServiceSettings, refuse_missing_key
from tests.export.town import bundle_of
from tests.serving.running import Client, Running, running, wait_for

LIMITS = {"max_body": 20_000, "max_k": 50, "max_history": 100, "max_listed": 400}


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with running(bundle_of("lightgc2n"), LIMITS) as actual:
        yield actual


@pytest.fixture(scope="module")
def client(service: Running) -> Client:
    return service.client()


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"account": "nobody"}, 404, "unknown_account"),
        ({}, 422, "nobody_named"),
        ({"k": 5}, 422, "nobody_named"),
        ({"account": "h000001", "k": 0}, 422, "invalid"),
        ({"account": "h000001", "k": "5"}, 422, "invalid"),
        ({"account": "h000001", "k": 5.5}, 422, "invalid"),
        ({"account": "h000001", "k": 10**30}, 422, "k_too_large"),
        ({"account": "h000001", "k": 51}, 422, "k_too_large"),
        ({"account": 7}, 422, "invalid"),
        ({"account": ""}, 422, "invalid"),
        ({"account": "h000001", "colour": "red"}, 422, "invalid"),
        ({"history": "v1"}, 422, "invalid"),
        ({"history": [1]}, 422, "invalid"),
        ({"history": ["v1"] * 101}, 422, "history_too_long"),
        ({"history": ["v1"], "times": []}, 422, "times_do_not_fit"),
        ({"account": "h000001", "person": "AB"}, 422, "invalid"),
        ({"account": "h000001", "person": "A", "together": True}, 422, "invalid"),
        ({"account": "h000001", "person": "Z"}, 400, "cannot_be_answered"),
        ({"account": "h000001", "deny": ["not there"]}, 400, "cannot_be_answered"),
        ({"account": "h000001", "allow": []}, 400, "cannot_be_answered"),
        ({"account": "h000001", "domain": "music"}, 400, "cannot_be_answered"),
        ({"requests": []}, 422, "invalid"),
        ({"requests": {}}, 422, "invalid"),
        ({"requests": [{"k": 5}]}, 422, "nobody_named"),
        ({"requests": [{"account": "h000001", "k": 50}] * 9}, 422, "too_much"),
        ({"requests": [{"requests": []}]}, 422, "invalid"),
        ([], 422, "invalid"),
        ("text", 422, "invalid"),
        (7, 422, "invalid"),
    ],
)
def test_what_cannot_be_recommended(client: Client, body: object, status: int, code: str) -> None:
    reply = client.post("/v1/recommend", body)
    assert (reply.status, reply.code) == (status, code), reply.body


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"null", b"\xff\xfe", b'{"account": "\\ud800"}', b'{"\\ud800": 1}', b'{"k": NaN}', b"[" * 19_000,
        b'{"account": "h000001", "k": 1e999}', b'{"account": "a\\u0000"}', b"\x00" * 9,
    ],
)  # fmt: skip
def test_what_is_no_request(client: Client, body: bytes) -> None:
    reply = client.post("/v1/recommend", body)
    assert reply.status in (400, 404, 422), reply.body
    assert reply.code in ("invalid", "bad_request", "unknown_account")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/v1", 404, "not_found"),
        ("GET", "/v1/model/", 404, "not_found"),
        ("GET", "/v1/recommend", 405, "method_not_allowed"),
        ("DELETE", "/v1/model", 405, "method_not_allowed"),
        ("OPTIONS", "/v1/recommend", 405, "method_not_allowed"),
        ("BREW", "/v1/model", 405, "method_not_allowed"),
        ("GET", "/v1/accounts/nobody/people", 404, "unknown_account"),
        ("GET", "/v1/accounts//people", 404, "unknown_account"),
        ("GET", "/v1/accounts/a%2Fb%20c/people", 404, "unknown_account"),
        ("GET", "/v1/accounts/h000001/people?k=0", 422, "invalid"),
        ("GET", "/v1/accounts/h000001/people?k=51", 422, "k_too_large"),
        ("GET", "/v1/items/x/similar", 404, "unknown_item"),
        ("GET", "/v1/accounts?limit=0", 422, "invalid"),
        ("GET", "/v1/accounts?limit=many", 422, "invalid"),
        ("GET", "/v1/items?limit=1001", 422, "invalid"),
        ("GET", f"/v1/items?search={'x' * 201}", 422, "invalid"),
        ("GET", "/device/server/accounts.txt", 404, "not_found"),
        ("GET", "/report", 404, "not_found"),
    ],
)
def test_what_is_not_there(client: Client, method: str, path: str, status: int, code: str) -> None:
    reply = client.ask(method, path)
    assert (reply.status, reply.code) == (status, code), reply.body


def test_details_name_the_place_and_not_the_content(client: Client) -> None:
    body = {"requests": [{"account": "h000001"}, {"account": "h000001", "history": ["secret-item", 7], "my-key": 1}]}
    reply = client.post("/v1/recommend", body)
    assert {one["where"] for one in reply.json["error"]["details"]} == {
        "body.many.requests.1.history.1",
        "body.many.requests.1.my-key",
    }
    assert b"secret-item" not in reply.body


def test_only_json_is_read(client: Client) -> None:
    # A form of another website can send text, but not JSON, without the browser asking first.
    reply = client.ask("POST", "/v1/recommend", b'{"history": []}', {"Content-Type": "text/plain"})
    assert "send the header Content-Type: application/json" in reply.json["error"]["message"]
    assert reply.status == 422


def test_a_body_that_is_too_large(client: Client) -> None:
    assert client.post("/v1/recommend", b" " * 20_001).code == "too_large"
    reply = client.post("/v1/recommend", b'{"history": []}' + b" " * 19_000)
    assert reply.status == 200, "the connection goes on"


def test_a_body_without_end(service: Running) -> None:
    with socket.create_connection(("127.0.0.1", service.port)) as raw:
        raw.sendall(b"POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            for _ in range(100):
                raw.sendall(b"2000\r\n" + b"x" * 0x2000 + b"\r\n")
        except OSError:
            pass  # the service has had enough
        raw.settimeout(10)
        assert raw.recv(100).startswith(b"HTTP/1.1 413 ")


def test_what_is_no_http(service: Running) -> None:
    with socket.create_connection(("127.0.0.1", service.port)) as raw:
        raw.sendall(b"hello?\r\n\r\n")
        answer = b"".join(iter(lambda: raw.recv(1000), b""))
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n")
    assert b'"code": "bad_request"' in answer


MILLION = 1_000_000


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"history": [0] * MILLION}, "too_many_values"),
        ({"history": ["v00001"], "times": [0] * MILLION}, "too_many_values"),
        ({"history": [], "deny": [[]] * 9_000}, "too_many_values"),
        ({"requests": [{"history": [0] * MILLION}]}, "too_many_values"),
        ({"requests": [0] * MILLION}, "too_many_values"),
        ({"history": [0] * 150_000}, "history_too_long"),
        ({"history": ["v00001"], "times": [0] * 150_000}, "history_too_long"),
        ({"history": [], "allow": [0] * 150_000}, "too_many_items"),
        ({"history": [], "deny": [[]] * 7_000}, "invalid"),
        ({"requests": [{"history": [0] * 150_000}]}, "history_too_long"),
        ({"requests": [0] * 150_000}, "invalid"),
        ({f"k{number}": 0 for number in range(90_000)}, "invalid"),
        ({"requests": [{f"k{number}": 0 for number in range(90_000)}]}, "invalid"),
        ({"history": [[]] * 90}, "invalid"),
        ({"requests": [{"k": "x"}] * 900}, "invalid"),
    ],
)
def test_huge_arrays_are_counted_before_they_are_read(wide: Client, body: object, code: str) -> None:
    """One look at the length, and one mistake of each list: neither items nor mistakes are gone through one by one."""
    reply = wide.post("/v1/recommend", body)
    assert (reply.status, reply.code, len(reply.json["error"]["details"]) <= 1) == (422, code, True), reply.body
    if "history" in body or "times" in body:
        known = {name: value for name, value in body.items() if name in ("history", "times")}
        assert wide.post("/v1/people", known).status in (400, 422)


def test_signs_inside_of_names_are_not_counted() -> None:
    names = [f'[{number}, {{x: 1}}, "y", \\' for number in range(9_000)]
    body = json.dumps({"history": [], "deny": names}).encode()
    assert body.count(b"[") + body.count(b"{") > MOST_NESTED
    refuse_too_many_values(body, 40_000)
    with pytest.raises(RefusedError, match="at most 8,000 values"):
        refuse_too_many_values(body, 8_000)
    refuse_too_many_values(b"[" * UNCHECKED_BYTES, 1)  # what is small is read at once


@pytest.fixture(scope="module")
def wide() -> Iterator[Client]:
    """A client of a service that takes large bodies."""
    with running(bundle_of("lightgc2n"), {"max_body": 2**24}) as actual:
        yield actual.client()


def test_mixed_framing_is_refused_and_ends_the_connection(service: Running) -> None:
    """Two readers could disagree where the first request ends: the second one is never read."""
    second = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for head in (
        b"POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
        b"POST /v1/recommend HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", service.port)) as raw:
            raw.settimeout(10)
            raw.sendall(head + b"0\r\n\r\n" + second)
            answer = b"".join(iter(lambda: raw.recv(1000), b""))
        assert answer.startswith(b"HTTP/1.1 400 "), answer
        assert b"connection: close\r\n" in answer.lower()
        assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    "path",
    [
        "/healthz", "/readyz", "/v1/model", "/metrics", "/", "/page/style.css", "/openapi.json", "/v1/accounts?limit=2",
        "/device/config.json", "/page/nothing", "/v1/recommend",
    ],
)  # fmt: skip
def test_head_is_get_without_a_body(client: Client, path: str) -> None:
    got, head = client.get(path), client.ask("HEAD", path)
    assert (head.status, head.body) == (got.status, b"")
    for name in ("content-type", "etag", "cache-control"):
        assert head.headers.get(name) == got.headers.get(name)
    if path != "/metrics":
        assert abs(int(head.headers["content-length"]) - int(got.headers["content-length"])) == 0


def test_request_ids(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    reply = client.get("/v1/model", **{"X-Request-Id": "shop-7.f_3"})
    assert reply.headers["x-request-id"] == "shop-7.f_3"
    reply = client.ask("POST", "/v1/recommend", {"account": "nobody"}, {"X-Request-Id": "mine"})
    assert reply.json["error"]["request_id"] == "mine"
    many = client.ask("POST", "/v1/recommend", {"requests": [{"account": "nobody"}]}, {"X-Request-Id": "ours"}).json
    assert many["answers"][0]["error"]["request_id"] == "ours"
    made = [client.get("/nowhere", **{"X-Request-Id": wrong}) for wrong in ("a b", "", "x" * 129, '"', "é")]
    assert all(len(bytes.fromhex(one.json["error"]["request_id"])) == 8 for one in made)
    assert len({one.headers["x-request-id"] for one in made}) == len(made)
    wanted, logged = {"shop-7.f_3", "mine", "ours", *(one.headers["x-request-id"] for one in made)}, ""

    def all_logged() -> bool:
        nonlocal logged
        logged += capsys.readouterr().err
        return all(f'"request_id": "{one}"' in logged for one in wanted)

    wait_for(all_logged)


def test_without_a_key_only_its_local_names_open_it(client: Client) -> None:
    assert client.get("/v1/model", Host="rebound.example").code == "unknown_host"
    assert client.get("/v1/model", Host="rebound.example:8000").status == 421
    assert client.get("/v1/model", Host="localhost").status == 200
    assert client.get("/v1/model", Host="[::1]:9").status == 200


KEY, OTHER = "a-key-of-enough-letters", "another-key-of-enough-letters"


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("keys") / "keys"
    path.write_text(f"# of the shop\n{KEY}\n\n{OTHER}\n")
    origin = ("https://shop.example",)
    with running(bundle_of("lightgc2n"), keys=read_keys(path), cors=origin) as actual:
        yield actual


GUARDED = ("/v1/model", "/v1/accounts", "/metrics", "/device/config.json", "/device/nothing", "/v1/nothing", "/nowhere")


def test_keys(locked: Running) -> None:
    for path in GUARDED:
        for headers in ({}, {"Authorization": f"Bearer {KEY}x"}, {"Authorization": KEY}, {"X-API-Key": ""}):
            reply = locked.client().get(path, **headers)
            assert (reply.status, reply.code, reply.headers["www-authenticate"]) == (401, "no_key", "Bearer"), path
        for key in (KEY, OTHER):
            assert locked.client().get(path, Authorization=f"bearer {key}").status in (200, 404)
            assert locked.client().ask("GET", path, headers={"X-API-Key": key}).status in (200, 404)
    assert locked.client().recommend(history=[]).status == 401
    assert locked.client(Authorization=f"Bearer {KEY}").recommend(history=[]).status == 200


def test_what_stays_reachable_without_a_key(locked: Running) -> None:
    for path in ("/healthz", "/readyz", "/openapi.json"):
        assert locked.client().get(path, Host="shop.example").status == 200
    for path in ("/", "/page/nothing.js", "/ort/nothing.wasm", "/report"):
        assert locked.client().get(path).status in (200, 404)


def test_the_openapi_document_declares_keys(locked: Running) -> None:
    document = locked.client().get("/openapi.json").json
    assert document["components"]["securitySchemes"]["key"] == {"type": "http", "scheme": "bearer"}
    assert document["paths"]["/v1/model"]["get"]["security"] == [{"key": []}, {"header": []}]
    assert "security" not in document["paths"]["/healthz"]["get"]


def test_other_origins_only_when_allowed(locked: Running, client: Client) -> None:
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "Authorization"}
    reply = locked.client().ask("OPTIONS", "/v1/recommend", headers={"Origin": "https://shop.example", **asked})
    assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, "https://shop.example")
    reply = locked.client().ask("OPTIONS", "/v1/recommend", headers={"Origin": "https://other.example", **asked})
    assert "access-control-allow-origin" not in reply.headers
    reply = client.get("/healthz", Origin="https://shop.example")
    assert "access-control-allow-origin" not in reply.headers


def test_files_of_keys(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    for text, problem in (
        ("", "holds no key"),
        ("# none\n\n", "holds no key"),
        ("short\n", "keys:1: expected a key of at least 16"),
        ("good-key-good-key\nwith a space in it\n", "keys:2: expected"),
        ("schlüssel-schlüssel\n", "keys:1: expected"),
    ):
        path.write_text(text)
        with pytest.raises(SettingError, match=problem):
            read_keys(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SettingError, match="not a text file"):
        read_keys(path)


def test_strangers_are_not_answered_by_oversight() -> None:
    def at(host: str, **more: object) -> ServiceSettings:
        return ServiceSettings(bundle=bundle_of("lightgc2n"), host=host, limits=Limits(), **more)  # type: ignore[arg-type]

    for host in ("127.0.0.1", "127.8.8.8", "localhost", "::1"):
        refuse_missing_key(at(host))
    for host in ("0.0.0.0", "::", "192.168.0.7", "shop.example", ""):
        with pytest.raises(SettingError, match="--listen-without-key"):
            refuse_missing_key(at(host))
        refuse_missing_key(at(host, keys={b"x": frozenset({"read"})}))
        refuse_missing_key(at(host, listen_without_key=True))


def test_pages_of_every_origin_may_not_ask_without_keys() -> None:
    def at(**more: object) -> ServiceSettings:
        return ServiceSettings(bundle=bundle_of("lightgc2n"), limits=Limits(), **more)  # type: ignore[arg-type]

    for origin in ("*", "null"):
        for more in ({}, {"host": "0.0.0.0", "listen_without_key": True}):
            with pytest.raises(SettingError, match=r"Name the origin .* or give --api-key-file"):
                refuse_missing_key(at(cors=("https://shop.example", origin), **more))
        refuse_missing_key(at(cors=(origin,), keys={b"x": frozenset({"read"})}))
    refuse_missing_key(at(cors=("https://shop.example",)))


def test_a_key_file_that_others_may_write(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("a-key-of-enough-letters\n")
    for mode in (0o602, 0o620, 0o666):
        path.chmod(mode)
        with pytest.raises(SettingError, match=f"mode 0{mode:o}.* chmod go-w"):
            read_keys(path)
    for mode in (0o600, 0o644, 0o400):
        path.chmod(mode)
        assert len(read_keys(path)) == 1


def test_names_for_a_service_without_keys() -> None:
    """Who listens for others answers to addresses and to names that were given: a website cannot make these its own."""
    wanted = {
        "shop.example": 200, "SHOP.example:8000": 200, "127.0.0.1:9": 200, "192.168.0.7": 200, "[2001:db8::1]:9": 200,
        "localhost": 200, "rebound.example": 421, "": 421, "192.168.0.7.example": 421,
    }  # fmt: skip
    strangers: dict[str, Any] = {"host": "0.0.0.0", "listen_without_key": True}
    with running(bundle_of("lightgc2n"), **strangers) as open_:
        assert [open_.client().get("/v1/model", Host=name).status for name in ("rebound.example", "10.0.0.7")] == [
            421,
            200,
        ]
    with running(bundle_of("lightgc2n"), **strangers, allow_hosts=("shop.example",)) as open_:
        assert {name: open_.client().get("/v1/model", Host=name).status for name in wanted} == wanted
        assert "--allow-host" in open_.client().get("/v1/model", Host="rebound.example").json["error"]["message"]
    with running(bundle_of("lightgc2n"), **strangers, allow_hosts=("*",)) as open_:
        assert open_.client().get("/v1/model", Host="rebound.example").status == 200


def test_what_the_command_calls_an_option_is_a_field_here() -> None:
    account = option("--account", "account=")
    told = from_library_error(DataError(f"v--a: holds no histories. Give {HISTORY}, or both ({account})."))
    assert told.message == "v--a: holds no histories. Give history, or both (account)."

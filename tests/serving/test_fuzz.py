"""Whatever is sent, the service answers in its own shape and goes on."""

import itertools
import json
import random
import resource
import string
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.config import SchemathesisConfig

from tests.export.town import bundle_of
from tests.serving.attacks import ATTACKS, Attacker
from tests.serving.running import Client, Running, command, running, seeing_two

NAMES = (
    "account",
    "history",
    "times",
    "k",
    "person",
    "together",
    "exclude_seen",
    "allow",
    "deny",
    "domain",
    "requests",
)
PATHS = ("/v1/recommend", "/v1/recommend", "/v1/people")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    limits = {"max_history": 300, "max_k": 100}
    with running(seeing_two(tmp_path_factory.mktemp("fuzz") / "bundle"), limits) as actual:
        yield actual


def some_value(dice: random.Random, depth: int = 0) -> Any:
    """Anything that JSON can say, often what is nearly right."""
    kind = dice.randrange(12 if depth < 3 else 9)
    if kind < 2:
        return dice.choice(("h000001", "h000059", "v00001", "v00002", "A", "B", "video", "2024-05-01", "nobody", ""))
    if kind == 2:
        return dice.choice((0, 1, 5, 20, -1, 100, 101, 2**31, 2**63, -(10**40), 1e308, 0.5, 1e-320))
    if kind == 3:
        return dice.choice((True, False, None))
    if kind == 4:
        return "".join(dice.choices(string.printable + "äß漢🎬\x00\u202e\ud800\udfff", k=dice.randrange(40)))
    if kind < 9:
        return dice.choices(("v00001", "v00007", "v00100", "x"), k=dice.choice((0, 1, 3, 9, 300, 301)))
    if kind < 11:
        return [some_value(dice, depth + 1) for _ in range(dice.randrange(4))]
    return some_body(dice, depth + 1)


def some_body(dice: random.Random, depth: int = 0) -> dict[str, Any]:
    good: dict[str, Any] = {"account": "h000001", "history": ["v00001", "v00002"], "k": 3, "exclude_seen": True}
    body = {name: value for name, value in good.items() if dice.random() < 0.5}
    if dice.random() < 0.1:
        body["account"] = "nobody"
    for _ in range(dice.randrange(3)):
        body[dice.choice(NAMES) if dice.random() < 0.95 else dice.choice(("", "k ", "\ud800"))] = some_value(
            dice, depth
        )
    return body


def some_bytes(dice: random.Random) -> bytes:
    """A body, sound JSON or not."""
    data = bytearray(json.dumps(some_body(dice) if dice.random() < 0.9 else some_value(dice)).encode())
    for _ in range(dice.choice((0, 0, 0, 1, 3))):
        place = dice.randrange(len(data) + 1)
        data[place : place + dice.randrange(3)] = bytes(dice.choices(range(256), k=dice.randrange(3)))
    return bytes(data)


def ask_nonsense(service: Running, seed: int, number: int) -> dict[int, int]:
    """How often each status came back."""
    dice, client, actual = random.Random(seed), Client(service.port), dict[int, int]()
    for _ in range(number):
        body = some_bytes(dice)
        reply = client.post(dice.choice(PATHS), body)
        actual[reply.status] = actual.get(reply.status, 0) + 1
        assert reply.status in (200, 400, 404, 422), (reply.status, body, reply.body)
        if reply.status != 200:
            assert reply.code
        else:
            assert reply.json
    client.close()
    return actual


def in_threads(service: Running, number: int, threads: int = 4) -> dict[int, int]:
    actual: list[dict[int, int]] = []
    workers = [
        threading.Thread(target=lambda seed=seed: actual.append(ask_nonsense(service, seed, number // threads)))
        for seed in range(threads)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(actual) == threads, "one has met what it did not expect"
    return {status: sum(one.get(status, 0) for one in actual) for one in actual for status in one}


@pytest.mark.parametrize("number", [400, pytest.param(10_000, marks=pytest.mark.slow)])
def test_nonsense(service: Running, number: int) -> None:
    actual = in_threads(service, number)
    assert sum(actual.values()) == number
    assert {200, 404, 422} <= set(actual), "or the nonsense is of one kind only"
    reply = service.client().recommend(account="h000001")
    assert (reply.status, len(reply.json["items"])) == (200, 20)


@pytest.mark.parametrize("number", [120, pytest.param(10_000, marks=pytest.mark.slow)])
def test_attacks_while_an_honest_client_asks(number: int) -> None:
    """No mistake of ours, no refusal without a hint when to come back, and the honest client gets what it wants."""
    with command(bundle_of("lightgc2n"), most={resource.RLIMIT_AS: 512 * 2**20}) as served:
        attackers = [Attacker(served.client.port, random.Random(seed), largest=2**20) for seed in range(8)]

        def attack(attacker: Attacker) -> None:
            for _ in range(number // len(attackers)):
                attacker.attack()
            attacker.close()

        with ThreadPoolExecutor(len(attackers)) as pool:
            done = [pool.submit(attack, attacker) for attacker in attackers]
            answers = Counter[int]()
            while not all(one.done() for one in done):
                answers[served.client.recommend(account="h000001", k=3).status] += 1
        for one in done:
            one.result()
        assert [wrong for attacker in attackers for wrong in attacker.wrong] == []
        actual = sum((attacker.statuses for attacker in attackers), Counter[tuple[str, int]]())
        assert sum(actual.values()) == number
        assert {name for name, _ in actual} == set(ATTACKS)
        assert {status for _, status in actual} <= {0, 200, 206, 400, 404, 405, 408, 413, 416, 421, 422, 429, 503}
        assert set(answers) == {200}
        assert served.client.recommend(account="h000001").status == 200
        assert served.process.poll() is None
        assert not [one for one in served.events() if one["event"] == "failed" and one["problem"] != "MemoryError"]


@pytest.mark.parametrize("examples", [12, pytest.param(300, marks=pytest.mark.slow)])
def test_the_service_keeps_to_its_document(service: Running, examples: int) -> None:
    """Requests made from the OpenAPI document, right ones and wrong ones: answers are of the promised form."""
    load_all_checks()
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{service.port}/openapi.json", config=SchemathesisConfig())
    names = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance",
             "negative_data_rejection", "unsupported_method")  # fmt: skip
    checks = CHECKS.get_by_names(names)
    calm = settings(
        max_examples=examples, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    operations = [one.ok() for one in schema.get_all_operations()]
    assert len(operations) == 17
    for operation, mode in itertools.product(operations, GenerationMode):
        if mode is GenerationMode.NEGATIVE and not (operation.query or operation.body):
            continue  # nothing can be wrong with it

        @calm
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: Any) -> None:
            case.call_and_validate(checks=checks)

        ask()

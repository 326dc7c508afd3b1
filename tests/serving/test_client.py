"""The client in examples/ does what its words say."""

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lightgc2n.recommending.results import AccountPeople
from lightgc2n.serving.keys import digest
from tests.serving.running import Running, running, seeing_two

EXAMPLE = Path(__file__).parents[2] / "examples" / "client.py"
KEY = "a-key-of-enough-letters"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(
        seeing_two(tmp_path_factory.mktemp("client") / "bundle"), keys={digest(KEY): frozenset({"read"})}
    ) as actual:
        yield actual


@pytest.fixture(scope="module")
def example() -> Any:
    spec = importlib.util.spec_from_file_location("client", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_asks_everything(service: Running, example: Any) -> None:
    client = example.Client(f"http://127.0.0.1:{service.port}/", KEY)
    bundle = service.service.served.recommender
    account, items = bundle.dataset.accounts[3], bundle.dataset.items
    listed = [one["item"] for one in client.recommend(account, k=4, exclude_seen=True)["items"]]
    assert listed == [one.item_id for one in bundle.recommend(account, k=4, exclude_seen=True)]
    first, second = client.recommend_many([{"history": [items[0]]}, {"account": "nobody"}])
    assert (len(first["items"]), second["error"]["code"]) == (20, "unknown_account")
    answer, wanted = client.people(account, k=2), bundle.people(account, k=2)
    assert answer["count"] == wanted.count > 1
    assert [[one["item"] for one in person["next"]["items"]] for person in answer["people"]] == _next(wanted)
    assert len(client.similar(items[0], 3)["items"]) == 3


def test_the_client_reports_errors_of_the_service(service: Running, example: Any) -> None:
    client = example.Client(f"http://127.0.0.1:{service.port}", KEY)
    with pytest.raises(example.ServiceError, match=r"account 'a/b' is not known here\. \(404, unknown_account\)"):
        client.people("a/b")
    with pytest.raises(example.ServiceError, match="401, no_key"):
        example.Client(f"http://127.0.0.1:{service.port}").recommend("h000001")


def test_it_tries_again_when_the_service_is_busy(
    service: Running, example: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(example.time, "sleep", waits.append)
    monkeypatch.setattr(service.service.batcher, "_most_waiting", -1)
    monkeypatch.setattr(service.service.batcher, "waiting", 1)
    with pytest.raises(example.ServiceError, match="429, too_many_requests"):
        example.Client(f"http://127.0.0.1:{service.port}", KEY, tries=3).recommend("h000001")
    assert waits == [1.0, 2.0]


def test_it_runs(service: Running) -> None:
    words = [f"http://127.0.0.1:{service.port}", "--account", "h000003", "--people", "--key", KEY, "-k", "2"]
    done = subprocess.run([sys.executable, EXAMPLE, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    wanted = service.service.served.recommender.people("h000003", k=2)
    assert lines[0].startswith("1 ")
    assert lines[2] == f"{wanted.count} people, with a confidence of {wanted.confidence:.0%}"
    named = zip("ABCDE", wanted.people, _next(wanted), strict=False)
    assert lines[3:] == [f"{name} {person.share:.0%} {items}" for name, person, items in named]


def _next(found: AccountPeople) -> list[list[str]]:
    """The items of each person's list."""
    return [[one.item_id for one in person.next] for person in found.people]

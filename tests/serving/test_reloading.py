"""A new bundle takes over while requests come in; a bad one never does."""

import asyncio
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lightgc2n.recommending.forget_bundle import forget_in_bundle
from lightgc2n.recommending.load_bundle import load_bundle
from lightgc2n.serving import served_bundle
from lightgc2n.serving.served_bundle import fingerprint, load_served
from tests.export.town import bundle_of
from tests.recommending.test_bundle import assert_same, lists_from
from tests.serving.load import asking
from tests.serving.running import Reply, Running, running, wait_for

QUICK = 0.05  # seconds between looks at the path


@pytest.fixture
def link(tmp_path: Path) -> Path:
    link = tmp_path / "live"
    link.symlink_to(bundle_of("lightgc2n"))
    return link


def point(link: Path, bundle: Path) -> None:
    """Swaps the link as one should: at once."""
    new = link.with_name("new")
    new.symlink_to(bundle)
    os.replace(new, link)


@pytest.fixture
def service(link: Path) -> Iterator[Running]:
    with running(link, watch_seconds=QUICK) as actual:
        yield actual


class Noted:
    """What was logged since."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys, self._text = capsys, ""
        capsys.readouterr()

    def events(self, name: str) -> list[dict[str, Any]]:
        self._text += self._capsys.readouterr().err
        actual = (json.loads(line) for line in self._text.splitlines() if line.startswith("{"))
        return [one for one in actual if one["event"] == name]


def test_a_new_bundle_under_load(service: Running, link: Path) -> None:
    """Every answer is right for the bundle that it names, and none fails while bundles come and go."""
    places = {one: bundle_of(one) for one in ("lightgc2n", "sasrec")}
    loaded = {one: load_bundle(place) for one, place in places.items()}
    bodies: list[dict[str, Any]] = [{"account": f"h{number:06}", "k": 5} for number in range(0, 60, 7)]
    wanted = {(one, body["account"]): bundle.recommend(**body) for body in bodies for one, bundle in loaded.items()}
    names: dict[str, str] = {}

    def judge(body: dict[str, Any], reply: Reply) -> str:
        assert reply.status == 200, reply.body
        actual = reply.json
        name = names[actual["model"]]
        told = [{"item_id": one["item"], "score": one["score"], "rank": one["rank"]} for one in actual["items"]]
        given = {
            "account_id": actual["account"],
            "items": told,
            "fallback": actual["fallback"],
            "notes": actual["notes"],
        }
        assert_same(lists_from(given), wanted[name, body["account"]])
        return name

    names |= {bundle.dataset.checksum[:12]: one for one, bundle in loaded.items()}
    with asking(service.port, bodies, judge) as asked:
        for turn in range(4):
            before = asked.answers.total()
            name = ("sasrec", "lightgc2n")[turn % 2]
            point(link, places[name])
            wait_for(lambda name=name: service.service.served.recommender.name == name)
            wait_for(lambda before=before: asked.answers.total() > before + 20)
    assert (asked.wrong, asked.lost, asked.refused) == ([], [], [])
    assert set(asked.answers) == {"lightgc2n", "sasrec"}


def test_a_damaged_bundle_is_refused_and_the_old_one_stays(
    service: Running, link: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client, before = service.client(), service.service.served
    damaged = tmp_path / "damaged"
    shutil.copytree(bundle_of("sasrec"), damaged)
    graph = bytearray((damaged / "model.onnx").read_bytes())
    graph[len(graph) // 2] ^= 1
    (damaged / "model.onnx").write_bytes(graph)
    noted = Noted(capsys)
    point(link, damaged)
    wait_for(lambda: noted.events("bundle_refused"))
    assert client.recommend(account="h000001").json["model"] == before.checksum
    assert client.get("/readyz").status == 200
    assert 'lightgc2n_bundle_changes_total{outcome="refused"} 1.0' in client.get("/metrics").body.decode()
    (refused,) = noted.events("bundle_refused")
    assert "model.onnx" in refused["reason"]
    link.unlink()
    wait_for(lambda: len(noted.events("bundle_refused")) == 2)
    assert client.recommend(account="h000001").json["model"] == before.checksum
    link.symlink_to(bundle_of("sasrec"))
    wait_for(lambda: noted.events("bundle_taken"))
    assert client.get("/v1/model").json["model"] == "sasrec"
    without = Path(shutil.copytree(bundle_of("sasrec"), link.parent / "without"))
    shutil.rmtree(without / "server")
    point(link, without)
    wait_for(lambda: len(noted.events("bundle_taken")) == 2)
    told = [(event["level"], event["accounts"]) for event in noted.events("bundle_taken")]
    assert told == [("info", 60), ("warning", 0)]
    assert client.get("/device/config.json").body == (bundle_of("sasrec") / "config.json").read_bytes()


def test_a_forgotten_account_is_gone_soon(tmp_path: Path) -> None:
    """`forget` writes the folder anew, and every answer says that another bundle has made it."""
    shutil.copytree(bundle_of("lightgc2n"), tmp_path / "bundle")
    with running(tmp_path / "bundle", watch_seconds=QUICK) as service:
        client, checksum = service.client(), service.service.served.checksum
        assert client.recommend(account="h000005").status == 200
        forget_in_bundle(tmp_path / "bundle", ["h000005"])
        wait_for(lambda: client.recommend(account="h000005").status == 404)
        new = load_bundle(tmp_path / "bundle").dataset.checksum[:12]
        assert client.recommend(account="h000006").json["model"] == new != checksum
        assert client.get("/v1/model").json["checksum"] == new
        assert client.get("/v1/accounts").json["total"] == 59


def test_what_changes_with_the_bundle(link: Path, tmp_path: Path) -> None:
    first = fingerprint(link)
    assert fingerprint(link) == first
    point(link, bundle_of("sasrec"))
    assert fingerprint(link) != first
    shutil.copytree(bundle_of("sasrec"), tmp_path / "copy")
    point(link, tmp_path / "copy")
    second = fingerprint(link)
    (tmp_path / "copy" / "server" / "SHA256SUMS").write_text("")
    assert fingerprint(link) != second
    assert fingerprint(tmp_path / "nothing") == (str(tmp_path / "nothing"), None, None, None)


def config_with(bundle: Path, text: str, other: str) -> None:
    """Changes the text of config.json and gives the bundle right checksums again."""
    path = bundle / "config.json"
    assert text in path.read_text()
    path.write_text(path.read_text().replace(text, other))
    files = json.loads(path.read_text())["files"]
    lines = [
        f"{hashlib.sha256((bundle / name).read_bytes()).hexdigest()}  {name}\n" for name in sorted([*files, path.name])
    ]
    (bundle / "SHA256SUMS").write_text("".join(lines))
    shutil.rmtree(bundle / "server")


BAD = {
    "a width without end": ('"account_width": 16', '"account_width": 1e400'),
    "no model": ('"model": "lightgc2n"', '"mode": "lightgc2n"'),
    "no list of domains": ('"domains"', '"domain_list"'),
}


@pytest.mark.parametrize("change", BAD.values(), ids=BAD)
def test_the_watch_survives_bad_content(
    change: tuple[str, str], service: Running, link: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client, before, noted = service.client(), service.service.served, Noted(capsys)
    bad = Path(shutil.copytree(bundle_of("lightgc2n"), tmp_path / "bad"))
    config_with(bad, *change)
    point(link, bad)
    wait_for(lambda: client.get("/readyz").json == {"status": "ok", "reload": "failed"})
    assert client.recommend(account="h000001").json["model"] == before.checksum
    shown = client.get("/v1/model").json["reload"]
    assert str(bad / "config.json") in shown["reason"]
    assert "lightgc2n_bundle_stale 1.0" in client.get("/metrics").body.decode()
    point(link, bundle_of("sasrec"))
    wait_for(lambda: client.get("/v1/model").json["model"] == "sasrec")
    assert client.get("/readyz").json == {"status": "ok"}
    assert client.get("/v1/model").json["reload"] is None
    assert "lightgc2n_bundle_stale 0.0" in client.get("/metrics").body.decode()
    assert len(noted.events("bundle_refused")) == 1


class Failing:
    """Loads bundles, but fails as often as it is told to, each time with the next of its problems."""

    def __init__(self, *problems: Exception) -> None:
        self.problems, self.calls = [*problems], 0

    def __call__(self, path: Path, titles: Path | None) -> served_bundle.ServedBundle:
        self.calls += 1
        if self.problems:
            raise self.problems.pop(0)
        return load_served(path, titles)


def test_a_passing_fault_is_tried_again(
    service: Running, link: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing about the folder changes between the tries; an error of any kind is one that may pass."""
    noted, client = Noted(capsys), service.client()
    loads = Failing(MemoryError("no room"), MemoryError("no room"), ZeroDivisionError("odd"), MemoryError("no room"))
    monkeypatch.setattr(served_bundle, "load_served", loads)
    point(link, bundle_of("sasrec"))
    wait_for(lambda: client.get("/v1/model").json["model"] == "sasrec")
    reasons = [event["reason"] for event in noted.events("bundle_refused")]
    assert reasons == ["MemoryError: no room", "ZeroDivisionError: odd"]
    assert loads.calls == 5
    assert 'lightgc2n_bundle_changes_total{outcome="refused"} 2.0' in client.get("/metrics").body.decode()


def test_a_file_that_comes_late(
    service: Running, link: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lists of checksums are there first, and so is everything that used to be looked at."""
    monkeypatch.setattr(served_bundle, "LONGEST_PAUSE", 3600.0)
    monkeypatch.setattr(served_bundle, "MOST_DOUBLINGS", 20)
    noted, client = Noted(capsys), service.client()
    late = Path(shutil.copytree(bundle_of("sasrec"), tmp_path / "late"))
    (late / "weights.safetensors").rename(tmp_path / "weights")
    point(link, late)
    wait_for(lambda: noted.events("bundle_refused"))
    (tmp_path / "weights").rename(late / "weights.safetensors")
    wait_for(lambda: client.get("/v1/model").json["model"] == "sasrec")


def test_the_way_back_to_what_is_served(service: Running, link: Path, tmp_path: Path) -> None:
    """A link that points at the old bundle again is no fault, and nothing is loaded."""
    client, before = service.client(), service.service.served
    point(link, tmp_path)
    wait_for(lambda: client.get("/readyz").json.get("reload") == "failed")
    point(link, bundle_of("lightgc2n"))
    wait_for(lambda: client.get("/readyz").json == {"status": "ok"})
    assert service.service.served is before


def test_tries_come_less_and_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(served_bundle.time, "monotonic", lambda: now)
    link = tmp_path / "live"
    link.symlink_to(bundle_of("sasrec"))
    shelf = served_bundle.BundleWatcher(link, None, 1.0)
    point(link, tmp_path)
    tried = []

    async def look() -> None:
        nonlocal now
        with ThreadPoolExecutor(1) as lane:
            for _ in range(400):
                now += 1.0
                before = loads.calls
                try:
                    await shelf._look(lane)
                except Exception as problem:
                    shelf._refuse(problem)
                if loads.calls > before:
                    tried.append(now)

    loads = Failing(*(OSError("away") for _ in range(400)))
    monkeypatch.setattr(served_bundle, "load_served", loads)
    asyncio.run(look())
    pauses = [later - earlier for earlier, later in pairwise(tried)]
    assert pauses == [2.0, 4.0, 8.0, 16.0, 32.0, *(60.0,) * (len(pauses) - 5)]
    assert shelf.fault is not None
    assert shelf.fault.tries == len(tried)

"""A new bundle takes over while requests come in; a bad one never does."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lightgc2n.recommending.bundle import load_bundle
from lightgc2n.recommending.forgetting import forget_in_bundle
from lightgc2n.serving.bundles import stamp
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
    with running(link, watch_seconds=QUICK) as found:
        yield found


class Noted:
    """What was logged since."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys, self._text = capsys, ""
        capsys.readouterr()

    def events(self, name: str) -> list[dict[str, Any]]:
        self._text += self._capsys.readouterr().err
        found = (json.loads(line) for line in self._text.splitlines())
        return [one for one in found if one["event"] == name]


def test_a_new_bundle_under_load(service: Running, link: Path) -> None:
    """Every answer is right for the bundle that it names, and none fails while bundles come and go."""
    places = {one: bundle_of(one) for one in ("lightgc2n", "sasrec")}
    bundles = {one: load_bundle(place) for one, place in places.items()}
    bodies: list[dict[str, Any]] = [{"account": f"h{number:06}", "k": 5} for number in range(0, 60, 7)]
    wanted = {(one, body["account"]): bundle.recommend(**body) for body in bodies for one, bundle in bundles.items()}
    names: dict[str, str] = {}

    def judge(body: dict[str, Any], reply: Reply) -> str:
        assert reply.status == 200, reply.body
        found = reply.json
        name = names[found["model"]]
        told = [{"item_id": one["item"], "score": one["score"], "rank": one["rank"]} for one in found["items"]]
        given = {"account_id": found["account"], "items": told, "fallback": found["fallback"], "notes": found["notes"]}
        assert_same(lists_from(given), wanted[name, body["account"]])
        return name

    from lightgc2n.recommending.bundle_files import identity

    names |= {identity(place)[:12]: one for one, place in places.items()}
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
    """`forget` writes the folder anew; the device part, and with it the checksum, stays what it was."""
    shutil.copytree(bundle_of("lightgc2n"), tmp_path / "bundle")
    with running(tmp_path / "bundle", watch_seconds=QUICK) as service:
        client, checksum = service.client(), service.service.served.checksum
        assert client.recommend(account="h000005").status == 200
        forget_in_bundle(tmp_path / "bundle", "h000005")
        wait_for(lambda: client.recommend(account="h000005").status == 404)
        assert client.recommend(account="h000006").json["model"] == checksum
        assert client.get("/v1/accounts").json["total"] == 59


def test_what_changes_with_the_bundle(link: Path, tmp_path: Path) -> None:
    first = stamp(link)
    assert stamp(link) == first
    point(link, bundle_of("sasrec"))
    assert stamp(link) != first
    shutil.copytree(bundle_of("sasrec"), tmp_path / "copy")
    point(link, tmp_path / "copy")
    second = stamp(link)
    (tmp_path / "copy" / "server" / "SHA256SUMS").write_text("")
    assert stamp(link) != second
    assert stamp(tmp_path / "nothing") == (str(tmp_path / "nothing"), None, None, None)

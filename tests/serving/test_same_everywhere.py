"""One raw history and one known account get the same twenty items, whoever computes them.

Torch over the run says what is right. The same is asked of the bundle in Python, of the command, of the service, of
onnxruntime alone as docs/bundles.md describes it, and of Chromium, which has the bundle and the code from the service.
"""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnxruntime
import pytest
from safetensors.numpy import load_file

from lightgc2n.recommending.load_bundle import load_bundle
from lightgc2n.recommending.load_run import load_run as load
from lightgc2n.recommending.results import Recommendation, Recommendations
from tests.cli.test_commands import run
from tests.export.town import BY_TIME, COUNTED, EXPORTED, REFRESHED, bundle_of, run_of
from tests.recommending.test_bundle import assert_same, lists_from
from tests.recommending.test_recommender import log_of
from tests.serving.folders import NEEDS_CHROMIUM, NEEDS_RUNTIME, opened_page
from tests.serving.running import Running, running

ACCOUNT = "h000003"
HISTORY = 12

pytestmark = pytest.mark.parametrize(
    "model", [*EXPORTED, BY_TIME, REFRESHED, *COUNTED, "trending@time"], scope="module"
)


@pytest.fixture(scope="module")
def raw(model: str) -> list[str]:
    return log_of(load(run_of(model)), "h000007")[:HISTORY]


@pytest.fixture(scope="module")
def wanted(model: str, raw: list[str]) -> dict[str, Recommendations]:
    torch = load(run_of(model))
    return {"history": torch.recommend(history=raw), "account": torch.recommend(ACCOUNT)}


@pytest.fixture(scope="module")
def service(model: str) -> Iterator[Running]:
    with running(bundle_of(model)) as service:
        yield service


def listed(items: Any, account: str | None = None) -> Recommendations:
    return Recommendations(account, tuple(Recommendation(*one) for one in items))


def test_python(model: str, raw: list[str], wanted: dict[str, Recommendations]) -> None:
    bundle = load_bundle(bundle_of(model))
    assert_same(bundle.recommend(history=raw), wanted["history"])
    assert_same(bundle.recommend(ACCOUNT), wanted["account"])
    assert len(wanted["account"]) == 20


def test_the_command(model: str, raw: list[str], wanted: dict[str, Recommendations]) -> None:
    for name, words in (("history", ["--history", ",".join(raw)]), ("account", ["--account", ACCOUNT])):
        done = run("recommend", bundle_of(model), *words, "--json")
        assert_same(lists_from(json.loads(done.stdout)[0]), wanted[name])


def test_the_service(model: str, raw: list[str], wanted: dict[str, Recommendations], service: Running) -> None:
    client = service.client()
    for name, asked, account in (("history", {"history": raw}, None), ("account", {"account": ACCOUNT}, ACCOUNT)):
        items = client.recommend(**asked).json["items"]
        assert_same(listed([(one["item"], one["score"], one["rank"]) for one in items], account), wanted[name])


def test_onnxruntime_alone(model: str, raw: list[str], wanted: dict[str, Recommendations]) -> None:
    bundle = bundle_of(model)
    session = onnxruntime.InferenceSession(bundle / "model.onnx")
    items = (bundle / "items.txt").read_text().splitlines()
    accounts = (bundle / "server" / "accounts.txt").read_text().splitlines()
    popularity = load_file(bundle / "weights.safetensors")["popularity"]
    stored, place = load_file(bundle / "server" / "histories.safetensors"), accounts.index(ACCOUNT)
    vectors = bundle / "server" / "vectors.safetensors"
    start = load_file(vectors)["account"][[place]] if vectors.exists() else np.zeros((1, 0), dtype=np.float32)
    own = stored["events"][slice(*stored["offsets"][place : place + 2])]
    held = stored["held_items"][slice(*stored["held_offsets"][place : place + 2])] if "held_items" in stored else []
    none = np.full((1, 1), -1, dtype=np.int64)
    for name, history, account, beyond in (
        ("history", [items.index(item) for item in raw], np.zeros_like(start), none),
        ("account", own, start, np.array([held], dtype=np.int64) if len(held) else none),
    ):
        feed = {
            "history": np.array([history], dtype=np.int64),
            "handicap": np.where(popularity > 0, np.float32(0), np.float32(-np.inf))[None],
            "k": np.array([20]),
            "account": account,
            "held": beyond,
        }
        taken = {one.name: feed[one.name] for one in session.get_inputs()}
        scores, best = session.run(["best_scores", "best_items"], taken)
        rows = zip(best[0].tolist(), scores[0].tolist(), range(1, 21), strict=True)
        who = ACCOUNT if name == "account" else None
        assert_same(listed([(items[item], score, rank) for item, score, rank in rows], who), wanted[name])


ASK = """async (wishes) => {
  const ort = await import("/ort/ort.wasm.min.mjs");
  const { openBundle } = await import("/page/device/bundle.js");
  const { recommend } = await import("/page/device/recommend.js");
  const bundle = await openBundle("/device/", ort);
  const answers = [];
  for (const wish of wishes) answers.push(await recommend(bundle, wish));
  return answers;
}"""


@pytest.mark.browser
@NEEDS_CHROMIUM
@NEEDS_RUNTIME
def test_the_browser(model: str, raw: list[str], wanted: dict[str, Recommendations], service: Running) -> None:
    """What the server alone knows of the account, where it starts and what it holds, is brought along."""
    bundle = load_bundle(bundle_of(model))
    place, ids = bundle.dataset.accounts.index(ACCOUNT), bundle.dataset.items
    held = bundle.scorer.server.held_by(place)
    known = {
        "history": [ids[item] for item in bundle.prepare(ACCOUNT).events],
        "account": bundle.scorer.server.vectors_of([place])[0].tolist(),
        "held": [] if held is None else [ids[item] for item in held],
    }
    with opened_page(f"http://127.0.0.1:{service.port}/page/device/bundle.js") as page:
        actual = page.evaluate(ASK, [{"history": raw}, known])
    for name, answer, account in zip(("history", "account"), actual, (None, ACCOUNT), strict=True):
        items = [(one["item"], one["score"], one["rank"]) for one in answer["items"]]
        assert_same(listed(items, account), wanted[name])
    print(f"{model} in Chromium: {actual[1]['milliseconds']:.1f} ms")  # pytest -rP shows it

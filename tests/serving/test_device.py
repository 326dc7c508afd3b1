"""A bundle answers in Chromium as it does in Python: the same lists, under the policy that the service sends."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lightgc2n.recommending.load_bundle import load_bundle
from lightgc2n.recommending.recommender import Recommender
from lightgc2n.recommending.results import Recommendation, Recommendations
from tests.export.town import EXPORTED, bundle_of
from tests.recommending.test_bundle import assert_same, log_of_bundle
from tests.serving.folders import NEEDS_CHROMIUM, NEEDS_RUNTIME, PAGE, opened_page, served

pytestmark = [pytest.mark.browser, NEEDS_CHROMIUM, NEEDS_RUNTIME]

OPEN = """async (name) => {
  const ort = await import("/page/ort/ort.wasm.min.mjs");
  const { openBundle } = await import("/page/device/bundle.js");
  globalThis.bundle = await openBundle(`/${name}/`, ort);
  return bundle.config.model;
}"""
ASK = """async (wish) => {
  const { recommend } = await import("/page/device/recommend.js");
  return recommend(bundle, wish);
}"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {"page": PAGE}


@pytest.fixture(scope="module")
def page(folders: dict[str, Path]) -> Iterator[Any]:
    with served(folders) as address, opened_page(f"{address}/page/device/bundle.js") as page:
        yield page


def opened(page: Any, folders: dict[str, Path], model: str, int8: bool) -> Recommender:
    """The bundle, opened in the browser too."""
    name = f"{model}-{int8}"
    folders[name] = bundle_of(model, int8)
    assert page.evaluate(OPEN, name) == model
    return load_bundle(folders[name])


def asked(page: Any, **wish: Any) -> Recommendations:
    actual = page.evaluate(ASK, wish)
    items = tuple(Recommendation(one["item"], one["score"], one["rank"]) for one in actual["items"])
    assert actual["milliseconds"] >= 0  # a browser rounds its clock, so quick answers may take none
    return Recommendations(None, items, actual["fallback"], tuple(actual["notes"]))


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("model", EXPORTED)
def test_the_same_lists(model: str, int8: bool, page: Any, folders: dict[str, Path]) -> None:
    bundle = opened(page, folders, model, int8)
    items, log = list(bundle.dataset.items), log_of_bundle(bundle, 3)
    for history in (items[:5], log, [log[0]], log * 3):
        assert_same(asked(page, history=history, k=20), bundle.recommend(history=history, k=20))
    new = [items[place] for place, count in enumerate(bundle.scorer.popularity) if count == 0]
    for wish, words in (
        ({"exclude_seen": True}, {"excludeSeen": True}),
        ({"allow": [*items[:3], *new], "k": 50}, {"allow": [*items[:3], *new], "k": 50}),
        ({"deny": items[:900], "k": 7}, {"deny": items[:900], "k": 7}),
        ({"allow": log, "exclude_seen": True}, {"allow": log, "excludeSeen": True}),
    ):
        for history in (log, []):
            wanted = bundle.recommend(history=history, **wish)  # type: ignore[arg-type]
            assert_same(asked(page, history=history, **words), wanted)
    left_out = asked(page, history=["?", *log])
    assert [one.item_id for one in left_out] == [one.item_id for one in asked(page, history=log)]
    assert left_out.notes == ("left out of the history, because not in data: ?",)


def test_a_known_account_that_brings_what_the_server_knows_of_it(page: Any, folders: dict[str, Path]) -> None:
    bundle = opened(page, folders, "lightgc2n", int8=False)
    account, log = bundle.dataset.accounts[3], log_of_bundle(bundle, 3)
    start = bundle.scorer.server.vectors_of([3])[0].tolist()
    held = bundle.scorer.server.held_by(3)
    more = [bundle.dataset.items[item] for item in ([] if held is None else held)]
    actual, wanted = asked(page, history=log, account=start, held=more), bundle.recommend(account)
    assert_same(Recommendations(account, actual.items), wanted)
    assert actual.items != asked(page, history=log).items, "or the account would not matter"


def test_a_damaged_or_foreign_bundle_is_refused(page: Any, folders: dict[str, Path], tmp_path: Path) -> None:
    import shutil

    shutil.copytree(bundle_of("sasrec"), tmp_path / "bundle")
    folders["broken"] = tmp_path / "bundle"
    weights, config = tmp_path / "bundle" / "weights.safetensors", tmp_path / "bundle" / "config.json"
    whole, said = bytearray(weights.read_bytes()), config.read_text()
    whole[-5] ^= 1
    weights.write_bytes(whole)
    for text, message in (
        (said, "weights.safetensors: its checksum differs from SHA256SUMS"),
        (said.replace('"schema": 3', '"schema": 9'), "A bundle of schema 9; this page reads 2 and 3"),
        ('{"format": "other"}', "This is not a bundle of lightgc2n"),
    ):
        config.write_text(text)
        refused = page.evaluate(f"() => ({OPEN})('broken').then(() => 'opened', (problem) => problem.message)")
        assert message in refused

"""People are counted and told apart in JavaScript as in numpy, over generated households."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from lightgc2n.data.dataset import load_dataset
from lightgc2n.data.splits import SplitConfig, split_dataset
from lightgc2n.export.onnx_builder import as_bytes
from lightgc2n.export.write_bundle import write_people
from lightgc2n.people import assigning, count_people, count_training, habits, pair_evidence, session_features
from lightgc2n.people.count_people import OF_EVIDENCE, CountHead
from lightgc2n.people.finder import People, PeopleFinder
from lightgc2n.people.sessions import Logs, newest_sessions
from lightgc2n.recommending.bundle_files import FINDER, FINDER_FACTS, BundleFiles
from lightgc2n.recommending.load_bundle import finder_constants, read_finder
from lightgc2n.recommending.people_report import by_weight
from lightgc2n.synthetic.households import HouseholdConfig, generate
from tests.serving.folders import NEEDS_CHROMIUM, PAGE, opened_page, served

pytestmark = [pytest.mark.browser, NEEDS_CHROMIUM]

FIND = """async ([name, histories]) => {
  const { readArrays } = await import("/page/device/safetensors.js");
  const { readFinder } = await import("/page/device/finder.js");
  const { byWeight, findPeople } = await import("/page/device/people.js");
  const facts = await (await fetch(`/${name}/people/finder.json`)).json();
  const arrays = readArrays(await (await fetch(`/${name}/people/finder.safetensors`)).arrayBuffer());
  const finder = readFinder(facts, arrays);
  return histories.map(([items, times]) => byWeight(findPeople(finder, items, times)));
}"""
History = tuple[Any, Any]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Logs:
    folder = tmp_path_factory.mktemp("homes") / "data"
    generate(HouseholdConfig(accounts=120), seed=1, out=folder)
    return Logs.of_training(split_dataset(load_dataset(folder), SplitConfig()).train)


@pytest.fixture(scope="module")
def folders() -> dict[str, Path]:
    return {"page": PAGE}


@pytest.fixture(scope="module")
def page(folders: dict[str, Path]) -> Iterator[Any]:
    with served(folders) as address, opened_page(f"{address}/page/device/people.js") as page:
        yield page


def histories(logs: Logs) -> list[History]:
    """Of every second account; one event; and one that has more sessions than people are looked for in."""
    bounds = zip(logs.offsets[:-1:2], logs.offsets[1::2], strict=True)
    found = [(logs.items[start:stop], None if logs.times is None else logs.times[start:stop]) for start, stop in bounds]
    long = np.tile(logs.items[:90], 6), None if logs.times is None else np.arange(540) * 40_000_000_000
    return [*found, tuple(part[:1] if part is not None else None for part in found[0]), long]  # type: ignore[list-item]


def as_lists(history: History) -> list[Any]:
    return [None if part is None else part.tolist() for part in history]


def assert_twins(found: dict[str, Any], wanted: People) -> None:
    assert found["count"] == wanted.count
    assert found["session"] == wanted.session.tolist()
    np.testing.assert_allclose(found["confidence"], wanted.confidence, atol=1e-6)
    np.testing.assert_allclose(found["chances"], wanted.chances, atol=1e-6)
    np.testing.assert_allclose(found["share"], wanted.share, atol=1e-6)


@pytest.fixture(scope="module")
def learned(logs: Logs) -> dict[bool, PeopleFinder]:
    """With times and without; the count is learned from few merges, since how well is not the question."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(count_training, "MERGES", 100)
        patch.setattr(count_training, "TRIALS", 30)
        shown = {True: logs, False: replace(logs, times=None)}
        return {timed: PeopleFinder.learn(some, np.random.default_rng(0)) for timed, some in shown.items()}


def fewer_features(head: CountHead) -> dict[str, Any]:
    """Of a count that was learned from the evidence alone, as by earlier versions."""
    features = len(head.centre)
    kept = np.r_[: 1 + OF_EVIDENCE, 1 + features : 1 + features + OF_EVIDENCE]
    centre, spread = head.centre[:OF_EVIDENCE], head.spread[:OF_EVIDENCE]
    return {"count.centre": centre, "count.spread": spread, "count.weights": head.weights[kept]}


@pytest.mark.parametrize("form", ["floats", "four bits", "bytes of schema 2"])
@pytest.mark.parametrize("timed", [True, False])
def test_people_are_the_same(
    timed: bool,
    form: str,
    logs: Logs,
    learned: dict[bool, PeopleFinder],
    page: Any,
    folders: dict[str, Path],
    tmp_path: Path,
) -> None:
    write_people(tmp_path, learned[timed], int8=form != "floats")
    if form == "bytes of schema 2":
        rounded, scales = as_bytes(learned[timed].learned.tables.vectors[0])
        older = {"tables.vectors": rounded[None], "tables.scales": scales[None].astype(np.float32)}
        stored = {name: one for name, one in load_file(tmp_path / FINDER).items() if not name.startswith("habits.")}
        save_file(stored | older | fewer_features(learned[timed].head), tmp_path / FINDER)
    schema = 2 if form == "bytes of schema 2" else 3
    config = {"items": learned[timed].catalogue, "schema": schema, "int8": form != "floats"}
    files = BundleFiles(tmp_path, config, frozenset({FINDER, FINDER_FACTS}), frozenset(), "", 0, {})
    finder = read_finder(files, accounts=0)
    assert finder is not None
    asked = histories(logs if timed else replace(logs, times=None))
    folders["finder"] = tmp_path
    found = page.evaluate(FIND, ["finder", [as_lists(history) for history in asked]])
    wanted = [by_weight(finder.find(*history)) for history in asked]
    for one, other in zip(found, wanted, strict=True):
        assert_twins(one, other)
    assert len({one.count for one in wanted}) > 1, "all the same would say little"
    assert max(len(set(one.session.tolist())) for one in wanted) > 400


def test_constants_come_from_the_bundle(
    logs: Logs,
    learned: dict[bool, PeopleFinder],
    page: Any,
    folders: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With other constants in Python, written into the bundle, the browser finds what Python then finds."""
    finder, some = learned[True], histories(logs)[:12]
    before = [finder.find(*history).share for history in some]
    others = {"FIT_WEIGHT": 1.5, "SUM_WEIGHT": 0.3, "DOUBT": 0.4, "STEPS": 3, "CENTRE_STEPS": 2}
    for name, value in others.items():
        monkeypatch.setattr(assigning, name, value)
    monkeypatch.setattr(pair_evidence, "FARTHEST", 2)
    monkeypatch.setattr(pair_evidence, "LEAST_RATIO", 0.3)
    monkeypatch.setattr(count_people, "FARTHEST", 1)
    monkeypatch.setattr(session_features, "HALF_AN_HOUR", 0.5)
    monkeypatch.setattr(habits, "TASTE", 0.5)
    monkeypatch.setattr(habits, "WEEKDAYS", 3.0)
    write_people(tmp_path, finder, int8=False)
    folders["others"] = tmp_path
    found = page.evaluate(FIND, ["others", [as_lists(history) for history in some]])
    wanted = [by_weight(finder.find(*history)) for history in some]
    for one, other in zip(found, wanted, strict=True):
        assert_twins(one, other)
    pairs = zip(before, wanted, strict=True)
    assert any(one.shape != new.share.shape or abs(one - new.share).max() > 0.01 for one, new in pairs)


def test_of_a_long_history_the_same_part_is_analysed(page: Any, learned: dict[bool, PeopleFinder]) -> None:
    """310 sessions of two events: the browser leaves out what the service leaves out."""
    cut = """async ([gap, constants, histories]) => {
      const { analysed } = await import("/page/device/people.js");
      return histories.map(([items, times]) => analysed({ gap, constants, catalogue: 1000 }, items, times));
    }"""
    items, times = np.arange(620), np.repeat(np.arange(310), 2) * 40_000_000_000
    for timed in (True, False):
        finder = learned[timed]
        asked = [(items[:few] % 90, times[:few] if timed else None) for few in (1, 100, 300, 601, 620)]
        constants = finder_constants() | {"analysed_sessions": 300}
        found = page.evaluate(cut, [finder.gap, constants, [as_lists(history) for history in asked]])
        for one, history in zip(found, asked, strict=True):
            newest = newest_sessions(finder.sessions_of(*history), 300)
            assert one["items"] == history[0][newest].tolist()
            assert one["times"] == (history[1][newest].tolist() if timed else None)
        assert len(found[-1]["items"]) == (600 if timed else 300)


def test_times_are_read_alike(page: Any) -> None:
    from lightgc2n.recommending.queries import read_times

    written = ["2024-05-01 09:00", "2024-05-01T09:00:00.000001", "1969-12-31", "2024-02-29T23:59:59Z"]
    written += ["2024-05-01T11:00:00+02:00", "2024-05-01 11:00-0530"]
    read = "async (times) => times.map((await import('/page/device/times.js')).microseconds)"
    assert page.evaluate(read, written) == read_times(written).tolist()
    with pytest.raises(Exception, match="expected an ISO date"):
        page.evaluate(read, ["yesterday"])

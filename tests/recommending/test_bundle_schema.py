"""Bundles with right checksums and wrong content: each is refused by name, or it is loaded and answers."""

import hashlib
import json
import math
import re
import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from pydantic_core import to_json
from safetensors.numpy import load_file, save

from lightgc2n.errors import DataError
from lightgc2n.people.session_features import describe, pair_features
from lightgc2n.people.sessions import Logs
from lightgc2n.recommending import bundle_parts
from lightgc2n.recommending.bundle_schema import finder_tables
from lightgc2n.recommending.load_bundle import load_bundle
from lightgc2n.recommending.recommender import Recommender
from tests.export.town import bundle_of

GONE = object()
DEEP: Any = [[[]]]
for _ in range(200):
    DEEP = [DEEP]
VALUES: tuple[Any, ...] = (
    *(GONE, None, True, "", "text", "\ud800", "x" * 2000, -1, 0, 1, 7, 2**31, 10**30, 10**400, 1.5, -0.5),
    *(math.inf, -math.inf, math.nan, [], [1], ["\ud800"], {}, {"a": math.inf}, DEEP),
)
SHOWN = ("settings", "metrics", "split", "versions")  # of these one field each is enough


class Victim:
    """A bundle that is changed, sealed with right checksums, tried, and made whole again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.whole = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        self.refused = self.served = 0

    def seal(self) -> None:
        for part in ("", "server/"):
            sums = self.folder / f"{part}SHA256SUMS"
            names = [line[66:] for line in self.whole[sums].decode().splitlines()]
            sums.write_text("".join(f"{_digest(self.folder / part / name)}  {name}\n" for name in names))
            server = self.folder / "server" / "server.json"
            if not part and server.read_bytes() == self.whole[server]:
                facts = json.loads(self.whole[server]) | {"device": _digest(sums)}
                server.write_text(json.dumps(facts))

    def judge(self, path: Path, field: str, content: bytes) -> None:
        """Refused with the names of file and field, or loaded and asked; anything else fails the test.

        Two files that do not fit each other are both wrong: then the field of the other may be named.
        """
        reason = self.reason(path, content)
        if reason is None:
            self.served += 1
            return
        self.refused += 1
        assert "\n" not in reason
        assert reason.startswith(f"{self.folder}"), f"{path}, {field}: {reason}"
        if str(path) in reason:  # where two of its fields do not fit each other, the other one may be named
            other = re.search(rf"{re.escape(str(path))}: \S+: expected", reason)
            assert field in reason or other or "finite chances" in reason, f"{path}, {field}: {reason}"

    def reason(self, path: Path, content: bytes) -> str | None:
        """Why the bundle is refused with another content of a file, if it is."""
        try:
            path.write_bytes(content)
            self.seal()
            bundle = load_bundle(self.folder)
        except DataError as problem:
            return str(problem)
        else:
            answer_all(bundle)
            return None
        finally:
            for one, data in self.whole.items():
                one.write_bytes(data)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def answer_all(bundle: Recommender) -> None:
    """Asks for all kinds of answers; every number must be finite, and all of it must be writable as JSON."""
    ids = bundle.dataset.items
    found: list[Any] = [bundle.recommend(history=[ids[0], ids[-1]], k=3), bundle.similar(ids[1], k=3)]
    for account in bundle.dataset.accounts[:3]:
        found.append(bundle.recommend(account, k=3, exclude_seen=True))
        if bundle.finds_people:
            found.append(bundle.people(account, k=3))
    if bundle.source.config["latent_users"]:
        found.append(bundle.ownership(history=[ids[0], ids[-1]]).weights)
    shown = {name: bundle.source.config.get(name) for name in SHOWN}
    json.loads(to_json([found, shown, bundle.name, bundle.source.card]), parse_constant=pytest.fail)


@pytest.fixture(params=["lightgc2n", "lightgc2n-plus", "lightgc2n-plus-int8"])
def victim(request: pytest.FixtureRequest, tmp_path: Path) -> Victim:
    name = request.param.removesuffix("-int8")
    whole = bundle_of(name, int8=name != request.param)
    return Victim(Path(shutil.copytree(whole, tmp_path / "bundle")))


def fields_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values of a JSON object, outer ones first."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for number, (name, below) in enumerate(inner):
        yield (*path, name)
        if not (path and path[0] in SHOWN and number) and path[:1] != ("files",):
            yield from fields_of(below, (*path, name))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy with another value at a place."""
    copy = value.copy()
    if len(path) > 1:
        copy[path[0]] = changed(value[path[0]], path[1:], new)
    elif new is GONE:
        del copy[path[0]]
    else:
        copy[path[0]] = new
    return copy


def check_fields(name: str, victim: Victim, every: int) -> None:
    """Changes each field to each of the values, or to every second, third ... of them."""
    path = victim.folder / name
    facts = json.loads(path.read_text())
    places = [place for place in fields_of(facts) if place not in (("format",), ("schema",))]
    for place, value in list(product(places, VALUES))[::every]:
        text = json.dumps(changed(facts, place, value))
        victim.judge(path, str(place[0]), text.encode())
    assert victim.refused > 5 * len(places) / every
    assert victim.served or name == "server/server.json"  # every field of that one is needed as it is


JSON_FILES = ("config.json", "server/server.json", "people/finder.json")


@pytest.mark.parametrize("name", JSON_FILES)
@pytest.mark.parametrize("victim", ["lightgc2n"], indirect=True)
def test_fields_of_every_json_file(name: str, victim: Victim) -> None:
    check_fields(name, victim, every=9 if name == "config.json" else 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", JSON_FILES)
def test_every_field_of_every_json_file(name: str, victim: Victim) -> None:
    check_fields(name, victim, every=1)


BROKEN_TEXT = (b"", b"\xff\n", b"a\n", b"a\nb", b"a\na\n", b"\x00", b"[" * 5000)


@pytest.mark.parametrize("name", ["items.txt", "server/accounts.txt", "README.md", "config.json", "people/finder.json"])
@pytest.mark.parametrize("victim", ["lightgc2n"], indirect=True)
def test_every_text(name: str, victim: Victim) -> None:
    path = victim.folder / name
    for data in BROKEN_TEXT:
        victim.judge(path, "", data)
    assert victim.refused + victim.served == len(BROKEN_TEXT)


def with_last(array: np.ndarray, value: Any) -> np.ndarray:
    copy = array.copy()
    copy.flat[-1] = value
    return copy


def tables_like(array: np.ndarray) -> Iterator[np.ndarray]:
    """The same table with other types, shapes and numbers."""
    with np.errstate(all="ignore"):
        yield array.astype(np.float16 if array.dtype != np.float16 else np.int16)
        yield array.astype(np.int64 if array.dtype != np.int64 else np.int16)
    yield array[:-1]
    yield array[:0]
    yield np.concatenate([array, array[-1:]])
    yield array[None]
    yield array.reshape(-1)
    yield array.sum()[None].astype(array.dtype)
    if array.dtype.kind == "f":
        yield from (with_last(array, value) for value in (np.nan, np.inf, -np.inf, 6e4, -6e4, 0, -1))
        yield from (np.full_like(array, value) for value in (np.nan, 0, 6e4))
    else:
        bounds = np.iinfo(array.dtype)
        yield from (with_last(array, value) for value in (bounds.min, bounds.max))
        yield from (np.full_like(array, value) for value in (bounds.min, bounds.max))
        yield array[::-1]


NAMES = (
    *("weights.safetensors", "people/finder.safetensors", "server/histories.safetensors"),
    *("server/vectors.safetensors", "server/people.safetensors"),
)


def check_tables(name: str, victim: Victim, every: int) -> None:
    """Changes each table in each of the ways, or in every second, third ... of them."""
    path = victim.folder / name
    if not path.exists():
        pytest.skip("this model has no such file")
    arrays, size, changes = load_file(path), path.stat().st_size, []
    for key, array in arrays.items():
        without = {one: other for one, other in arrays.items() if one != key}
        others = ({**arrays, key: np.ascontiguousarray(other)} for other in tables_like(array))
        changes += [(key, change) for change in (without, without | {f"{key}x": array}, *others)]
    for key, change in changes[::every]:
        data = save(change)
        # The graph has the places of its weights by numbers: only a file with the same places can be meant.
        if name != "weights.safetensors" or len(data) == size or key in ("popularity", "head", "items"):
            victim.judge(path, key.split(".")[0], data)
    assert victim.refused > 3 * len(arrays) / every


@pytest.mark.parametrize("name", NAMES)
def test_tables_of_every_safetensors_file(name: str, victim: Victim) -> None:
    check_tables(name, victim, every=11)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_table_of_every_safetensors_file(name: str, victim: Victim) -> None:
    check_tables(name, victim, every=1)


def test_every_input_and_output_of_the_graph(victim: Victim) -> None:
    path = victim.folder / "model.onnx"
    for kind in ("input", "output"):
        for number in range(len(getattr(onnx.load(path, load_external_data=False).graph, kind))):
            for change in (renamed, of_another_type, with_fixed_axis, with_another_axis, left_out):
                graph = onnx.load(path, load_external_data=False)
                change(graph.graph, getattr(graph.graph, kind)[number])
                victim.judge(path, "", graph.SerializeToString())
    for text in (b"", b"nothing", victim.whole[path][:-9]):
        victim.judge(path, "", text)
    assert victim.refused > 20


def renamed(graph: Any, value: Any) -> None:
    old = value.name
    value.name = "other"
    for node in graph.node:
        for names in (node.input, node.output):
            for place, name in enumerate(names):
                names[place] = "other" if name == old else name


def of_another_type(_graph: Any, value: Any) -> None:
    value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE


def with_fixed_axis(_graph: Any, value: Any) -> None:
    value.type.tensor_type.shape.dim[0].dim_value = 5


def with_another_axis(_graph: Any, value: Any) -> None:
    value.type.tensor_type.shape.dim.add().dim_value = 3


def left_out(graph: Any, value: Any) -> None:
    for values in (graph.input, graph.output):
        if value in values:
            values.remove(value)


@pytest.mark.parametrize("timed", [True, False])
def test_how_many_numbers_describe_a_pair(timed: bool) -> None:
    """The schema says in numbers what `describing` computes."""
    bundle = load_bundle(bundle_of("sasrec"))
    learned = bundle.finder.learned
    times = np.array([0, 10**12]) if timed else None
    none = np.zeros((4000, 0), dtype=np.float32)
    logs = Logs(np.array([0, 2]), np.array([1, 2], dtype=np.int32), times, none, 0 if timed else None)
    sessions = describe(logs, learned.tables, np.zeros(1, dtype=np.int64))
    assert (sessions.traits.shape[1],) == finder_tables(timed)["traits.centre"].shape
    pairs = pair_features(sessions, np.array([0]), np.array([1]))
    assert (pairs.shape[1],) == finder_tables(timed)["contrast.centre"].shape


@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_large_tables_are_checked_in_parts(victim: Victim, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last number, whatever is left for the last part."""
    monkeypatch.setattr(bundle_parts, "NUMBERS_AT_ONCE", at_once)
    load_bundle(victim.folder)
    path = victim.folder / "weights.safetensors"
    arrays = load_file(path)
    for key in ("bias", "followers.columns", "followers.bytes"):
        if key in arrays:
            worst = with_last(arrays[key], np.nan if arrays[key].dtype.kind == "f" else np.iinfo(arrays[key].dtype).max)
            assert f"weights.safetensors: {key}" in (victim.reason(path, save({**arrays, key: worst})) or "")
    path = victim.folder / "server" / "histories.safetensors"
    histories = load_file(path)
    late = with_last(histories["times"], histories["times"].min() - 1)
    reason = victim.reason(path, save({**histories, "times": late}))
    assert f"{path}: times: expected oldest first" in (reason or "")

"""Tables as bytes, by hand: what a row becomes, what is gathered and what a product of bytes is worth."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from lightgc2n.export.blend_graph import Pairs, coded, room_in_bytes
from lightgc2n.export.onnx_builder import FLOAT, INT64, Graph, Tables, Value, as_bytes, concat
from lightgc2n.export.write_bundle import write_weights


def computed(graph: Graph, result: Value, folder: Path, feed: dict[str, Any], axes: str = "BM") -> Any:
    graph.output("result", result, FLOAT, axes)
    write_weights(folder, graph, {})
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    return session.run(["result"], feed)[0]


def test_bytes_by_hand() -> None:
    """The largest of a row is 127 steps from the middle, 128; a row of zeros stays zeros."""
    rounded, scales = as_bytes(np.array([[127.0, -63.5, 0.0], [0.0, 0.0, 0.0], [-2.54, 0.02, 1.27]]))
    assert rounded.tolist() == [[255, 64, 128], [128, 128, 128], [1, 129, 191]]  # -63.5 rounds to the even -64
    assert scales.dtype == np.float16
    assert scales[0] == 1.0
    assert 0.02 < float(scales[2]) < 0.02 * (1 + 2**-10), "up to the next half: 1.27 is 63.49 steps"


@pytest.mark.parametrize(
    ("largest", "kind"),
    [(1e-9, np.float32), (5e-3, np.float32), (8e-3, np.float16), (8e6, np.float16), (9e6, np.float32)],
)
def test_scales_are_halves_where_these_reach(largest: float, kind: type) -> None:
    """Halves end at 65,504, which is 8.3e6 of 127 steps; below 6.1e-5 they have fewer digits."""
    table = np.array([[largest, -largest / 3], [1e-12, 0.0], [largest / 1e4, 0.0], [0.0, 0.0]], dtype=np.float32)
    rounded, scales = as_bytes(table)
    assert scales.dtype == kind
    found = (rounded.astype(np.float64) - 128) * scales[:, None].astype(np.float64)
    np.testing.assert_allclose(found, table, atol=largest / 127 * 0.51, rtol=0)
    assert (rounded[3] == 128).all(), "zeros stay zeros"
    assert rounded.min() >= 1, "nothing is more than 127 steps from the middle"


def test_maps_are_halves_where_these_reach() -> None:
    graph = Graph()
    for name, number in (("one", 1.0), ("nothing", 0.0), ("large", 1e5), ("small", 1e-6)):
        Tables(graph, True).numbers(name, np.array([[number, 0.0]]))
    kinds = {name: array.dtype.name for name, array in graph.weights.items()}
    assert kinds == {"one": "float16", "nothing": "float16", "large": "float32", "small": "float32"}
    Tables(graph, False).numbers("as it is", np.array([1.0]))
    assert graph.weights["as it is"].dtype == np.float32


def test_halves_become_floats_when_a_graph_is_loaded(tmp_path: Path) -> None:
    """No request pays for it: of the graph that runs no node reads numbers alone."""
    graph = Graph()
    tables, given = Tables(graph, True), graph.input("vectors", FLOAT, ["B", 4])
    mapped = given @ tables.numbers("map", np.eye(4))
    product = tables.item_table("items", np.eye(5, 4)).products(mapped, tables.numbers("bias", np.ones(5)))
    graph.output("result", product, FLOAT, "BM")
    write_weights(tmp_path, graph, {})
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(tmp_path / "loaded.onnx"), 3
    onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), options, providers=["CPUExecutionProvider"])
    loaded = onnx.load(tmp_path / "loaded.onnx").graph
    numbers = {one.name for one in loaded.initializer}
    assert not [node for node in loaded.node if numbers.issuperset(node.input)]
    assert not [one.name for one in loaded.initializer if one.data_type == onnx.TensorProto.FLOAT16]


@pytest.mark.parametrize(("int8", "near"), [(False, 1e-6), (True, 0.03)])
def test_rows_and_products(int8: bool, near: float, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    table, bias = random.normal(size=(50, 8)).astype(np.float32), random.normal(size=50).astype(np.float32)
    vectors, index = random.normal(size=(3, 8)).astype(np.float32), np.array([[7, 0], [49, 7]])
    graph = Graph()
    items = Tables(graph, int8).item_table("items", table)
    (tmp_path / "rows").mkdir()
    rows = computed(
        graph, items.gather(graph.input("index", INT64, ["B", "T"])), tmp_path / "rows", {"index": index}, "BTD"
    )
    np.testing.assert_allclose(rows, table[index], atol=near)
    graph = Graph()
    tables = Tables(graph, int8)
    given = graph.input("vectors", FLOAT, ["B", 8])
    product = tables.item_table("items", table).products(given, tables.numbers("bias", bias))
    found = computed(graph, product, tmp_path, {"vectors": vectors})
    np.testing.assert_allclose(found, vectors @ table.T + bias, atol=near * 3)
    assert graph.weights["items"].nbytes == (400 if int8 else 1600)


def test_a_product_of_bytes_is_that_of_the_rounded_numbers(tmp_path: Path) -> None:
    """Large numbers side by side, whose products overflow 16 bits: signed bytes would go wrong on some processors."""
    table, vectors = np.full((2, 8), 127.0), np.full((1, 8), 127.0, dtype=np.float32)
    table[1] *= -1
    graph = Graph()
    product = Tables(graph, True).item_table("items", table).products(
        graph.input("vectors", FLOAT, ["B", 8]), graph.constant(np.zeros(2, dtype=np.float32))
    )  # fmt: skip
    assert computed(graph, product, tmp_path, {"vectors": vectors}).tolist() == [[8 * 127.0**2, -8 * 127.0**2]]


def test_few_counts_are_kept_as_they_are_and_many_nearly() -> None:
    codes, values = coded(np.array([3.0, 1.0, 70.0, 1.0]), 3)
    assert values.tolist() == [1.0, 3.0, 70.0]
    assert codes.tolist() == [1, 0, 2, 0]
    counts = np.arange(1.0, 5000.0)
    for many in (16, 256):
        codes, values = coded(counts, many)
        assert len(values) <= many
        assert np.abs(np.log(values[codes] / counts)).max() < 0.5 * np.log(5000) / (many - 1) + 1e-4


def test_followers_side_by_side() -> None:
    """Item 0 has two followers, item 1 none, item 2 one."""
    columns, counts = np.array([[5, 3, 0], [0, 0, 0], [1, 0, 0]]), np.array([[4.0, 2, 0], [0, 0, 0], [9.0, 0, 0]])
    pairs = Pairs(columns, counts)
    assert (pairs.kept.tolist(), pairs.most) == ([0, 2, 0, 1], 2)
    assert (pairs.columns.tolist(), pairs.counts.tolist()) == ([5, 3, 1], [4.0, 2.0, 9.0])
    nothing = Pairs(np.zeros((3, 2), dtype=np.int32), np.zeros((3, 2)))
    assert (nothing.kept.tolist(), nothing.columns.tolist(), nothing.counts.tolist()) == ([0, 0, 0, 0], [0], [0.0])


@pytest.mark.parametrize(
    ("items", "room"),
    [
        (1, (2**8, 1, 256)),
        (256, (2**8, 1, 256)),
        (257, (2**8, 2, 128)),
        (3226, (2**8, 16, 16)),
        (4096, (2**8, 16, 16)),
        (4097, (2**16, 1, 256)),
        (126_547, (2**16, 2, 128)),
        (2**20, (2**16, 16, 16)),
        (2**20 + 1, (2**32, 1, 256)),
    ],
)
def test_followers_in_few_bytes(items: int, room: tuple[int, int, int], tmp_path: Path) -> None:
    """The last item among the first and the last, however many bits it needs."""
    assert room_in_bytes(items) == room
    columns, counts = np.zeros((items, 2), dtype=np.int32), np.zeros((items, 2), dtype=np.float32)
    columns[-1], counts[-1] = [items - 1, items // 2], [7, 3]
    columns[0, 0], counts[0, 0] = items // 3, 7
    pairs, graph = Pairs(columns, counts), Graph()
    followers, times = pairs.packed_in(graph, graph.input("place", INT64, ["P"]))
    both = concat([followers.cast(FLOAT).unsqueeze(0), times.unsqueeze(0)], 0)
    found = computed(graph, both, tmp_path, {"place": np.arange(len(pairs.columns))}, "XP")
    assert found.tolist() == [pairs.columns.tolist(), pairs.counts.tolist()]
    assert graph.weights["followers.bytes"].dtype == np.uint8
    assert graph.weights["followers.lower"].itemsize == {2**8: 1, 2**16: 2, 2**32: 4}[room[0]]


def test_fractions_have_more_codes_than_whole_counts(tmp_path: Path) -> None:
    """4,000 items leave 16 codes beside a byte: enough for whole counts, too few for shares of steps."""
    counts = np.zeros((4000, 64), dtype=np.float32)
    counts[0] = 1 / np.arange(1, 65)
    columns = np.tile(np.arange(64, dtype=np.int32), (4000, 1))
    pairs, graph = Pairs(columns, counts), Graph()
    _, times = pairs.packed_in(graph, graph.input("place", INT64, ["P"]))
    found = computed(graph, times.unsqueeze(0), tmp_path, {"place": np.arange(len(pairs.columns))}, "XP")[0]
    assert room_in_bytes(4000)[2] == 16
    assert found.tolist() == pairs.counts.tolist()

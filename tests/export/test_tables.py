"""Tables as bytes, by hand: what a row becomes, what is gathered and what a product of bytes is worth."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from lightgc2n.export.exporting import write_weights
from lightgc2n.export.graph import FLOAT, INT64, Graph, Value
from lightgc2n.export.plus_bonuses import Pairs, coded
from lightgc2n.export.tables import Tables, as_bytes


def computed(graph: Graph, result: Value, folder: Path, feed: dict[str, Any], axes: str = "BM") -> Any:
    graph.output("result", result, FLOAT, axes)
    write_weights(folder, graph, {})
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    return session.run(["result"], feed)[0]


def test_bytes_by_hand() -> None:
    """The largest of a row is 127 steps from the middle, 128; a row of zeros stays zeros."""
    rounded, scales = as_bytes(np.array([[127.0, -63.5, 0.0], [0.0, 0.0, 0.0], [-2.54, 0.02, 1.27]]))
    assert rounded.tolist() == [[255, 64, 128], [128, 128, 128], [1, 129, 192]]  # -63.5 rounds to the even -64
    assert scales[[0, 2]] == pytest.approx([1.0, 0.02])


@pytest.mark.parametrize(("int8", "near"), [(False, 1e-6), (True, 0.03)])
def test_rows_and_products(int8: bool, near: float, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    table, bias = random.normal(size=(50, 8)).astype(np.float32), random.normal(size=50).astype(np.float32)
    vectors, index = random.normal(size=(3, 8)).astype(np.float32), np.array([[7, 0], [49, 7]])
    graph = Graph()
    items = Tables(graph, int8).of_items("items", table)
    (tmp_path / "rows").mkdir()
    rows = computed(
        graph, items.rows(graph.input("index", INT64, ["B", "T"])), tmp_path / "rows", {"index": index}, "BTD"
    )
    np.testing.assert_allclose(rows, table[index], atol=near)
    graph = Graph()
    tables = Tables(graph, int8)
    given = graph.input("vectors", FLOAT, ["B", 8])
    product = tables.of_items("items", table).products(given, tables.column("bias", bias).whole())
    found = computed(graph, product, tmp_path, {"vectors": vectors})
    np.testing.assert_allclose(found, vectors @ table.T + bias, atol=near * 3)
    assert graph.weights["items"].nbytes == (400 if int8 else 1600)


def test_a_product_of_bytes_is_that_of_the_rounded_numbers(tmp_path: Path) -> None:
    """Large numbers side by side, whose products overflow 16 bits: signed bytes would go wrong on some processors."""
    table, vectors = np.full((2, 8), 127.0), np.full((1, 8), 127.0, dtype=np.float32)
    table[1] *= -1
    graph = Graph()
    product = Tables(graph, True).of_items("items", table).products(
        graph.input("vectors", FLOAT, ["B", 8]), graph.constant(np.zeros(2, dtype=np.float32))
    )  # fmt: skip
    assert computed(graph, product, tmp_path, {"vectors": vectors}).tolist() == [[8 * 127.0**2, -8 * 127.0**2]]


def test_few_counts_are_kept_as_they_are_and_many_nearly() -> None:
    codes, values = coded(np.array([3.0, 1.0, 70.0, 1.0]))
    assert values.tolist() == [1.0, 3.0, 70.0]
    assert codes.tolist() == [1, 0, 2, 0]
    counts = np.arange(1.0, 5000.0)
    codes, values = coded(counts)
    assert len(values) <= 256
    assert np.abs(np.log(values[codes] / counts)).max() < 0.5 * np.log(5000) / 255 + 1e-4


def test_followers_side_by_side() -> None:
    """Item 0 has two followers, item 1 none, item 2 one."""
    columns, counts = np.array([[5, 3, 0], [0, 0, 0], [1, 0, 0]]), np.array([[4.0, 2, 0], [0, 0, 0], [9.0, 0, 0]])
    pairs = Pairs(columns, counts)
    assert (pairs.kept.tolist(), pairs.most) == ([0, 2, 0, 1], 2)
    assert (pairs.columns.tolist(), pairs.counts.tolist()) == ([5, 3, 1], [4.0, 2.0, 9.0])
    nothing = Pairs(np.zeros((3, 2), dtype=np.int32), np.zeros((3, 2)))
    assert (nothing.kept.tolist(), nothing.columns.tolist(), nothing.counts.tolist()) == ([0, 0, 0, 0], [0], [0.0])

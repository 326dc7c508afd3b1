"""Tables with a row for each item, as floats or as bytes with a scale for each row; and the model's other numbers.

Bytes are gathered first and become floats after it, and the scores of all items are a product of bytes: neither ever
makes the whole table floats. Everything else beside bytes is in half precision, and becomes floats once, when the graph
is loaded.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from lightgc2n.export.onnx_builder import FLOAT, UINT8, Array, Graph, Value, joined
from lightgc2n.recommending.bundle_parts import MIDDLE

# Bytes are unsigned, since products of signed ones may overflow on older processors: MIDDLE stands for 0.
STEPS = 127.0
SMALLEST_SCALE = 1e-12


@dataclass(frozen=True)
class FloatTable:
    """The table as it is."""

    table: Value

    def rows(self, index: Value) -> Value:
        return self.table.rows(index)

    def products(self, vectors: Value, bias: Value) -> Value:
        """The product of vectors [B, D] with every row, and a bias for each row: [B, M]."""
        return self.table.graph.add("Gemm", vectors, self.table, bias, transB=1)


@dataclass(frozen=True)
class ByteTable:
    """A row is its bytes, less the middle, times its scale."""

    table: Value
    scales: Value

    def rows(self, index: Value) -> Value:
        return (self.table.rows(index).cast(FLOAT) - float(MIDDLE)) * self.scales.rows(index).wider(-1)

    def products(self, vectors: Value, bias: Value) -> Value:
        """As for floats, with the vectors rounded too: to two bytes, each by its own largest number."""
        graph, middle = vectors.graph, np.array(MIDDLE, dtype=np.uint8)
        scale = vectors.apply("Abs").largest(1, keep=True).at_least(SMALLEST_SCALE) / (STEPS * MIDDLE)
        rounded = (vectors / scale).apply("Round")
        high = (rounded / float(MIDDLE)).apply("Round")
        both = joined([high.wider(1), (rounded - high * float(MIDDLE)).wider(1)], 1)  # [B, 2, D]
        # The table is turned once, when the graph is loaded.
        turned = self.table.turned(1, 0)
        products = graph.add("MatMulInteger", (both + float(MIDDLE)).cast(UINT8), turned, middle, middle)
        of_high, of_low = graph.add_many("Split", 2, products, axis=1, num_outputs=2)
        total = (of_high * graph.constant(np.array(MIDDLE, dtype=np.int32)) + of_low).narrower(1)
        return total.cast(FLOAT) * self.scales * scale + bias


class Tables:
    """Writes the numbers of one graph, all in the same way."""

    def __init__(self, graph: Graph, int8: bool) -> None:
        self.graph, self.int8 = graph, int8

    def of_items(self, name: str, array: Array) -> FloatTable | ByteTable:
        """A table with a row for each item."""
        if not self.int8:
            return FloatTable(self.graph.weight(name, np.ascontiguousarray(array, dtype=np.float32)))
        rounded, scales = as_bytes(array)
        return ByteTable(self.graph.weight(name, rounded), self.graph.weight(f"{name}.scales", scales).cast(FLOAT))

    def numbers(self, name: str, array: Array) -> Value:
        """Numbers none of which is far from the others in size: one for each item, or a map from vectors to vectors."""
        if not self.int8:
            return self.graph.weight(name, np.ascontiguousarray(array, dtype=np.float32))
        return self.graph.weight(name, np.ascontiguousarray(array, dtype=small_floats(array))).cast(FLOAT)


def as_bytes(table: Array) -> tuple[Array, Array]:
    """The bytes of a table and the scale of each row: its largest number becomes 127 steps from the middle."""
    exact = np.maximum(np.abs(table).max(axis=1, initial=0) / STEPS, SMALLEST_SCALE)
    # A scale is rounded before anything is divided by it, and never down: nothing is more than 127 steps away.
    scales = exact.astype(small_floats(exact))
    scales = np.where(scales < exact, np.nextafter(scales, np.inf, dtype=scales.dtype), scales)
    return (np.round(table / scales[:, None]) + MIDDLE).astype(np.uint8), scales


def small_floats(array: Array) -> type[np.floating[Any]]:
    """Half precision, where the largest number is neither too large nor too small for it."""
    largest, half = np.abs(array).max(initial=0), np.finfo(np.float16)
    return np.float16 if largest == 0 or half.tiny <= largest <= half.max else np.float32

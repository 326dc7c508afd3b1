"""The weights of a graph in float32, or quantized to int8 with a scale for each row.

Int8 rows are gathered before they are dequantized, and the scores of all items are an integer product: the whole table
is never dequantized. The other weights of an int8 graph are float16, converted once when the graph is loaded.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from lightgc2n.export.onnx_builder import FLOAT, UINT8, Array, Graph, Value, concat
from lightgc2n.recommending.bundle_parts import MIDDLE

# Bytes are unsigned, since products of signed ones may overflow on older processors: MIDDLE stands for 0.
STEPS = 127.0
SMALLEST_SCALE = 1e-12


@dataclass(frozen=True)
class FloatTable:
    """A float32 table."""

    table: Value

    def gather(self, index: Value) -> Value:
        return self.table.gather(index)

    def products(self, vectors: Value, bias: Value) -> Value:
        """The product of vectors [B, D] with every row, and a bias for each row: [B, M]."""
        return self.table.graph.add("Gemm", vectors, self.table, bias, transB=1)


@dataclass(frozen=True)
class ByteTable:
    """An int8 table: a row is (bytes - 128) * scale."""

    table: Value
    scales: Value

    def gather(self, index: Value) -> Value:
        return (self.table.gather(index).cast(FLOAT) - float(MIDDLE)) * self.scales.gather(index).unsqueeze(-1)

    def products(self, vectors: Value, bias: Value) -> Value:
        """As for floats; the vectors are quantized to 16 bits, each with its own scale."""
        graph, middle = vectors.graph, np.array(MIDDLE, dtype=np.uint8)
        scale = vectors.apply("Abs").max(1, keep=True).at_least(SMALLEST_SCALE) / (STEPS * MIDDLE)
        rounded = (vectors / scale).apply("Round")
        high = (rounded / float(MIDDLE)).apply("Round")
        both = concat([high.unsqueeze(1), (rounded - high * float(MIDDLE)).unsqueeze(1)], 1)  # [B, 2, D]
        # Transposed once, when the graph is loaded.
        turned = self.table.transpose(1, 0)
        products = graph.add("MatMulInteger", (both + float(MIDDLE)).cast(UINT8), turned, middle, middle)
        of_high, of_low = graph.add_many("Split", 2, products, axis=1, num_outputs=2)
        total = (of_high * graph.constant(np.array(MIDDLE, dtype=np.int32)) + of_low).squeeze(1)
        return total.cast(FLOAT) * self.scales * scale + bias


class Tables:
    """Adds the weights of one graph, all in the same precision."""

    def __init__(self, graph: Graph, int8: bool) -> None:
        self.graph, self.int8 = graph, int8

    def item_table(self, name: str, array: Array) -> FloatTable | ByteTable:
        """A table with a row for each item."""
        if not self.int8:
            return FloatTable(self.graph.weight(name, np.ascontiguousarray(array, dtype=np.float32)))
        rounded, scales = as_bytes(array)
        return ByteTable(self.graph.weight(name, rounded), self.graph.weight(f"{name}.scales", scales).cast(FLOAT))

    def numbers(self, name: str, array: Array) -> Value:
        """A weight whose values have similar magnitudes: a number for each item, or a matrix."""
        if not self.int8:
            return self.graph.weight(name, np.ascontiguousarray(array, dtype=np.float32))
        return self.graph.weight(name, np.ascontiguousarray(array, dtype=small_floats(array))).cast(FLOAT)


def as_bytes(table: Array) -> tuple[Array, Array]:
    """Quantize a table to int8; return the bytes and the scale of each row, whose largest value becomes 127 steps."""
    exact = np.maximum(np.abs(table).max(axis=1, initial=0) / STEPS, SMALLEST_SCALE)
    # Scales are rounded up, before the division, so that no value exceeds 127 steps.
    scales = exact.astype(small_floats(exact))
    scales = np.where(scales < exact, np.nextafter(scales, np.inf, dtype=scales.dtype), scales)
    return (np.round(table / scales[:, None]) + MIDDLE).astype(np.uint8), scales


def small_floats(array: Array) -> type[np.floating[Any]]:
    """float16 if the largest value is within its range, else float32."""
    largest, half = np.abs(array).max(initial=0), np.finfo(np.float16)
    return np.float16 if largest == 0 or half.tiny <= largest <= half.max else np.float32

"""Builds ONNX graphs from arithmetic: operators and methods of a Value add nodes. Every graph has the same interface.

Weights of a model are named and stored in an external file; numbers in an expression become constants in the graph.
Python floats become float32, ints int64.

Tables of weights are float32, or int8 with a scale for each row. Int8 rows are gathered before they are dequantized,
and the scores of all items are an integer product: the whole table is never dequantized. The other weights of an int8
graph are float16, converted once when the graph is loaded.

Inputs and outputs of every exported graph:

    history   int64 [B, T]    items, oldest first, the newest in the last column; padded with -1 on the left
    handicap  float [H, M]    added to the scores before TopK, one row for all (H = 1) or one for each: 0, or -inf for
                              an item that may not be listed
    k         int64 [1]       the length of the list
    account   float [B, W]    lightgc2n only: the account vector minus the mean of all; zeros for a new account
    held      int64 [B, N]    lightgc2n only: training items of the account besides its history; padded with -1

    best_scores, best_items   [B, K]     best first, of equal scores the lower item
    scores                    [B, M]     of all items, without the handicap
    ownership                 [B, A, T]  the share of each latent user in each event; 0 for padding
    weights                   [B, A]     the share of each latent user in the account

Shapes: B batch, T history, M items, A latent users, D width.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper
from torch import Tensor

from lightgc2n.recommending.bundle_parts import MIDDLE

Array = npt.NDArray[Any]
OPSET = 18  # supported by onnxruntime 1.2x and onnxruntime-web
IR_VERSION = 9
FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
INT32, UINT8, BOOL = onnx.TensorProto.INT32, onnx.TensorProto.UINT8, onnx.TensorProto.BOOL
HISTORY, HANDICAP, K, ACCOUNT, HELD = "history", "handicap", "k", "account", "held"
BEST_SCORES, BEST_ITEMS, SCORES, OWNERSHIP, WEIGHTS = "best_scores", "best_items", "scores", "ownership", "weights"
NOTHING = -1  # padding in place of an item number
LAST = np.iinfo(np.int64).max  # the end of an axis
# Bytes are unsigned, since products of signed ones may overflow on older processors: MIDDLE stands for 0.
STEPS = 127.0
SMALLEST_SCALE = 1e-12


class Graph:
    """Nodes in the order they were added, with their weights and constants."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, Array] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._inline: list[onnx.TensorProto] = []

    def input(self, name: str, kind: int, shape: Sequence[str | int]) -> "Value":
        self._inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return Value(self, name)

    def output(self, name: str, value: "Value", kind: int, shape: Sequence[str | int]) -> None:
        self.nodes.append(helper.make_node("Identity", [value.name], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, kind, shape))

    def weight(self, name: str, array: Array) -> "Value":
        """A named array of the model; it is stored once, however often it is used."""
        known = self.weights.setdefault(name, array)
        assert known is array or np.array_equal(known, array), f"two weights are called {name}"
        return Value(self, name)

    def constant(self, given: "float | int | Sequence[int] | Array") -> "Value":
        """A number or a small array inside the graph; equal ones are stored once."""
        if not isinstance(given, np.ndarray):
            given = np.asarray(given, dtype=np.float32 if isinstance(given, float) else np.int64)
        array = given
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = f"c{len(self._constants)}"
            self._inline.append(numpy_helper.from_array(array, self._constants[key]))
        return Value(self, self._constants[key])

    def add(self, kind: str, *inputs: "Value | float | int | Sequence[int] | Array", **attributes: Any) -> "Value":
        """Add a node with one output."""
        return self.add_many(kind, 1, *inputs, **attributes)[0]

    def add_many(
        self, kind: str, results: int, *inputs: "Value | float | int | Sequence[int] | Array", **attributes: Any
    ) -> list["Value"]:
        """Add a node with several outputs."""
        names = [(value if isinstance(value, Value) else self.constant(value)).name for value in inputs]
        outputs = [f"v{len(self.nodes)}.{number}" for number in range(results)]
        self.nodes.append(helper.make_node(kind, names, outputs, **attributes))
        return [Value(self, name) for name in outputs]

    def model(self, weights_file: str, places: Mapping[str, tuple[int, int]]) -> onnx.ModelProto:
        """The finished model.

        Args:
            weights_file: the name of the weights file, in the same folder.
            places: the offset and length in bytes of each weight in that file.
        """
        outside = [_external_tensor(name, array, weights_file, *places[name]) for name, array in self.weights.items()]
        graph = helper.make_graph(self.nodes, "lightgc2n", self._inputs, self._outputs, [*self._inline, *outside])
        opset = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION, producer_name="lightgc2n")


def _external_tensor(name: str, array: Array, file: str, first: int, length: int) -> onnx.TensorProto:
    """A tensor whose data is in another file."""
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    tensor = onnx.TensorProto(name=name, data_type=kind, dims=array.shape, data_location=onnx.TensorProto.EXTERNAL)
    for key, value in (("location", file), ("offset", first), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


@dataclass(frozen=True)
class Value:
    """An output of a node, an input or a weight."""

    graph: Graph
    name: str

    def __add__(self, other: "Value | float | int") -> "Value":
        return self.graph.add("Add", self, other)

    def __sub__(self, other: "Value | float | int") -> "Value":
        return self.graph.add("Sub", self, other)

    def __mul__(self, other: "Value | float | int") -> "Value":
        return self.graph.add("Mul", self, other)

    def __truediv__(self, other: "Value | float | int") -> "Value":
        return self.graph.add("Div", self, other)

    def __matmul__(self, other: "Value | Array") -> "Value":
        return self.graph.add("MatMul", self, other)

    def __lt__(self, other: "Value | float | int") -> "Value":
        return self.graph.add("Less", self, other)

    def __ge__(self, other: "Value | float | int") -> "Value":
        return self.graph.add("GreaterOrEqual", self, other)

    def equal(self, other: "Value | float | int") -> "Value":
        return self.graph.add("Equal", self, other)

    def at_least(self, bound: float | int) -> "Value":
        return self.graph.add("Max", self, bound)

    def at_most(self, bound: "Value | float | int") -> "Value":
        return self.graph.add("Min", self, bound)

    def apply(self, kind: str, **attributes: Any) -> "Value":
        """Apply an elementwise operator: Exp, Log, Relu, Sqrt..."""
        return self.graph.add(kind, self, **attributes)

    def cast(self, kind: int) -> "Value":
        return self.graph.add("Cast", self, to=kind)

    def gather(self, index: "Value", axis: int = 0) -> "Value":
        """The rows at these indices."""
        return self.graph.add("Gather", self, index, axis=axis)

    def sum(self, axis: int, keep: bool = False) -> "Value":
        return self.graph.add("ReduceSum", self, [axis], keepdims=int(keep))

    def max(self, axis: int, keep: bool = False) -> "Value":
        return self.graph.add("ReduceMax", self, [axis], keepdims=int(keep))

    def mean(self, axis: int) -> "Value":
        return self.graph.add("ReduceMean", self, [axis], keepdims=0)

    def softmax(self) -> "Value":
        return self.graph.add("Softmax", self, axis=-1)

    def reshape(self, *shape: int) -> "Value":
        """0 keeps an axis, -1 is inferred."""
        return self.graph.add("Reshape", self, shape)

    def transpose(self, *axes: int) -> "Value":
        return self.graph.add("Transpose", self, perm=axes)

    def unsqueeze(self, *axes: int) -> "Value":
        return self.graph.add("Unsqueeze", self, axes)

    def squeeze(self, *axes: int) -> "Value":
        return self.graph.add("Squeeze", self, axes)

    def slice(self, start: "Value | int", stop: "Value | int", axis: int) -> "Value":
        """From start to stop along an axis; negative numbers count from the end."""
        ends = [end.reshape(1) if isinstance(end, Value) else [end] for end in (start, stop)]
        return self.graph.add("Slice", self, *ends, [axis])

    def size(self, axis: int) -> "Value":
        """The length of an axis [1]."""
        return self.graph.add("Shape", self, start=axis, end=axis + 1)

    def layer_norm(self, scale: "Value", shift: "Value", epsilon: float) -> "Value":
        """Layer normalisation over the last axis."""
        return self.graph.add("LayerNormalization", self, scale, shift, axis=-1, epsilon=epsilon)


def concat(values: Sequence[Value], axis: int) -> Value:
    """Concatenate values along an axis."""
    return values[0].graph.add("Concat", *values, axis=axis)


def where(condition: Value, yes: "Value | float | int", no: "Value | float | int") -> Value:
    """Select elementwise."""
    return condition.graph.add("Where", condition, yes, no)


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


@dataclass(frozen=True)
class LatentUsers:
    """The share of each latent user in each event [B, A, T] and in the account [B, A]."""

    ownership: Value
    weights: Value


@dataclass(frozen=True)
class ModelOutputs:
    """A score for every item [B, M], and the latent users if the model has them."""

    scores: Value
    users: LatentUsers | None
    table: str  # the name of the item vectors in the weights; empty where there are none
    exact: bool = False  # scores are float64, and items are ranked by them


@dataclass(frozen=True)
class Events:
    """Padded items: indices that are valid to gather, and the mask of real ones as bool and as 0 or 1."""

    numbers: Value  # -1 for padding
    items: Value
    known: Value
    there: Value

    @classmethod
    def of(cls, numbers: Value) -> "Events":
        known = numbers >= 0
        return cls(numbers, numbers.at_least(0), known, known.cast(FLOAT))

    def newest(self, longest: int) -> "Events":
        """The last columns, at most so many."""
        parts = (value.slice(-longest, LAST, 1) for value in (self.numbers, self.items, self.known, self.there))
        return Events(*parts)

    def count(self) -> Value:
        """The number of events of each row [B, 1]."""
        return self.there.sum(1, keep=True)


def add_outputs(graph: Graph, items: int, answer: ModelOutputs) -> None:
    """Add TopK to the scores of a model, and name the outputs."""
    handicap, k = graph.input(HANDICAP, FLOAT, ["H", items]), graph.input(K, INT64, [1])
    # ONNX defines TopK so that of equal scores the lower index comes first.
    ranked = answer.scores + (handicap.cast(onnx.TensorProto.DOUBLE) if answer.exact else handicap)
    best_scores, best_items = graph.add_many("TopK", 2, ranked, k, axis=1)
    scores = answer.scores
    if answer.exact:
        best_scores, scores = best_scores.cast(FLOAT), scores.cast(FLOAT)
    graph.output(BEST_SCORES, best_scores, FLOAT, ["B", "K"])
    graph.output(BEST_ITEMS, best_items, INT64, ["B", "K"])
    graph.output(SCORES, scores, FLOAT, ["B", items])
    if answer.users is not None:
        graph.output(OWNERSHIP, answer.users.ownership, FLOAT, ["B", "A", "T"])
        graph.output(WEIGHTS, answer.users.weights, FLOAT, ["B", "A"])


def array(tensor: Tensor) -> Array:
    """A tensor as an array, detached."""
    return tensor.detach().cpu().numpy()

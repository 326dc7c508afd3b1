"""The safetensors files of a bundle, each table checked against what the schema declares."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from lightgc2n.errors import DataError, LightGC2NError
from lightgc2n.recommending import bundle_schema as schema
from lightgc2n.recommending.bundle_files import CONFIG, WEIGHTS, BundleFiles
from lightgc2n.recommending.schema_checks import EXPORT_AGAIN, FLOATS, Table, need

POPULARITY = "popularity"
PAIRS, TRENDS = ("followers", "newer_followers", "neighbours"), "trends.items"
NUMBERS_AT_ONCE = 2**18  # that are read to check them
BITS = {"U8": 8, "U16": 16, "U32": 32}


@contextmanager
def _open(files: BundleFiles, name: str) -> Iterator[Any]:
    """Open a safetensors file; its errors become a DataError."""
    try:
        with safe_open(files.folder / name, framework="numpy") as file:
            yield file
    except LightGC2NError:
        raise
    except Exception as problem:  # safetensors raises errors of its own
        raise DataError(f"{files.folder / name}: {problem}. {EXPORT_AGAIN}") from None


def read_tables(
    files: BundleFiles, name: str, declared: dict[str, Table], lengths: dict[str, int]
) -> dict[str, npt.NDArray[Any]]:
    """Read and check the declared tables of a safetensors file; an optional one may be missing."""
    path, arrays = files.folder / name, {}
    with _open(files, name) as file:
        names = set(file.keys())
        for key, table in declared.items():
            if table.optional and key not in names:
                continue
            need(key in names, f"{path}: {key}", "a table", "nothing")
            facts = file.get_slice(key)
            table.check_facts(facts.get_dtype(), facts.get_shape(), lengths, f"{path}: {key}")
            arrays[key] = file.get_tensor(key)
            table.check_values(arrays[key], f"{path}: {key}")
    return arrays


def check_weights(files: BundleFiles) -> None:
    """Check all tables of the graph in chunks: floats are within bounds, and indices point at items."""
    path, items, vectors = files.folder / WEIGHTS, files.config["items"], files.config["item_table"]
    need(
        vectors not in schema.WEIGHT_TABLES,
        f"{files.folder / CONFIG}: item_table",
        "the table of item vectors",
        vectors,
    )
    declared = schema.WEIGHT_TABLES | {vectors: schema.ITEM_TABLE}
    lengths = {"items": items, "items + 1": items + 1, "items / 8": -(-items // 8)}
    with _open(files, WEIGHTS) as file:
        names = set(file.keys())
        for name in (POPULARITY, vectors):
            need(name in names, f"{path}: {name}", "a table", "nothing")
        for name in sorted(names):
            table = declared.get(name, schema.WEIGHT)
            facts, where = file.get_slice(name), f"{path}: {name}"
            table.check_facts(facts.get_dtype(), facts.get_shape(), lengths, where)
            if name in schema.WEIGHT_TABLES or facts.get_dtype() in FLOATS:
                for part in _chunks(file, name):
                    table.check_values(part, where)
        for pairs in PAIRS:
            _check_pairs(file, names, pairs, items, str(path))
        if TRENDS in names:
            _check_items(file, TRENDS, items, str(path))


def _check_items(file: Any, name: str, items: int, path: str) -> None:
    for part in _chunks(file, name):
        need(bool(part.max(initial=0) < items), f"{path}: {name}", f"items below {items:,}", part.max())


def _check_pairs(file: Any, names: set[str], pairs: str, items: int, path: str) -> None:
    """Check that every follower or neighbour is an item and every code has a count."""
    columns, lower, coded, values = (f"{pairs}.{one}" for one in ("columns", "lower", "bytes", "values"))
    if columns in names:
        _check_items(file, columns, items, path)
    if coded in names:
        for name in (lower, values):
            need(name in names, f"{path}: {name}", "a table", "nothing")
        low = 2 ** BITS[file.get_slice(lower).get_dtype()]
        high, codes = 2 ** ((items - 1) // low).bit_length(), file.get_slice(values).get_shape()[0]
        for lows, byte in zip(_chunks(file, lower), _chunks(file, coded), strict=True):
            largest = int((lows + low * (byte % high).astype(np.int64)).max(initial=0))
            need(largest < items, f"{path}: {lower}, {coded}", f"items below {items:,}", largest)
            code = int(byte.max(initial=0)) // high
            need(code < codes, f"{path}: {coded}", f"codes below {codes}", code)


def _chunks(file: Any, name: str) -> Iterator[npt.NDArray[Any]]:
    """The rows of a table in chunks."""
    shape = file.get_slice(name).get_shape()
    size = int(np.prod(shape))
    if size <= NUMBERS_AT_ONCE:
        yield file.get_tensor(name)
        return
    rows = max(1, NUMBERS_AT_ONCE * shape[0] // size)
    for first in range(0, shape[0], rows):
        yield file.get_slice(name)[first : min(first + rows, shape[0])]  # safetensors rejects a slice beyond the end

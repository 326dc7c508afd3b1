"""Writes the people finder into both parts of a bundle.

Int8 bundles store vectors with four bits a number, and days as float32, which is exact to minutes.
"""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from lightgc2n.export.onnx_builder import Array
from lightgc2n.people.finder import PeopleFinder
from lightgc2n.people.storage import arrays_of, numbers_of
from lightgc2n.recommending.bundle_files import ACCOUNT_TABLES, FINDER, FINDER_FACTS, PEOPLE
from lightgc2n.recommending.bundle_people import DAYS, EVENTS, FOLD, NIBBLE_MIDDLE, TABLES, VECTORS, finder_constants

STRANGERS = 1  # item tables that a history outside the training data needs: the first


def write_people(folder: Path, finder: PeopleFinder, int8: bool) -> None:
    """Write the finder into a device part: what new histories need, and nothing of any account."""
    (folder / PEOPLE).mkdir()
    arrays = arrays_of(finder)
    del arrays[FOLD]
    tables = {name: arrays.pop(name)[:STRANGERS] for name in TABLES if name in arrays}
    (folder / FINDER).write_bytes(save(_contiguous(arrays | _stored(tables, int8))))
    (folder / FINDER_FACTS).write_text(
        json.dumps(numbers_of(finder) | {"constants": finder_constants()}, indent=1) + "\n", encoding="utf-8"
    )


def write_account_tables(server: Path, finder: PeopleFinder, int8: bool) -> None:
    """Write the item tables of the other folds, and the fold of each account, into a server part."""
    arrays = arrays_of(finder)
    tables = {name: arrays[name][STRANGERS:] for name in TABLES if name in arrays}
    fold = arrays[FOLD].astype(np.uint8)
    (server / ACCOUNT_TABLES).write_bytes(save(_contiguous(_stored(tables, int8) | {FOLD: fold})))


def _stored(tables: dict[str, Array], int8: bool) -> dict[str, Array]:
    """The tables in the types of the bundle: counts in the smallest type, and with int8 the rest quantized."""
    events = tables[EVENTS]
    stored = tables | {EVENTS: events.astype(np.min_scalar_type(int(events.max(initial=0))))}
    if not int8:
        return stored
    days = {name: tables[name].astype(np.float32) for name in DAYS if name in tables}
    return stored | days | {VECTORS: in_nibbles(tables[VECTORS])}


def in_nibbles(vectors: Array) -> Array:
    """Pack unit or zero vectors with four bits a number; a byte holds one number of each half.

    The largest number of a vector becomes 7 steps. The step size is not stored, since the length is known.
    """
    largest = np.abs(vectors).max(axis=-1, keepdims=True)
    steps = np.round(vectors / np.where(largest > 0, largest, 1) * (NIBBLE_MIDDLE - 1)) + NIBBLE_MIDDLE
    first, second = np.split(steps.astype(np.uint8), 2, axis=-1)
    return first | second << 4


def _contiguous(arrays: dict[str, Array]) -> dict[str, Array]:
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}

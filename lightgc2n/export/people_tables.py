"""What finds people, written into both parts of a bundle.

In bundles of bytes a number of a vector has four bits, and days are 32-bit floats: minutes are kept.
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

STRANGERS = 1  # tables that a history which training has not seen needs: the first


def write_people(folder: Path, finder: PeopleFinder, int8: bool) -> None:
    """Writes the finder into a device part: all that is asked of someone new, and nothing of any account."""
    (folder / PEOPLE).mkdir()
    arrays = arrays_of(finder)
    del arrays[FOLD]
    tables = {name: arrays.pop(name)[:STRANGERS] for name in TABLES if name in arrays}
    (folder / FINDER).write_bytes(save(_contiguous(arrays | _stored(tables, int8))))
    (folder / FINDER_FACTS).write_text(
        json.dumps(numbers_of(finder) | {"constants": finder_constants()}, indent=1) + "\n", encoding="utf-8"
    )


def write_account_tables(server: Path, finder: PeopleFinder, int8: bool) -> None:
    """Writes the tables of the other folds, and the fold of each account, into a server part."""
    arrays = arrays_of(finder)
    tables = {name: arrays[name][STRANGERS:] for name in TABLES if name in arrays}
    fold = arrays[FOLD].astype(np.uint8)
    (server / ACCOUNT_TABLES).write_bytes(save(_contiguous(_stored(tables, int8) | {FOLD: fold})))


def _stored(tables: dict[str, Array], int8: bool) -> dict[str, Array]:
    """Tables as they are kept: counts with as few bytes as they need, and where wanted all else in few bytes too."""
    events = tables[EVENTS]
    found = tables | {EVENTS: events.astype(np.min_scalar_type(int(events.max(initial=0))))}
    if not int8:
        return found
    days = {name: tables[name].astype(np.float32) for name in DAYS if name in tables}
    return found | days | {VECTORS: in_nibbles(tables[VECTORS])}


def in_nibbles(vectors: Array) -> Array:
    """Vectors of length one or zero with four bits a number: a byte holds one of the first half, and one of the second.

    The largest number of a vector becomes 7 steps. How long a step is need not be kept: the length is known.
    """
    largest = np.abs(vectors).max(axis=-1, keepdims=True)
    steps = np.round(vectors / np.where(largest > 0, largest, 1) * (NIBBLE_MIDDLE - 1)) + NIBBLE_MIDDLE
    first, second = np.split(steps.astype(np.uint8), 2, axis=-1)
    return first | second << 4


def _contiguous(arrays: dict[str, Array]) -> dict[str, Array]:
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}

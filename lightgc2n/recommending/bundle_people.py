"""What finds people, as a bundle holds it.

A phone asks about histories that training has not seen, and one table of items is enough for these: it is in the device
part. An account that training had is described by a table that has not seen it, so the server part has the other
tables, and says which is whose.
"""

from typing import Any

import numpy as np

from lightgc2n.errors import DataError
from lightgc2n.people.finding import PeopleFinder
from lightgc2n.people.keeping import finder_of
from lightgc2n.people.sessions import DAY
from lightgc2n.recommending.bundle_files import ACCOUNT_TABLES, FINDER, FINDER_FACTS, SERVER, BundleFiles, read_json
from lightgc2n.recommending.bundle_parts import MIDDLE, need, read_arrays

VECTORS, SCALES, EVENTS, FOLD = "tables.vectors", "tables.scales", "tables.events", "fold"
DAYS = ("tables.first", "tables.middle")
TABLES = (VECTORS, EVENTS, *DAYS)
NIBBLE_MIDDLE = 8  # the half of a byte that stands for 0


def read_finder(files: BundleFiles, accounts: int) -> PeopleFinder | None:
    """The finder of a bundle, if it has one; ValueError and its like where its files do not fit each other.

    Args:
        accounts: that the server part knows.
    """
    if FINDER not in files.device:
        return None
    facts, arrays = read_json(files.folder / FINDER_FACTS), _as_floats(read_arrays(files, FINDER))
    fold = np.zeros(0, dtype=np.int64)
    if ACCOUNT_TABLES in files.server:
        more = _as_floats(read_arrays(files, f"{SERVER}/{ACCOUNT_TABLES}"))
        fold = more[FOLD].astype(np.int64)
        arrays |= {name: np.concatenate([arrays[name], more[name]]) for name in TABLES if name in arrays}
    finder = finder_of(facts, arrays | {FOLD: fold})
    _check(finder, files.config["items"], accounts)
    return finder


def _as_floats(arrays: dict[str, Any]) -> dict[str, Any]:
    """The same arrays as they were learned: counts are long, vectors are floats."""
    vectors = arrays[VECTORS]
    if SCALES in arrays:  # schema 2: a number is a byte, and each row has a scale
        vectors = (vectors.astype(np.float32) - np.float32(MIDDLE)) * arrays[SCALES][..., None]
    elif vectors.dtype == np.uint8:
        vectors = of_nibbles(vectors)
    return arrays | {VECTORS: vectors, EVENTS: arrays[EVENTS].astype(np.int64)}


def of_nibbles(packed: Any) -> Any:
    """Vectors of length one, or zero, of four bits a number: the first half of each in the lower bits of its bytes."""
    steps = np.concatenate([packed & 15, packed >> 4], axis=-1).astype(np.float32) - np.float32(NIBBLE_MIDDLE)
    return steps / np.maximum(np.linalg.norm(steps, axis=-1, keepdims=True), 1)  # no whole number is shorter


def _check(finder: PeopleFinder, items: int, accounts: int) -> None:
    """All of it fits: the tables each other, the accounts the tables, and the rest what is computed with it."""
    tables, fold = finder.learned.tables, finder.learned.fold
    need(finder.catalogue == items and tables.vectors.shape[:2] == tables.events.shape, "the tables of people")
    days = (tables.first, tables.middle)
    timed = [day is not None and day.shape == tables.events.shape for day in days]
    need(all(timed) if finder.gap is not None else days == (None, None), "the tables of people")
    need(fold.shape == (accounts,) and bool((fold >= 0).all() and (fold < len(tables.events)).all()), "who is whose")
    try:
        finder.find(np.zeros(2, dtype=np.int32), np.array([0, 9 * DAY]))  # two sessions, so that a pair is asked too
    except DataError as problem:
        raise ValueError(str(problem)) from None

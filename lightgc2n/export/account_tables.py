"""Writes the tables of accounts and people into a bundle: histories, account vectors and the people finder.

Int8 bundles store vectors with four bits a number, and days as float32, which is exact to minutes.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from lightgc2n.data.dataset import Ints, Longs
from lightgc2n.export.lightgc2n_graph import account_vectors
from lightgc2n.export.onnx_builder import Array
from lightgc2n.models.contract import Model
from lightgc2n.models.lightgc2n.lightgc2n import LightGC2N
from lightgc2n.people.finder import PeopleFinder, arrays_of, numbers_of
from lightgc2n.recommending.bundle_files import (
    ACCOUNT_TABLES,
    ACCOUNTS,
    FINDER,
    FINDER_FACTS,
    HISTORIES,
    PEOPLE,
    SERVER,
    SERVER_FACTS,
    device_checksum,
    write_manifest,
)
from lightgc2n.recommending.bundle_files import VECTORS as ACCOUNT_VECTORS
from lightgc2n.recommending.histories import Histories
from lightgc2n.recommending.load_bundle import DAYS, EVENTS, FOLD, NIBBLE_MIDDLE, TABLES, VECTORS, finder_constants
from lightgc2n.recommending.population import Population

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


def write_server(
    folder: Path,
    histories: Histories,
    with_histories: bool,
    model: Model,
    finder: PeopleFinder | None,
    int8: bool,
    population: Population | None = None,
) -> None:
    """Write the server part beside a finished device part."""
    server, accounts = folder / SERVER, histories.dataset.accounts
    server.mkdir()
    (server / ACCOUNTS).write_bytes("".join(f"{one}\n" for one in accounts).encode("utf-8"))
    if with_histories:
        (server / HISTORIES).write_bytes(save(_histories(histories, model)))
    if isinstance(model, LightGC2N):
        (server / ACCOUNT_VECTORS).write_bytes(save({"account": account_vectors(model)}))
    if finder is not None:
        write_account_tables(server, finder, int8)
    facts: dict[str, Any] = {"device": device_checksum(folder), "accounts": len(accounts)}
    if population is not None:
        facts["population"] = population.as_json()
    write_manifest(server, SERVER_FACTS, facts)


def _histories(histories: Histories, model: Model) -> dict[str, Array]:
    """The events and times of each account, and its training items besides these."""
    dataset, start, stop = histories.dataset, histories.start, histories.stop
    lines = [np.asarray(dataset.events[first:last]) for first, last in zip(start, stop, strict=True)]
    offsets, events = _concatenated(lines)
    arrays: dict[str, Array] = {"offsets": offsets, "events": events}
    if dataset.times is not None:
        times = [np.asarray(dataset.times[first:last]) for first, last in zip(start, stop, strict=True)]
        arrays["times"] = np.concatenate([*times, np.empty(0, dtype=np.int64)])
    if isinstance(model, LightGC2N):
        graph = model.graph
        held = np.split(graph.held_items.cpu().numpy(), graph.held_offsets.cpu().numpy()[1:-1])
        beyond = [np.setdiff1d(items, line) for items, line in zip(held, lines, strict=True)]
        if any(map(len, beyond)):
            arrays["held_offsets"], arrays["held_items"] = _concatenated(beyond)
    return arrays


def _concatenated(lines: list[Array]) -> tuple[Longs, Ints]:
    """Offsets and the concatenation of all lines."""
    offsets = np.concatenate([[0], np.cumsum([len(line) for line in lines])]).astype(np.int64)
    return offsets, np.concatenate([*lines, np.empty(0, dtype=np.int32)]).astype(np.int32)

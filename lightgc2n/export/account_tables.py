"""Writes the server part of a bundle: accounts, histories and account vectors."""

from pathlib import Path

import numpy as np
from safetensors.numpy import save

from lightgc2n.data.dataset import Ints, Longs
from lightgc2n.export.lightgc2n_graph import account_vectors
from lightgc2n.export.onnx_builder import Array
from lightgc2n.export.people_tables import write_account_tables
from lightgc2n.models.contract import Model
from lightgc2n.models.lightgc2n.lightgc2n import LightGC2N
from lightgc2n.people.finder import PeopleFinder
from lightgc2n.recommending.bundle_files import (
    ACCOUNTS,
    HISTORIES,
    SERVER,
    SERVER_FACTS,
    VECTORS,
    device_checksum,
    write_manifest,
)
from lightgc2n.recommending.histories import Histories


def write_server(
    folder: Path, histories: Histories, with_histories: bool, model: Model, finder: PeopleFinder | None, int8: bool
) -> None:
    """Write the server part beside a finished device part."""
    server, accounts = folder / SERVER, histories.dataset.accounts
    server.mkdir()
    (server / ACCOUNTS).write_bytes("".join(f"{one}\n" for one in accounts).encode("utf-8"))
    if with_histories:
        (server / HISTORIES).write_bytes(save(_histories(histories, model)))
    if isinstance(model, LightGC2N):
        (server / VECTORS).write_bytes(save({"account": account_vectors(model)}))
    if finder is not None:
        write_account_tables(server, finder, int8)
    write_manifest(server, SERVER_FACTS, {"device": device_checksum(folder), "accounts": len(accounts)})


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

"""The server part of a bundle: accounts, what they did, and where each starts."""

from pathlib import Path

import numpy as np
from safetensors.numpy import save

from lightgc2n.data.dataset import Ints, Longs
from lightgc2n.export.export_options import ExportOptions
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
    write_facts,
)
from lightgc2n.recommending.histories import Histories


def write_server(
    folder: Path, histories: Histories, model: Model, options: ExportOptions, finder: PeopleFinder | None
) -> None:
    """Writes the server part beside a device part that is finished."""
    server, accounts = folder / SERVER, histories.dataset.accounts
    server.mkdir()
    (server / ACCOUNTS).write_bytes("".join(f"{one}\n" for one in accounts).encode("utf-8"))
    if options.histories:
        (server / HISTORIES).write_bytes(save(_histories(histories, model)))
    if isinstance(model, LightGC2N):
        (server / VECTORS).write_bytes(save({"account": account_vectors(model)}))
    if finder is not None:
        write_account_tables(server, finder, options.int8)
    write_facts(server, SERVER_FACTS, {"device": device_checksum(folder), "accounts": len(accounts)})


def _histories(histories: Histories, model: Model) -> dict[str, Array]:
    """What each account did and when, and what training knows of it beyond that."""
    dataset, start, stop = histories.dataset, histories.start, histories.stop
    lines = [np.asarray(dataset.events[first:last]) for first, last in zip(start, stop, strict=True)]
    offsets, events = _side_by_side(lines)
    arrays: dict[str, Array] = {"offsets": offsets, "events": events}
    if dataset.times is not None:
        times = [np.asarray(dataset.times[first:last]) for first, last in zip(start, stop, strict=True)]
        arrays["times"] = np.concatenate([*times, np.empty(0, dtype=np.int64)])
    if isinstance(model, LightGC2N):
        graph = model.graph
        held = np.split(graph.held_items.cpu().numpy(), graph.held_offsets.cpu().numpy()[1:-1])
        beyond = [np.setdiff1d(items, line) for items, line in zip(held, lines, strict=True)]
        if any(map(len, beyond)):
            arrays["held_offsets"], arrays["held_items"] = _side_by_side(beyond)
    return arrays


def _side_by_side(lines: list[Array]) -> tuple[Longs, Ints]:
    """Where each line begins, and behind all where they end; and all lines in one."""
    offsets = np.concatenate([[0], np.cumsum([len(line) for line in lines])]).astype(np.int64)
    return offsets, np.concatenate([*lines, np.empty(0, dtype=np.int32)]).astype(np.int32)

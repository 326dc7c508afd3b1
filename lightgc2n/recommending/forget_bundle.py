"""Removes accounts from a bundle: ids, histories, vectors and folds."""

import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save

from lightgc2n.data.dataset import read_ids
from lightgc2n.files.atomic_writes import new_folder
from lightgc2n.files.folder_kinds import refuse_foreign
from lightgc2n.recommending.bundle_files import (
    ACCOUNT_TABLES,
    ACCOUNTS,
    BUNDLE,
    HISTORIES,
    ITEMS,
    PEOPLE,
    SERVER,
    SERVER_FACTS,
    SUMS,
    VECTORS,
    BundleFiles,
    open_bundle,
    read_json,
    write_manifest,
)

Booleans = npt.NDArray[np.bool_]


def forget_in_bundle(folder: Path, accounts: Collection[str]) -> tuple[list[str], list[str]]:
    """Replace the bundle in `folder` by one without these accounts; return them and the items that only they have.

    The device part is not changed: it contains no histories. It keeps those items and the learned weights.
    """
    assert not isinstance(accounts, str), "a list of ids"
    with new_folder(folder, force=True, kind=BUNDLE, wait=True) as new:
        files = open_bundle(folder)
        known = _accounts(files)
        gone = np.array([account in set(accounts) for account in known], dtype=bool)
        if not gone.any():
            return [], []
        if (folder / PEOPLE).is_dir():
            (new / PEOPLE).mkdir()
        for name in (*files.device, SUMS):
            shutil.copyfile(folder / name, new / name)
        _write_server(files, new / SERVER, known, gone)
        return [account for account, out in zip(known, gone, strict=True) if out], _only_theirs(files, gone)


def accounts_in_bundle(folder: Path, accounts: Collection[str]) -> list[str]:
    """Return which of the accounts the bundle holds."""
    files = open_bundle(folder)
    refuse_foreign(files.folder, BUNDLE)
    return sorted(set(accounts) & set(_accounts(files)))


def _accounts(files: BundleFiles) -> list[str]:
    return read_ids(files.folder / SERVER / ACCOUNTS) if files.server else []


def _only_theirs(files: BundleFiles, gone: Booleans) -> list[str]:
    """Return the ids of items that occur only in the histories of removed accounts."""
    if HISTORIES not in files.server:
        return []
    arrays, items = load_file(files.folder / SERVER / HISTORIES), read_ids(files.folder / ITEMS)
    theirs, others = np.zeros(len(items), dtype=bool), np.zeros(len(items), dtype=bool)
    for starts, name in (("offsets", "events"), ("held_offsets", "held_items")):
        if starts in arrays:
            of_gone = np.repeat(gone, np.diff(arrays[starts]))
            theirs[arrays[name][of_gone]] = True
            others[arrays[name][~of_gone]] = True
    return [items[item] for item in np.flatnonzero(theirs & ~others)]


def _write_server(files: BundleFiles, new: Path, accounts: list[str], gone: Booleans) -> None:
    old = files.folder / SERVER
    new.mkdir()
    left = [account for account, out in zip(accounts, gone, strict=True) if not out]
    (new / ACCOUNTS).write_bytes("".join(f"{one}\n" for one in left).encode("utf-8"))
    if HISTORIES in files.server:
        (new / HISTORIES).write_bytes(save(_without_lines(load_file(old / HISTORIES), gone)))
    if VECTORS in files.server:
        vectors = load_file(old / VECTORS)
        (new / VECTORS).write_bytes(save({name: rows[~gone] for name, rows in vectors.items()}))
    if ACCOUNT_TABLES in files.server:
        arrays = load_file(old / ACCOUNT_TABLES)
        (new / ACCOUNT_TABLES).write_bytes(save(arrays | {"fold": arrays["fold"][~gone]}))
    facts = read_json(old / SERVER_FACTS) | {"accounts": len(left)}
    if "population" in facts:
        examples = [one for one in facts["population"]["examples"] if one["account"] in set(left)]
        facts["population"] = facts["population"] | {"examples": examples}
    write_manifest(new, SERVER_FACTS, facts)


def _without_lines(arrays: dict[str, Any], gone: Booleans) -> dict[str, Any]:
    """Return the same lines without those of accounts that are gone."""
    left = {}
    for starts, lines in (("offsets", ("events", "times")), ("held_offsets", ("held_items",))):
        if starts in arrays:
            lengths = np.diff(arrays[starts])
            kept = np.repeat(~gone, lengths)
            left[starts] = np.concatenate([[0], np.cumsum(lengths[~gone])]).astype(arrays[starts].dtype)
            left |= {name: arrays[name][kept] for name in {*lines} & {*arrays}}
    return left

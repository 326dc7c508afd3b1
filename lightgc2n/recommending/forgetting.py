"""An account taken out of a bundle: its id, what it did and when, its vector, and which tables described it."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save

from lightgc2n.data.dataset import read_ids
from lightgc2n.data.files import new_folder
from lightgc2n.errors import DataError
from lightgc2n.recommending.bundle_files import (
    ACCOUNT_TABLES,
    ACCOUNTS,
    CONFIG,
    HISTORIES,
    PEOPLE,
    SERVER,
    SERVER_FACTS,
    SUMS,
    VECTORS,
    BundleFiles,
    open_bundle,
    read_json,
    write_facts,
)


def forget_in_bundle(folder: Path, account: str) -> None:
    """Replaces the bundle in `folder` by one without the account; it is whole at any moment.

    The device part stays as it is: it holds nobody's history, and what was learned from all together.
    """
    folder = folder.resolve()  # a link goes on pointing at the bundle, and the old one does not stay behind it
    files = open_bundle(folder)
    accounts = _accounts(files)
    if account not in accounts:
        raise DataError(f"{folder}: holds no account {account!r}.")
    with new_folder(folder, force=True, marker=CONFIG) as new:
        if (folder / PEOPLE).is_dir():
            (new / PEOPLE).mkdir()
        for name in (*files.device, SUMS):
            shutil.copyfile(folder / name, new / name)
        _write_server(files, new / SERVER, accounts, accounts.index(account))


def bundle_holds(folder: Path, account: str) -> bool:
    """Whether the bundle knows the account."""
    return account in _accounts(open_bundle(folder))


def _accounts(files: BundleFiles) -> list[str]:
    return read_ids(files.folder / SERVER / ACCOUNTS) if files.server else []


def _write_server(files: BundleFiles, new: Path, accounts: list[str], gone: int) -> None:
    old = files.folder / SERVER
    new.mkdir()
    left = [one for place, one in enumerate(accounts) if place != gone]
    (new / ACCOUNTS).write_bytes("".join(f"{one}\n" for one in left).encode("utf-8"))
    if HISTORIES in files.server:
        (new / HISTORIES).write_bytes(save(_without_lines(load_file(old / HISTORIES), gone)))
    if VECTORS in files.server:
        vectors = load_file(old / VECTORS)
        (new / VECTORS).write_bytes(save({name: np.delete(rows, gone, axis=0) for name, rows in vectors.items()}))
    if ACCOUNT_TABLES in files.server:
        arrays = load_file(old / ACCOUNT_TABLES)
        (new / ACCOUNT_TABLES).write_bytes(save(arrays | {"fold": np.delete(arrays["fold"], gone)}))
    write_facts(new, SERVER_FACTS, read_json(old / SERVER_FACTS) | {"accounts": len(left)})


def _without_lines(arrays: dict[str, Any], gone: int) -> dict[str, Any]:
    """The same lines without one, wherever there are lines."""
    found = {}
    for starts, lines in (("offsets", ("events", "times")), ("held_offsets", ("held_items",))):
        if starts in arrays:
            offsets = arrays[starts]
            first, last = offsets[gone : gone + 2]
            found[starts] = np.append(offsets[: gone + 1], offsets[gone + 2 :] - (last - first))
            for name in {*lines} & {*arrays}:
                found[name] = np.delete(arrays[name], slice(first, last))
    return found

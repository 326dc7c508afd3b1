"""Remove accounts from a prepared dataset, with their events, labels, and items that no other account has."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lightgc2n.data.catalogue import without_items
from lightgc2n.data.dataset import (
    DATASET,
    REJECTED,
    Dataset,
    Domain,
    load_dataset,
    verify_dataset,
    write_dataset,
)
from lightgc2n.data.members import Members, load_members
from lightgc2n.data.splits import ranges
from lightgc2n.data.tombstones import keep_tombstones
from lightgc2n.errors import DataError
from lightgc2n.files.atomic_writes import new_folder
from lightgc2n.files.folder_kinds import refuse_foreign

NOTE = "accounts were forgotten"

Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Forgotten:
    """What `forget` removed from a dataset."""

    accounts: list[str]
    items: list[str]  # removed too, because no other account has them
    checksum: str  # of the dataset now


def forget_in_dataset(folder: Path, accounts: Collection[str]) -> Forgotten:
    """Replace the dataset in `folder` by one without these accounts, and return what was removed.

    A dataset without them stays as it is.

    The dataset keeps salted hashes of the accounts, so that importing the log again leaves them out. A list of
    rejected rows is removed, since it may name anybody.
    """
    with new_folder(folder, force=True, kind=DATASET, wait=True) as new:
        gone, dataset = accounts_in_dataset(folder, accounts), load_dataset(folder)
        if not gone:
            return Forgotten([], [], dataset.checksum)
        content = _content(dataset, load_members(folder))
        items = drop_accounts(content, set(gone))
        manifest = write_dataset(new, **content)
        keep_tombstones(folder, new, accounts)  # also unknown ones, which another log may have
    return Forgotten(gone, items, manifest["checksum"])


def accounts_in_dataset(folder: Path, accounts: Collection[str]) -> list[str]:
    """Return which of the accounts the dataset holds; a dataset that would be empty without them is an error."""
    assert not isinstance(accounts, str), "a list of ids"
    verify_dataset(folder)
    dataset = load_dataset(folder)
    refuse_foreign(folder, DATASET)
    held = sorted(set(accounts) & set(dataset.accounts))
    if len(held) == len(dataset.accounts):
        raise DataError(f"{folder}: no account would be left without {', '.join(map(repr, held))}. Remove the folder.")
    return held


def drop_accounts(content: dict[str, Any], gone: Collection[str]) -> list[str]:
    """Remove accounts from the arguments of `write_dataset`, in place; return the items that no other account has."""
    is_gone = np.array([account in gone for account in content["accounts"]], dtype=bool)
    owner = np.asarray(content["sequence_accounts"])
    kept = ~is_gone[owner]
    offsets = np.asarray(content["offsets"])
    held_by_gone = _held_items(content, ~kept)
    events, content["offsets"] = ranges(offsets[:-1][kept], offsets[1:][kept])
    content["accounts"] = [account for account, out in zip(content["accounts"], is_gone, strict=True) if not out]
    content["sequence_accounts"] = (np.cumsum(~is_gone) - 1)[owner[kept]]
    for name, rows in (("events", events), ("times", events), ("targets", kept), ("parts", kept), ("members", events)):
        if content.get(name) is not None:
            content[name] = np.asarray(content[name])[rows]
    if content.get("members") is not None:
        _drop_unused_members(content)
    if content.get("contexts") is not None:
        content["contexts"] = content["contexts"].select(events)
    items = _drop_items(content, held_by_gone & ~_held_items(content, np.ones(int(kept.sum()), dtype=bool)))
    if content.get("catalogue"):
        content["catalogue"] = without_items(content["catalogue"], set(items) - set(content["items"]))
    return items


def _content(dataset: Dataset, members: Members | None) -> dict[str, Any]:
    """Return the arguments with which `write_dataset` writes the same data again."""
    manifest = dataset.manifest
    labels = {} if members is None else {"members": members.of_event, "member_names": members.names}
    return {
        **{name: manifest[name] for name in ("name", "kind", "source", "options")},
        "notes": [*(note for note in manifest["notes"] if REJECTED not in note and note != NOTE), NOTE],
        "counts": {name: 0 for name in manifest["counts"] if name == "rejected_rows"},
        "accounts": dataset.accounts,
        "items": dataset.items,
        "domains": dataset.domains,
        "offsets": dataset.offsets,
        "sequence_accounts": dataset.sequence_accounts,
        "events": dataset.events,
        "times": dataset.times,
        "targets": dataset.targets,
        "parts": dataset.parts,
        "catalogue": dataset.catalogue,
        "contexts": dataset.contexts,
        **labels,
    }


def _held_items(content: dict[str, Any], sequences: Booleans) -> Booleans:
    """Return which items these sequences hold, as an event or as a target."""
    held = np.zeros(len(content["items"]), dtype=bool)
    offsets = np.asarray(content["offsets"])
    held[np.asarray(content["events"])[np.repeat(sequences, np.diff(offsets))]] = True
    if content.get("targets") is not None:
        targets = np.asarray(content["targets"])[sequences]
        held[targets[targets >= 0]] = True
    return held


def _drop_items(content: dict[str, Any], dropped: Booleans) -> list[str]:
    """Remove items from the catalogue and renumber the others; each domain stays one range."""
    items, number = content["items"], np.cumsum(~dropped) - 1
    before = np.concatenate([[0], np.cumsum(~dropped)])
    content["items"] = [item for item, out in zip(items, dropped, strict=True) if not out]
    content["domains"] = [
        Domain(domain.name, int(before[domain.start]), int(before[domain.stop])) for domain in content["domains"]
    ]
    content["events"] = number[np.asarray(content["events"])]
    if content.get("targets") is not None:
        targets = np.asarray(content["targets"])
        content["targets"] = np.where(targets < 0, targets, number[np.maximum(targets, 0)])
    return [item for item, out in zip(items, dropped, strict=True) if out]


def _drop_unused_members(content: dict[str, Any]) -> None:
    labels = np.asarray(content["members"])
    there, place = np.unique(labels[labels >= 0], return_inverse=True)
    content["members"] = np.full_like(labels, -1)
    content["members"][labels >= 0] = place
    content["member_names"] = [content["member_names"][number] for number in there]

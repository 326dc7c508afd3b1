"""An account taken out of a prepared dataset, with all it did and with the labels of who acted in it."""

from pathlib import Path
from typing import Any

import numpy as np

from lightgc2n.data.dataset import MANIFEST, Dataset, load_dataset, verify_dataset, write_dataset
from lightgc2n.data.files import new_folder
from lightgc2n.data.members import Members, load_members
from lightgc2n.data.splits import ranges
from lightgc2n.errors import DataError

NOTE = "accounts were forgotten"
REJECTED = "rejected.tsv"  # bad rows as they stood in the source, those of anybody


def forget_in_dataset(folder: Path, account: str) -> dict[str, Any]:
    """Replaces the dataset in `folder` by one without the account and returns its manifest, with a new checksum.

    Items stay in the catalogue. A list of rejected rows goes, since it may name anybody.
    """
    folder = folder.resolve()  # a link goes on pointing at the dataset, and the old one does not stay behind it
    if not dataset_holds(folder, account):
        raise DataError(f"{folder}: holds no account {account!r}.")
    dataset, members = load_dataset(folder), load_members(folder)
    with new_folder(folder, force=True, marker=MANIFEST) as new:
        return write_dataset(new, **_without(dataset, members, dataset.accounts.index(account)))


def dataset_holds(folder: Path, account: str) -> bool:
    """Whether the account can be taken out of the dataset; one that would be empty without it is refused."""
    verify_dataset(folder)
    accounts = load_dataset(folder).accounts
    if accounts == [account]:
        raise DataError(f"{folder}: {account!r} is its only account. Remove the folder.")
    return account in accounts


def _without(dataset: Dataset, members: Members | None, gone: int) -> dict[str, Any]:
    """What `write_dataset` needs for the same data without one account."""
    owner = np.asarray(dataset.sequence_accounts)
    kept = owner != gone
    events, offsets = ranges(dataset.offsets[:-1][kept], dataset.offsets[1:][kept])
    manifest = dataset.manifest
    parts: dict[str, Any] = {
        **{name: manifest[name] for name in ("name", "kind", "source", "options")},
        "notes": [*(note for note in manifest["notes"] if REJECTED not in note and note != NOTE), NOTE],
        "counts": {name: 0 for name in manifest["counts"] if name == "rejected_rows"},
        "accounts": [one for place, one in enumerate(dataset.accounts) if place != gone],
        "items": dataset.items,
        "domains": dataset.domains,
        "offsets": offsets,
        "sequence_accounts": owner[kept] - (owner[kept] > gone),
        "events": dataset.events[events],
        "times": None if dataset.times is None else dataset.times[events],
        "targets": None if dataset.targets is None else dataset.targets[kept],
        "parts": None if dataset.parts is None else dataset.parts[kept],
    }
    return parts | _members_of(members, events)


def _members_of(members: Members | None, events: Any) -> dict[str, Any]:
    """Labels of the events that stay, and the names of those who are still among them."""
    if members is None:
        return {}
    labels = np.asarray(members.of_event)[events]
    there, place = np.unique(labels[labels >= 0], return_inverse=True)
    left = np.full_like(labels, -1)
    left[labels >= 0] = place
    return {"members": left, "member_names": [members.names[number] for number in there]}

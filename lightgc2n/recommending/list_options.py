"""How long a list is, and which items it may contain."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Dataset
from lightgc2n.errors import DataError, SettingError, option

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ListOptions:
    """The length of a list and its filters."""

    k: int
    exclude_seen: bool  # leave out the items of the history
    listed: Flags  # [M] which items may be listed


def list_options(
    dataset: Dataset,
    everything: Flags,
    k: int,
    exclude_seen: bool,
    allow: Iterable[str] | None = None,
    deny: Iterable[str] | None = None,
    domain: str | None = None,
) -> ListOptions:
    """Return the options for these filters; raise an error if an id is unknown or no item is left.

    Args:
        everything: True for every item; the options without filters share this array.
    """
    if k < 1:
        raise SettingError(f"k{option(' (-k)', '')} must be at least 1, found {k}.")
    if allow is None and deny is None and domain is None:
        return ListOptions(k, exclude_seen, everything)
    listed = np.ones(len(dataset.items), dtype=bool)
    if domain is not None:
        chosen = dataset.domain(domain)
        listed[: chosen.start] = listed[chosen.stop :] = False
    if allow is not None:
        allowed = np.zeros_like(listed)
        allowed[item_indices(dataset, (("allow", item) for item in allow))] = True
        listed &= allowed
    if deny is not None:
        listed[item_indices(dataset, (("deny", item) for item in deny))] = False
    if not listed.any():
        raise DataError("no item may be listed: allow, deny and domain together leave none.")
    return ListOptions(k, exclude_seen, listed)


def item_indices(dataset: Dataset, named: Iterable[tuple[str, str]]) -> list[int]:
    """Return the index of each item id.

    Args:
        named: pairs of the place that names an id, for the error message, and the id.
    """
    known, indices = dataset.item_index, []
    for where, item in named:
        if item not in known:
            raise DataError(f"{where}: item {item!r} is not in {dataset.name} ({len(known):,} items).")
        indices.append(known[item])
    return indices


def read_item_ids(path: Path, dataset: Dataset) -> list[str]:
    """Return the item ids of a file with one id a line; raise an error if the dataset does not have one of them."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError:
        raise DataError(f"{path}: not a text file in UTF-8. Write one item id a line.") from None
    ids = {number: line for number, line in enumerate(lines, start=1) if line}
    if not ids:
        raise DataError(f"{path}: holds no item id. Write one a line.")
    item_indices(dataset, ((f"{path}:{number}", item) for number, item in ids.items()))
    return list(ids.values())

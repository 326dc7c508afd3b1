"""Save and load a people finder: arrays in safetensors and the rest in JSON, in a folder written atomically.

finder.json           version, session gap, and scalars
finder.safetensors    item tables, contrast and count head
"""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from lightgc2n import __version__
from lightgc2n.errors import DataError
from lightgc2n.files.atomic_writes import new_folder
from lightgc2n.files.folder_kinds import FolderKind
from lightgc2n.people.count_people import FEATURES, OF_EVIDENCE, CountHead
from lightgc2n.people.finder import PeopleFinder
from lightgc2n.people.pair_evidence import Contrast, Learned
from lightgc2n.people.session_features import ItemTables

FACTS, ARRAYS = "finder.json", "finder.safetensors"
FINDER = FolderKind("people finder", FACTS, (ARRAYS,))
SCHEMA = 1
WEIGHTS = ("inward", "threshold", "outward", "straight", "constant")


def save_finder(finder: PeopleFinder, folder: Path, force: bool = False, of: dict[str, Any] | None = None) -> None:
    """Write the finder to a new folder.

    Args:
        of: the data it was trained on, ready for JSON; `load_finder` can check it.
    """
    facts = {"made_by": f"lightgc2n {__version__}", "schema": SCHEMA, "of": of, **numbers_of(finder)}
    with new_folder(folder, force, kind=FINDER) as new:
        (new / FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        save_file({name: np.ascontiguousarray(array) for name, array in arrays_of(finder).items()}, new / ARRAYS)


def load_finder(folder: Path, of: dict[str, Any] | None = None) -> PeopleFinder:
    """Load the finder that `save_finder` wrote; raise an error if it was trained on other data than `of`."""
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        if facts["schema"] != SCHEMA:
            raise DataError(f"{folder}: finder schema {facts['schema']}, this version reads {SCHEMA}. Train it again.")
        if of is not None and facts.get("of") != of:
            raise DataError(
                f"{folder}: the people finder there was trained on other data or another split. "
                f"Remove that folder to train it again."
            )
        return finder_of(facts, load_file(folder / ARRAYS))
    except FileNotFoundError as problem:
        raise DataError(f"{folder}: no people finder ({FACTS}, {ARRAYS}): {problem}.") from None
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as problem:
        raise DataError(f"{folder}: incomplete people finder: {problem!r}. Train it again.") from None


def numbers_of(finder: PeopleFinder) -> dict[str, Any]:
    """Return the scalars of the finder by name."""
    return {"gap": finder.gap, "prior": finder.learned.contrast.prior, "caution": finder.head.caution}


def arrays_of(finder: PeopleFinder) -> dict[str, Any]:
    """Return the arrays of the finder by name."""
    learned, contrast, head = finder.learned, finder.learned.contrast, finder.head
    tables = {f"tables.{field.name}": getattr(learned.tables, field.name) for field in fields(ItemTables)}
    named = {f"contrast.{name}": part for name, part in zip(WEIGHTS, contrast.weights, strict=True)}
    rest = {
        "fold": learned.fold,
        "traits.centre": learned.centre,
        "traits.spread": learned.spread,
        "contrast.centre": contrast.centre,
        "contrast.spread": contrast.spread,
        "count.centre": head.centre,
        "count.spread": head.spread,
        "count.weights": head.weights,
    }
    return {name: array for name, array in (tables | named | rest).items() if array is not None}


def finder_of(facts: dict[str, Any], arrays: dict[str, Any]) -> PeopleFinder:
    """Rebuild the finder from its scalars and arrays."""
    tables = ItemTables(
        arrays["tables.vectors"], arrays["tables.events"], arrays.get("tables.first"), arrays.get("tables.middle")
    )
    weights = tuple(arrays[f"contrast.{name}"] for name in WEIGHTS)
    contrast = Contrast(arrays["contrast.centre"], arrays["contrast.spread"], weights, float(facts["prior"]))
    learned = Learned(arrays["fold"], tables, arrays["traits.centre"], arrays["traits.spread"], contrast)
    head = CountHead(arrays["count.centre"], arrays["count.spread"], arrays["count.weights"], float(facts["caution"]))
    if len(head.centre) not in (OF_EVIDENCE, FEATURES):  # earlier versions counted from the evidence alone
        raise ValueError(
            f"the count head has {len(head.centre)} features, this version reads {OF_EVIDENCE} or {FEATURES}"
        )
    return PeopleFinder(learned, head, facts["gap"])

"""A finder on disk: arrays in safetensors, the rest in JSON beside them, in a folder that appears whole or not at all.

finder.json           what made it, the gap between sessions, and numbers that are no arrays
finder.safetensors    tables of items, contrast and count
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
from lightgc2n.people.contrast import Contrast
from lightgc2n.people.count_people import FEATURES, OF_EVIDENCE, CountHead
from lightgc2n.people.finder import PeopleFinder
from lightgc2n.people.pair_evidence import Learned
from lightgc2n.people.session_features import ItemTables

FACTS, ARRAYS = "finder.json", "finder.safetensors"
FINDER = FolderKind("people finder", FACTS, (ARRAYS,))
SCHEMA = 1
WEIGHTS = ("inward", "threshold", "outward", "straight", "constant")


def save_finder(finder: PeopleFinder, folder: Path, force: bool = False, of: dict[str, Any] | None = None) -> None:
    """Writes all that was learned to a new folder.

    Args:
        of: what it was learned from, ready for JSON; `load_finder` can be told to insist on it.
    """
    facts = {"made_by": f"lightgc2n {__version__}", "schema": SCHEMA, "of": of, **numbers_of(finder)}
    with new_folder(folder, force, kind=FINDER) as new:
        (new / FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        save_file({name: np.ascontiguousarray(array) for name, array in arrays_of(finder).items()}, new / ARRAYS)


def load_finder(folder: Path, of: dict[str, Any] | None = None) -> PeopleFinder:
    """The finder that `save_finder` wrote; one that was learned from something else than `of` is refused."""
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        if facts["schema"] != SCHEMA:
            raise DataError(f"{folder}: a finder of format {facts['schema']}, and this version reads {SCHEMA}.")
        if of is not None and facts.get("of") != of:
            raise DataError(
                f"{folder}: people are found there by what other data or another split taught. "
                f"Remove that folder, and it is learned anew."
            )
        return finder_of(facts, load_file(folder / ARRAYS))
    except FileNotFoundError as problem:
        raise DataError(f"{folder}: no finder of people ({FACTS}, {ARRAYS}): {problem}.") from None
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as problem:
        raise DataError(f"{folder}: not a whole finder of people: {problem!r}. Learn it again.") from None


def numbers_of(finder: PeopleFinder) -> dict[str, Any]:
    """What was learned and is no array, by name."""
    return {"gap": finder.gap, "prior": finder.learned.contrast.prior, "caution": finder.head.caution}


def arrays_of(finder: PeopleFinder) -> dict[str, Any]:
    """All that was learned, by name."""
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
    """The finder that has learned these arrays."""
    tables = ItemTables(
        arrays["tables.vectors"], arrays["tables.events"], arrays.get("tables.first"), arrays.get("tables.middle")
    )
    weights = tuple(arrays[f"contrast.{name}"] for name in WEIGHTS)
    contrast = Contrast(arrays["contrast.centre"], arrays["contrast.spread"], weights, float(facts["prior"]))
    learned = Learned(arrays["fold"], tables, arrays["traits.centre"], arrays["traits.spread"], contrast)
    head = CountHead(arrays["count.centre"], arrays["count.spread"], arrays["count.weights"], float(facts["caution"]))
    if len(head.centre) not in (OF_EVIDENCE, FEATURES):  # earlier versions counted by the evidence alone
        raise ValueError(f"counts by {len(head.centre)} numbers, and this version by {OF_EVIDENCE} or {FEATURES}")
    return PeopleFinder(learned, head, facts["gap"])

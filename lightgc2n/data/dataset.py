"""The prepared dataset: a folder of flat arrays that load by memory map with numpy alone.

    manifest.json          schema, source, counts, checksums
    accounts.txt items.txt one id a line, as given in the source; the line number is the index
    offsets.npy            int64 [S + 1]   sequence s holds the events offsets[s] to offsets[s + 1]
    sequence_accounts.npy  int32 [S]       the account of each sequence
    events.npy             int32 [E]       item of each event, oldest first within a sequence
    times.npy              int64 [E]       microseconds since 1970, if the source has times
    targets.npy            int32 [S, D]    next item of each domain (-1: none), if the source stores it separately
    parts.npy              uint8 [S]       0 train, 1 test, if the source is already split
    labels/                which member acted; only `data.members` reads it, for evaluation
    catalogue.jsonl        titles, categories, years and images of items, where given; not part of the checksum
    contexts.npy, .txt     the device or another column of each event, where it was named; not part of the checksum

Items are numbered across domains. Each domain is one contiguous range, so the item determines the domain.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lightgc2n import __version__
from lightgc2n.config import unknown_name
from lightgc2n.data.catalogue import CATALOGUE, Catalogue, CatalogueEntry, format_catalogue, parse_catalogue, titles_of
from lightgc2n.data.contexts import CONTEXT_NAMES, CONTEXTS, Contexts
from lightgc2n.errors import DataError, option
from lightgc2n.files.atomic_writes import sha256
from lightgc2n.files.folder_kinds import FolderKind
from lightgc2n.files.writer_lock import recover

SCHEMA = 1
MANIFEST = "manifest.json"
LABELS = "labels"
TRAIN_PART, TEST_PART = 0, 1
ARRAYS = ("offsets", "sequence_accounts", "events", "times", "targets", "parts")
REJECTED, FORGOTTEN = "rejected.tsv", "forgotten.json"  # the text of bad rows; hashes of forgotten accounts
DATASET = FolderKind(
    "prepared dataset",
    MANIFEST,
    (
        "accounts.txt",
        "items.txt",
        REJECTED,
        FORGOTTEN,
        CATALOGUE,
        CONTEXTS,
        CONTEXT_NAMES,
        f"{LABELS}/members.npy",
        f"{LABELS}/members.txt",
        *(f"{name}.npy" for name in ARRAYS),
    ),
)
MICROSECONDS = 1_000_000
TRIES = 5  # `forget` may replace the folder while it is read

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Domain:
    """One part of the catalogue: the items `start` to `stop`."""

    name: str
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class Dataset:
    """A prepared dataset. It holds no member labels, so no model can learn from them."""

    manifest: dict[str, Any]
    accounts: Sequence[str]
    items: Sequence[str]
    domains: tuple[Domain, ...]
    offsets: Longs
    sequence_accounts: Ints
    events: Ints
    times: Longs | None = None
    targets: Ints | None = None
    parts: npt.NDArray[np.uint8] | None = None
    catalogue_text: bytes = b""  # the content of the catalogue's file
    contexts: Contexts | None = None

    @property
    def name(self) -> str:
        return str(self.manifest["name"])

    @property
    def kind(self) -> str:
        """`logs` (all events of an account, in order) or `windows` (pieces of logs, the target last)."""
        return str(self.manifest["kind"])

    @property
    def checksum(self) -> str:
        """A checksum over all files but the catalogue and the contexts, so that these can be added later."""
        return str(self.manifest["checksum"])

    @property
    def lengths(self) -> Longs:
        return np.diff(self.offsets)

    @cached_property
    def event_domains(self) -> npt.NDArray[np.uint8]:
        """The domain of each event."""
        stops = np.array([domain.stop for domain in self.domains])
        return np.searchsorted(stops, self.events, side="right").astype(np.uint8)

    @cached_property
    def item_index(self) -> dict[str, int]:
        return {item: index for index, item in enumerate(self.items)}

    @cached_property
    def catalogue(self) -> dict[str, CatalogueEntry]:
        """Titles, categories, years and images by item id, where given; also of items without events."""
        return parse_catalogue(self.catalogue_text)

    @cached_property
    def titles(self) -> dict[str, str]:
        """The titles by item id, where known."""
        return titles_of(self.catalogue)

    def domain(self, name: str) -> Domain:
        for domain in self.domains:
            if domain.name == name:
                return domain
        raise DataError(f"{self.name}: {unknown_name('domain', name, [domain.name for domain in self.domains])}")

    def only(self, name: str) -> "Dataset":
        """Return the same accounts with the events of one domain; a separately stored target becomes the last event."""
        domain = self.domain(name)
        keep = (self.events >= domain.start) & (self.events < domain.stop)
        sequence_of_event = np.repeat(np.arange(len(self.sequence_accounts)), self.lengths)
        sequences, events = sequence_of_event[keep], self.events[keep] - domain.start
        times = self.times[keep] if self.times is not None else None
        contexts = self.contexts.select(keep) if self.contexts is not None and self.targets is None else None
        if self.targets is not None:
            target = self.targets[:, self.domains.index(domain)]
            known = np.flatnonzero(target >= 0)
            sequences = np.concatenate([sequences, known])
            events = np.concatenate([events, target[known] - domain.start])
            order = np.argsort(sequences, kind="stable")
            sequences, events, times = sequences[order], events[order], None
        counts = np.bincount(sequences, minlength=len(self.sequence_accounts))
        return replace(
            self,
            manifest=self.manifest | {"name": f"{self.name} {name}"},
            items=self.items[domain.start : domain.stop],
            domains=(Domain(name, 0, len(domain)),),
            offsets=np.concatenate([[0], np.cumsum(counts)]),
            events=events.astype(np.int32),
            times=times,
            targets=None,
            contexts=contexts,
        )


def write_dataset(
    folder: Path,
    *,
    name: str,
    kind: str,
    accounts: Sequence[str],
    items: Sequence[str],
    domains: Sequence[Domain],
    offsets: npt.NDArray[Any],
    sequence_accounts: npt.NDArray[Any],
    events: npt.NDArray[Any],
    times: npt.NDArray[Any] | None = None,
    targets: npt.NDArray[Any] | None = None,
    parts: npt.NDArray[Any] | None = None,
    members: npt.NDArray[Any] | None = None,
    member_names: Sequence[str] = (),
    source: Any = None,
    options: dict[str, Any] | None = None,
    notes: Sequence[str] = (),
    counts: dict[str, int] | None = None,
    catalogue: Catalogue | None = None,
    contexts: Contexts | None = None,
) -> dict[str, Any]:
    """Write all files into `folder` and return the manifest. Use `new_folder` to make that atomic.

    Args:
        source: the origin of the data; copied into the manifest.
        options: the settings it was made with; copied into the manifest.
        notes: sentences that a reader of the data should know; copied into the manifest.
        counts: more counts for the manifest, for example of rejected rows.
        members: for each event an index into `member_names`, -1 where unknown.
    """
    arrays = {
        "offsets": (offsets, np.int64),
        "sequence_accounts": (sequence_accounts, np.int32),
        "events": (events, np.int32),
        "times": (times, np.int64),
        "targets": (targets, np.int32),
        "parts": (parts, np.uint8),
        f"{LABELS}/members": (members, np.int32),
    }
    if members is not None:
        (folder / LABELS).mkdir(exist_ok=True)
        write_ids(folder / LABELS / "members.txt", member_names)
    write_ids(folder / "accounts.txt", accounts)
    write_ids(folder / "items.txt", items)
    for file, (array, dtype) in arrays.items():
        if array is not None:
            save_array(folder / f"{file}.npy", np.asarray(array, dtype=dtype))
    files = {str(path.relative_to(folder)): _file_facts(path) for path in sorted(folder.rglob("*")) if path.is_file()}
    described = {"catalogue": _write_catalogue(folder, catalogue, items)} if catalogue else {}
    described |= {"contexts": _write_contexts(folder, contexts)} if contexts is not None else {}
    per_account = np.bincount(sequence_accounts, weights=np.diff(offsets), minlength=len(accounts))
    manifest = {
        "schema": SCHEMA,
        "made_by": f"lightgc2n {__version__}",
        "name": name.encode("utf-8", "replace").decode("utf-8"),  # a folder may have a name that is no text
        "kind": kind,
        "source": source,
        "options": options or {},
        "notes": list(notes),
        "domains": [{"name": domain.name, "start": domain.start, "stop": domain.stop} for domain in domains],
        "counts": {
            "accounts": len(accounts),
            "accounts_with_events": int((per_account > 0).sum()),
            "accounts_with_one_event": int((per_account == 1).sum()),
            "sequences": len(sequence_accounts),
            "events": len(events),
            "items": len(items),
        }
        | (counts or {}),
        "files": files,
        "checksum": _combined_checksum(files),
        **described,
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return manifest


def load_dataset(folder: Path) -> Dataset:
    """Load the dataset in `folder` with memory-mapped arrays. Raise an error if it is damaged or not a dataset."""
    recover(folder)
    for _ in range(TRIES):
        before = _inode(folder)
        try:
            dataset = _load(folder)
        except DataError:
            if _inode(folder) == before:
                raise
        else:
            if _inode(folder) == before:
                return dataset
    raise DataError(f"{folder}: another process replaced it {TRIES} times during loading. Try again.")


def _inode(folder: Path) -> int | None:
    """Return a number that changes when another folder replaces this one."""
    return folder.stat().st_ino if folder.exists() else None


def _load(folder: Path) -> Dataset:
    manifest = _read_manifest(folder)
    for file, facts in _all_files(manifest).items():
        path = folder / file
        if not path.is_file() or path.stat().st_size != facts["bytes"]:
            raise DataError(f"{path}: missing, or not {facts['bytes']:,} bytes as in the manifest. Import it again.")
    try:
        arrays = {
            name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            for name in ARRAYS
            if f"{name}.npy" in manifest["files"]
        }
        return Dataset(
            manifest=manifest,
            accounts=read_ids(folder / "accounts.txt"),
            items=read_ids(folder / "items.txt"),
            domains=tuple(Domain(**domain) for domain in manifest["domains"]),
            catalogue_text=(folder / CATALOGUE).read_bytes() if "catalogue" in manifest else b"",
            contexts=_read_contexts(folder, manifest),
            **arrays,
        )
    except (ValueError, KeyError, TypeError) as problem:
        raise DataError(f"{folder}: damaged: {problem}. Import it again.") from None


def verify_dataset(folder: Path) -> None:
    """Raise an error if a file has changed since the dataset was written."""
    for file, facts in _all_files(_read_manifest(folder)).items():
        if not (folder / file).is_file():
            raise DataError(f"{folder / file}: missing. Import it again.")
        checksum = sha256(folder / file)
        if checksum != facts["sha256"]:
            raise DataError(
                f"{folder / file}: checksum {checksum[:12]}…, expected {facts['sha256'][:12]}…. Import it again."
            )


def stored_checksum(folder: Path) -> str:
    """Return the checksum of the dataset that is in `folder` now, without loading it."""
    recover(folder)
    return str(_read_manifest(folder)["checksum"])


def read_ids(path: Path) -> list[str]:
    """Return the ids of a vocabulary file, in order."""
    text = path.read_bytes().decode("utf-8")
    return text.split("\n")[:-1]


def write_ids(path: Path, ids: Iterable[str]) -> None:
    path.write_bytes("".join(f"{one}\n" for one in ids).encode("utf-8"))


def _advice(folder: Path) -> str:
    """Return how to get a dataset, where something else is in its place; the advice never replaces what is there."""
    if folder.is_file():
        stem = folder.name.split(".")[0]
        make = option(f"lightgc2n import {folder} --out {stem}", f"lightgc2n.Dataset.from_path({str(folder)!r})")
        return f"It is a file; import it to a new folder: {make}"
    if (folder / "run.json").is_file():
        return f"It is a run; its dataset is the folder that {folder / 'run.json'} names."
    if (folder / "config.json").is_file():
        return "It is a bundle, which holds no dataset."
    out = "DIR" if folder.exists() else folder
    make = option(f"lightgc2n import SOURCE --out {out}", "lightgc2n.Dataset.from_path(SOURCE)")
    return f"Make one with: {make}"


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        raise DataError(f"{folder}: not a prepared dataset (no {MANIFEST}). {_advice(folder)}")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        schema, checksum, made = manifest["schema"], manifest["checksum"], _combined_checksum(manifest["files"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DataError(f"{path}: not a manifest of a prepared dataset. Import it again.") from None
    if schema != SCHEMA:
        raise DataError(f"{path}: schema {schema!r}, this version reads {SCHEMA}. Import it again.")
    if checksum != made:
        raise DataError(f"{path}: its checksum does not match its list of files. Import it again.")
    return dict(manifest)


def _all_files(manifest: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the facts of every file, also of those that the checksum leaves out."""
    catalogue = {CATALOGUE: manifest["catalogue"]} if "catalogue" in manifest else {}
    return manifest["files"] | catalogue | manifest.get("contexts", {}).get("files", {})


def _write_catalogue(folder: Path, catalogue: Catalogue, items: Sequence[str]) -> dict[str, Any]:
    """Write the catalogue and return its facts for the manifest."""
    (folder / CATALOGUE).write_bytes(format_catalogue(catalogue))
    counts = {"items": len(catalogue), "items_without_events": len(set(catalogue) - set(items))}
    return counts | _file_facts(folder / CATALOGUE)


def _write_contexts(folder: Path, contexts: Contexts) -> dict[str, Any]:
    """Write the contexts and return their facts for the manifest."""
    save_array(folder / CONTEXTS, np.asarray(contexts.of_event, dtype=np.int32))
    write_ids(folder / CONTEXT_NAMES, contexts.names)
    return {
        "column": contexts.column,
        "files": {name: _file_facts(folder / name) for name in (CONTEXTS, CONTEXT_NAMES)},
    }


def _read_contexts(folder: Path, manifest: dict[str, Any]) -> Contexts | None:
    if "contexts" not in manifest:
        return None
    of_event = np.load(folder / CONTEXTS, mmap_mode="r", allow_pickle=False)
    return Contexts(read_ids(folder / CONTEXT_NAMES), of_event, str(manifest["contexts"]["column"]))


def _file_facts(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": sha256(path)}


def _combined_checksum(files: dict[str, dict[str, Any]]) -> str:
    lines = "".join(f"{facts['sha256']}  {file}\n" for file, facts in sorted(files.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def save_array(path: Path, array: npt.NDArray[Any]) -> None:
    """Write an array as `np.save` does, but keep the system's error.

    On a full disk `np.save` raises an `OSError` without an error number, so callers cannot recognise it.
    """
    array = np.asarray(array, order="C")
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        file.write(array.data)

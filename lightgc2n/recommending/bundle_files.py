"""The files of a bundle, which are verified before any of them is used.

config.json          format, schema, model, settings, data
README.md            the model card
model.onnx           history in, best items out; its weights are in the next file
weights.safetensors  the weights
items.txt            one item id a line; the line number is the index
titles.tsv           item titles, where known
catalogue.jsonl      categories, years and images of items, where known
people/              the people finder, unless it was left out
  finder.json          its scalars, and constants for the page's JavaScript
  finder.safetensors   its item tables and weights
SHA256SUMS           the checksum of every file above, as sha256sum writes it
server/              account data, never sent to clients; the bundle works without it
  server.json          the checksum of its device part
  accounts.txt         one account id a line
  histories.safetensors  the events of each account, with times
  vectors.safetensors  account vectors, for models that have them
  people.safetensors   the fold of each account, and the item tables of the other folds
  SHA256SUMS           the checksum of every file of this part

Files are opened as files of an untrusted folder: regular files only, and never through a symbolic link.
"""

import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

from lightgc2n.errors import DataError
from lightgc2n.files.atomic_writes import sha256
from lightgc2n.files.folder_kinds import FolderKind, kind_found
from lightgc2n.files.writer_lock import recover
from lightgc2n.recommending.bundle_schema import EXPORT, EXPORT_AGAIN, SERVER_FIELDS, check_config

FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
LINKS = (errno.ELOOP, errno.EMLINK, errno.ENOTDIR, errno.ENXIO)  # errors of open() for a link or a socket
LONGEST_TEXT = 2**20
State = tuple[int, ...]
FORMAT, SCHEMA = "lightgc2n bundle", 3
OLDEST_SCHEMA = max(1, SCHEMA - 1)  # this version reads the previous schema too
CONFIG, CARD, GRAPH, WEIGHTS, ITEMS, TITLES, CATALOGUE = (
    "config.json", "README.md", "model.onnx", "weights.safetensors", "items.txt", "titles.tsv", "catalogue.jsonl",
)  # fmt: skip
SERVER, SERVER_FACTS, ACCOUNTS = "server", "server.json", "accounts.txt"
HISTORIES, VECTORS, ACCOUNT_TABLES = "histories.safetensors", "vectors.safetensors", "people.safetensors"
PEOPLE = "people"
FINDER_FACTS, FINDER = f"{PEOPLE}/finder.json", f"{PEOPLE}/finder.safetensors"
SUMS = "SHA256SUMS"
DEVICE_FILES, SERVER_FILES = frozenset({CONFIG, CARD, GRAPH, WEIGHTS, ITEMS}), frozenset({SERVER_FACTS, ACCOUNTS})
# A file in the folder or in people/, never elsewhere.
LONGEST_JSON, LONGEST_NAME = 2**20, 100
NAME = re.compile(rf"({PEOPLE}/)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
BUNDLE = FolderKind(
    "bundle",
    CONFIG,
    (
        CARD,
        GRAPH,
        WEIGHTS,
        ITEMS,
        TITLES,
        CATALOGUE,
        FINDER_FACTS,
        FINDER,
        SUMS,
        *(f"{SERVER}/{name}" for name in (SERVER_FACTS, ACCOUNTS, HISTORIES, VECTORS, ACCOUNT_TABLES, SUMS)),
    ),
)


def open_regular(folder: Path, name: str) -> BufferedReader:
    """Open a regular file below `folder`; no part of its name may be a link, and a FIFO does not block."""
    *parents, last = name.split("/")
    try:
        handle = _open_below(folder, parents, last)
    except FileNotFoundError:
        raise DataError(f"{folder / name}: missing. {EXPORT_AGAIN}") from None
    except OSError as problem:
        if problem.errno in LINKS:
            raise _not_regular(folder / name) from None
        raise DataError(f"{folder / name}: cannot be read: {problem.strerror}.") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _not_regular(folder / name)
    return os.fdopen(handle, "rb")


def _open_below(folder: Path, parents: list[str], last: str) -> int:
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)  # the folder itself may be a link
    try:
        for parent in parents:
            below = os.open(parent, FLAGS | os.O_DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = below
        return os.open(last, FLAGS | os.O_NONBLOCK, dir_fd=directory)
    finally:
        os.close(directory)


def read_regular(folder: Path, name: str, longest: int = LONGEST_TEXT) -> bytes:
    """The content of a regular file below `folder`; raise an error if it is longer than this."""
    with open_regular(folder, name) as file:
        data = file.read(longest + 1)
    if len(data) > longest:
        raise DataError(f"{folder / name}: damaged: longer than {longest:,} bytes.")
    return data


def state_of(file: BufferedReader) -> State:
    """A value that changes when the file is replaced or rewritten."""
    status = os.fstat(file.fileno())
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def refuse_links(folder: Path) -> None:
    """Raise an error if the folder contains anything but regular files and folders."""
    for where, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(where, name)
            try:
                mode = path.lstat().st_mode
            except FileNotFoundError:
                continue
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise _not_regular(path)


def _not_regular(path: Path) -> DataError:
    return DataError(
        f"{path}: a link, or no regular file: everything in a bundle must be a regular file. "
        f"Copy the file itself there (cp -L); the bundle folder may be a link."
    )


@dataclass(frozen=True)
class BundleFiles:
    """A bundle whose checksums were verified."""

    folder: Path  # the resolved path
    config: dict[str, Any]
    device: frozenset[str]  # file names of the device part
    server: frozenset[str]  # and of the server part; empty if it was left out
    checksum: str  # of both parts
    accounts: int  # the number that server.json declares
    states: dict[str, State]  # of each file when its checksum was computed
    population: dict[str, Any] | None = None  # of server.json: how many people the accounts have

    def read(self, name: str) -> bytes:
        """The content of a file; raise an error if it changed since its checksum was verified."""
        with open_regular(self.folder, name) as file:
            _check_state(self.folder / name, name, state_of(file), self.states)
            return file.read()

    def read_text(self, name: str) -> str:
        """The content of a file as text."""
        try:
            return self.read(name).decode("utf-8")
        except UnicodeDecodeError:
            raise DataError(
                f"{self.folder / name}: expected text in UTF-8, found other bytes. {EXPORT_AGAIN}"
            ) from None

    def read_ids(self, name: str) -> list[str]:
        """The lines of a file."""
        text = self.read_text(name)
        if text and not text.endswith("\n"):
            raise DataError(f"{self.folder / name}: expected whole lines, found one without an end. {EXPORT_AGAIN}")
        return text.split("\n")[:-1]

    def read_json(self, name: str) -> dict[str, Any]:
        """The JSON object of a file."""
        return _read_json(self.folder, name, self.states)

    def refuse_changed(self) -> None:
        """Raise an error if a file changed since it was verified: safetensors and onnxruntime open files by name."""
        for name in self.states:
            with open_regular(self.folder, name) as file:
                _check_state(self.folder / name, name, state_of(file), self.states)


def is_bundle(folder: Path) -> bool:
    """Whether a folder looks like a bundle, valid or not."""
    return any((folder / name).is_file() for name in (GRAPH, SUMS, CONFIG))


def open_bundle(folder: Path) -> BundleFiles:
    """Verify the bundle in `folder`; raise an error if it is damaged, not a bundle, or of another schema."""
    recover(folder)
    folder = Path(os.path.realpath(folder))
    states: dict[str, State] = {}
    config = _config(folder, states)
    refuse_links(folder)
    device, checksum = _verified(folder, "", config, CONFIG, DEVICE_FILES, states)
    check_config(config, str(folder / CONFIG))
    if not (folder / SERVER).exists():
        return BundleFiles(folder, config, device, frozenset(), checksum, 0, states)
    facts = _read_json(folder, f"{SERVER}/{SERVER_FACTS}", states)
    server, second = _verified(folder, f"{SERVER}/", facts, SERVER_FACTS, SERVER_FILES, states)
    SERVER_FIELDS.check(facts, f"{folder / SERVER / SERVER_FACTS}: ")
    if facts["device"] != checksum:
        raise DataError(f"{folder / SERVER}: belongs to another device part. Keep the two of one export together.")
    return BundleFiles(
        folder, config, device, server, _of_both(checksum, second), facts["accounts"], states, facts.get("population")
    )


def device_checksum(folder: Path) -> str:
    """The checksum of the device part."""
    return sha256(folder / SUMS)


def _of_both(device: str, server: str) -> str:
    """The checksum of both parts, which `sha256sum SHA256SUMS server/SHA256SUMS | sha256sum` computes too."""
    return hashlib.sha256(f"{device}  {SUMS}\n{server}  {SERVER}/{SUMS}\n".encode("ascii")).hexdigest()


def part_sizes(folder: Path) -> dict[str, int]:
    """The size of each part in bytes: device part, people finder, ids and titles, server part."""
    ids = sum((folder / name).stat().st_size for name in (ITEMS, TITLES, CATALOGUE) if (folder / name).is_file())
    device = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    people, server = (sum(path.stat().st_size for path in (folder / part).glob("*")) for part in (PEOPLE, SERVER))
    whole = {"device part without vocabularies": device - ids + people, "people in it": people}
    return whole | {"vocabularies": ids, "server part": server}


def write_manifest(folder: Path, name: str, facts: dict[str, Any]) -> None:
    """Write the JSON file of a part, with the list of its other files, and their checksums."""
    paths = [*folder.iterdir(), *(folder / PEOPLE).glob("*")]
    files = sorted(path.relative_to(folder).as_posix() for path in paths if path.is_file())
    files = [file for file in files if file not in (name, SUMS)]
    text = json.dumps({**facts, "files": files}, indent=1, ensure_ascii=False) + "\n"
    (folder / name).write_bytes(text.encode("utf-8"))
    (folder / SUMS).write_bytes(_sums(folder, [*files, name]).encode("ascii"))


def read_json(path: Path) -> dict[str, Any]:
    """A small JSON object."""
    return _read_json(path.parent, path.name, {})


def _read_json(folder: Path, name: str, states: dict[str, State]) -> dict[str, Any]:
    with open_regular(folder, name) as file:
        _check_state(folder / name, name, state_of(file), states)
        data = file.read(LONGEST_JSON + 1)
    try:
        if len(data) > LONGEST_JSON:
            raise ValueError
        return dict(json.loads(data.decode("utf-8")))
    except (ValueError, TypeError, RecursionError):
        raise DataError(f"{folder / name}: damaged, or not of a bundle. {EXPORT_AGAIN}") from None


def _check_state(path: Path, name: str, state: State, states: dict[str, State]) -> None:
    """Record the state of a file; raise an error if it differs from the recorded one."""
    if states.setdefault(name, state) != state:
        raise DataError(f"{path}: changed while the bundle was being read. Try again.")


def _config(folder: Path, states: dict[str, State]) -> dict[str, Any]:
    if not os.path.lexists(folder / CONFIG):
        raise DataError(f"{folder}: not a bundle (no {CONFIG}). {kind_found(folder)}Make a bundle with: {EXPORT}.")
    config = _read_json(folder, CONFIG, states)
    if config.get("format") != FORMAT:
        raise DataError(f"{folder / CONFIG}: not that of a bundle (no format {FORMAT!r}). {EXPORT_AGAIN}")
    schema = config.get("schema")
    if type(schema) is not int or schema < OLDEST_SCHEMA:
        raise DataError(f"{folder}: bundle of schema {schema!r}, this version reads {_readable()}. {EXPORT_AGAIN}")
    if schema > SCHEMA:
        made_by = str(config.get("made_by"))[:80]
        raise DataError(
            f"{folder}: bundle of schema {schema}, made by {made_by}; this version reads {_readable()}. "
            f"Install a newer lightgc2n, or export the run with this one."
        )
    return config


def _readable() -> str:
    return str(SCHEMA) if OLDEST_SCHEMA == SCHEMA else f"{OLDEST_SCHEMA} and {SCHEMA}"


def _verified(
    folder: Path, part: str, facts: dict[str, Any], source: str, needed: frozenset[str], states: dict[str, State]
) -> tuple[frozenset[str], str]:
    """Verify the files that `facts` lists; return their names and the checksum of SHA256SUMS.

    Args:
        part: the prefix of all names: empty, or the folder of the server part.
        states: receives the state of each file.
    """
    listed = facts.get("files")
    if not isinstance(listed, list) or not all(map(_is_name, listed)):
        raise DataError(f"{folder / part / source}: files: damaged: it does not list its files. {EXPORT_AGAIN}")
    names, sums = needed | set(listed), read_regular(folder, f"{part}{SUMS}")
    lines = [f"{_digest(folder, f'{part}{name}', states)}  {name}\n".encode("ascii") for name in sorted(names)]
    if b"".join(lines) != sums:
        wrong = sorted({line.decode("ascii").strip()[66:] for line in {*lines} - {*sums.splitlines(keepends=True)}})
        which = f" ({', '.join(wrong)})" if wrong else f" ({SUMS})"
        raise DataError(f"{folder / part}: checksum differs from SHA256SUMS{which}. {EXPORT_AGAIN}")
    return frozenset(names), hashlib.sha256(sums).hexdigest()


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and len(name) <= LONGEST_NAME and NAME.fullmatch(name) is not None


def _digest(folder: Path, name: str, states: dict[str, State]) -> str:
    with open_regular(folder, name) as file:
        _check_state(folder / name, name, state_of(file), states)
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sums(folder: Path, names: Iterable[str]) -> str:
    return "".join(f"{sha256(folder / name)}  {name}\n" for name in sorted(set(names)))

"""The folder of a bundle, which is checked before anything in it is used.

config.json          what this is: format, schema, model, settings, data
README.md            the model card
model.onnx           history in, best items out; its weights are in the next file
weights.safetensors  everything learned, once
items.txt            one item id a line; the line number is the index
titles.tsv           what items are called, where somebody said it
people/              what finds the people behind a history, unless it was left out
  finder.json          numbers that are no arrays
  finder.safetensors   tables of items, contrast and count
SHA256SUMS           the checksum of every file above, as sha256sum writes it
server/              accounts: nothing of it belongs on a phone; without it the bundle is whole
  server.json          which device part it belongs to
  accounts.txt         one account id a line
  histories.safetensors  what each account did, and when
  vectors.safetensors  where each account starts, for models that have a vector for it
  people.safetensors   which tables of items describe each account, and those that people/ does not have
  SHA256SUMS           likewise
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightgc2n.errors import DataError
from lightgc2n.files.atomic_writes import sha256
from lightgc2n.files.folder_kinds import FolderKind
from lightgc2n.files.writer_lock import recover
from lightgc2n.recommending.bundle_schema import SERVER_FIELDS, check_config
from lightgc2n.recommending.regular_files import State, open_plain, read_plain, refuse_links, state_of
from lightgc2n.recommending.schema_checks import AGAIN

FORMAT, SCHEMA = "lightgc2n bundle", 3
OLDEST_SCHEMA = max(1, SCHEMA - 1)  # this version reads the previous schema too
CONFIG, CARD, GRAPH, WEIGHTS, ITEMS, TITLES = (
    "config.json", "README.md", "model.onnx", "weights.safetensors", "items.txt", "titles.tsv",
)  # fmt: skip
SERVER, SERVER_FACTS, ACCOUNTS = "server", "server.json", "accounts.txt"
HISTORIES, VECTORS, ACCOUNT_TABLES = "histories.safetensors", "vectors.safetensors", "people.safetensors"
PEOPLE = "people"
FINDER_FACTS, FINDER = f"{PEOPLE}/finder.json", f"{PEOPLE}/finder.safetensors"
SUMS = "SHA256SUMS"
DEVICE_FILES, SERVER_FILES = frozenset({CONFIG, CARD, GRAPH, WEIGHTS, ITEMS}), frozenset({SERVER_FACTS, ACCOUNTS})
# Of a file in the folder or among those that find people, never of one elsewhere.
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
        FINDER_FACTS,
        FINDER,
        SUMS,
        *(f"{SERVER}/{name}" for name in (SERVER_FACTS, ACCOUNTS, HISTORIES, VECTORS, ACCOUNT_TABLES, SUMS)),
    ),
)


@dataclass(frozen=True)
class BundleFiles:
    """A bundle whose files are what they were when it was written."""

    folder: Path  # the folder itself, whatever link led to it
    config: dict[str, Any]
    device: frozenset[str]  # names of the files of the device part
    server: frozenset[str]  # and of the server part; none where it was left out
    checksum: str  # one for everything that can answer: both parts
    accounts: int  # how many the server part says it has
    states: dict[str, State]  # of each file, when its checksum was computed

    def read(self, name: str) -> bytes:
        """The content of one of the files, which is still the one that was checked."""
        with open_plain(self.folder, name) as file:
            _note(self.folder / name, name, state_of(file), self.states)
            return file.read()

    def read_text(self, name: str) -> str:
        """The same as text."""
        try:
            return self.read(name).decode("utf-8")
        except UnicodeDecodeError:
            raise DataError(f"{self.folder / name}: expected text in UTF-8, found other bytes. {AGAIN}") from None

    def read_ids(self, name: str) -> list[str]:
        """The lines of one of the files."""
        text = self.read_text(name)
        if text and not text.endswith("\n"):
            raise DataError(f"{self.folder / name}: expected whole lines, found one without an end. {AGAIN}")
        return text.split("\n")[:-1]

    def read_json(self, name: str) -> dict[str, Any]:
        """The JSON object of one of the files."""
        return _facts(self.folder, name, self.states)

    def refuse_changed(self) -> None:
        """Raises an error when a file is not the one that was checked: some are opened by their names."""
        for name in self.states:
            with open_plain(self.folder, name) as file:
                _note(self.folder / name, name, state_of(file), self.states)


def is_bundle(folder: Path) -> bool:
    """Whether a folder is meant to be a bundle, sound or not."""
    return any((folder / name).is_file() for name in (GRAPH, SUMS, CONFIG))


def open_bundle(folder: Path) -> BundleFiles:
    """The bundle in `folder`; one that is damaged, foreign or of another schema is refused."""
    recover(folder)
    folder = Path(os.path.realpath(folder))
    states: dict[str, State] = {}
    config = _config(folder, states)
    refuse_links(folder)
    device, checksum = _verified(folder, "", config, CONFIG, DEVICE_FILES, states)
    check_config(config, str(folder / CONFIG))
    if not (folder / SERVER).exists():
        return BundleFiles(folder, config, device, frozenset(), checksum, 0, states)
    facts = _facts(folder, f"{SERVER}/{SERVER_FACTS}", states)
    server, second = _verified(folder, f"{SERVER}/", facts, SERVER_FACTS, SERVER_FILES, states)
    SERVER_FIELDS.check(facts, f"{folder / SERVER / SERVER_FACTS}: ")
    if facts["device"] != checksum:
        raise DataError(f"{folder / SERVER}: belongs to another device part. Keep the two of one export together.")
    return BundleFiles(folder, config, device, server, _of_both(checksum, second), facts["accounts"], states)


def device_checksum(folder: Path) -> str:
    """One checksum for the whole device part."""
    return sha256(folder / SUMS)


def _of_both(device: str, server: str) -> str:
    """One checksum for both parts, which `sha256sum SHA256SUMS server/SHA256SUMS | sha256sum` computes too."""
    return hashlib.sha256(f"{device}  {SUMS}\n{server}  {SERVER}/{SUMS}\n".encode("ascii")).hexdigest()


def part_sizes(folder: Path) -> dict[str, int]:
    """How many bytes each part has: the device part, what finds people in it, its vocabularies, the server part."""
    ids = sum((folder / name).stat().st_size for name in (ITEMS, TITLES) if (folder / name).is_file())
    device = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    people, server = (sum(path.stat().st_size for path in (folder / part).glob("*")) for part in (PEOPLE, SERVER))
    whole = {"device part without vocabularies": device - ids + people, "people in it": people}
    return whole | {"vocabularies": ids, "server part": server}


def write_facts(folder: Path, name: str, facts: dict[str, Any]) -> None:
    """Writes what is to be said of a part whose other files are there, the list of them, and all checksums."""
    paths = [*folder.iterdir(), *(folder / PEOPLE).glob("*")]
    files = sorted(path.relative_to(folder).as_posix() for path in paths if path.is_file())
    files = [file for file in files if file not in (name, SUMS)]
    text = json.dumps({**facts, "files": files}, indent=1, ensure_ascii=False) + "\n"
    (folder / name).write_bytes(text.encode("utf-8"))
    (folder / SUMS).write_bytes(_sums(folder, [*files, name]).encode("ascii"))


def read_json(path: Path) -> dict[str, Any]:
    """A small JSON object."""
    return _facts(path.parent, path.name, {})


def _facts(folder: Path, name: str, states: dict[str, State]) -> dict[str, Any]:
    with open_plain(folder, name) as file:
        _note(folder / name, name, state_of(file), states)
        data = file.read(LONGEST_JSON + 1)
    try:
        if len(data) > LONGEST_JSON:
            raise ValueError
        return dict(json.loads(data.decode("utf-8")))
    except (ValueError, TypeError, RecursionError):
        raise DataError(f"{folder / name}: damaged, or not of a bundle. {AGAIN}") from None


def _note(path: Path, name: str, found: State, states: dict[str, State]) -> None:
    """Keeps the state of a file, which must be the one that it had before."""
    if states.setdefault(name, found) != found:
        raise DataError(f"{path}: changed while the bundle was being read. Try again.")


def _config(folder: Path, states: dict[str, State]) -> dict[str, Any]:
    if not os.path.lexists(folder / CONFIG):
        raise DataError(f"{folder}: not a bundle (no {CONFIG}). {AGAIN}")
    config = _facts(folder, CONFIG, states)
    if config.get("format") != FORMAT:
        raise DataError(f"{folder / CONFIG}: not that of a bundle (no format {FORMAT!r}). {AGAIN}")
    schema = config.get("schema")
    if type(schema) is not int or schema < OLDEST_SCHEMA:
        raise DataError(f"{folder}: bundle of schema {schema!r}, this version reads {_readable()}. {AGAIN}")
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
    """The names of the files that `facts` lists, and the checksum of their list; all are what they were.

    Args:
        part: the beginning of all names: of the server part its folder.
        states: takes the state of each file.
    """
    listed = facts.get("files")
    if not isinstance(listed, list) or not all(map(_is_name, listed)):
        raise DataError(f"{folder / part / source}: files: damaged: it does not list its files. {AGAIN}")
    names, sums = needed | set(listed), read_plain(folder, f"{part}{SUMS}")
    lines = [f"{_digest(folder, f'{part}{name}', states)}  {name}\n".encode("ascii") for name in sorted(names)]
    if b"".join(lines) != sums:
        wrong = sorted({line.decode("ascii").strip()[66:] for line in {*lines} - {*sums.splitlines(keepends=True)}})
        which = f" ({', '.join(wrong)})" if wrong else f" ({SUMS})"
        raise DataError(f"{folder / part}: not what it was when it was written{which}. {AGAIN}")
    return frozenset(names), hashlib.sha256(sums).hexdigest()


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and len(name) <= LONGEST_NAME and NAME.fullmatch(name) is not None


def _digest(folder: Path, name: str, states: dict[str, State]) -> str:
    with open_plain(folder, name) as file:
        _note(folder / name, name, state_of(file), states)
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sums(folder: Path, names: Iterable[str]) -> str:
    return "".join(f"{sha256(folder / name)}  {name}\n" for name in sorted(set(names)))

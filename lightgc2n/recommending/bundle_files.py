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

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightgc2n.data.files import sha256
from lightgc2n.errors import DataError

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
NAME = re.compile(rf"({PEOPLE}/)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
LONGEST_JSON = 2**20
AGAIN = "Make it again with: lightgc2n export RUN --out BUNDLE."


@dataclass(frozen=True)
class BundleFiles:
    """A bundle whose files are what they were when it was written."""

    folder: Path
    config: dict[str, Any]
    device: frozenset[str]  # names of the files of the device part
    server: frozenset[str]  # and of the server part; none where it was left out


def is_bundle(folder: Path) -> bool:
    """Whether a folder is meant to be a bundle, sound or not."""
    return any((folder / name).is_file() for name in (GRAPH, SUMS, CONFIG))


def open_bundle(folder: Path) -> BundleFiles:
    """The bundle in `folder`; one that is damaged, foreign or of another schema is refused."""
    config = _config(folder)
    device = _verified(folder, config, CONFIG, DEVICE_FILES)
    server: frozenset[str] = frozenset()
    if (folder / SERVER).exists():
        facts = read_json(folder / SERVER / SERVER_FACTS)
        server = _verified(folder / SERVER, facts, SERVER_FACTS, SERVER_FILES)
        if facts.get("device") != identity(folder):
            raise DataError(f"{folder / SERVER}: belongs to another device part. Keep the two of one export together.")
    return BundleFiles(folder, config, device, server)


def identity(folder: Path) -> str:
    """One checksum for the whole device part."""
    return sha256(folder / SUMS)


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
    try:
        if path.stat().st_size > LONGEST_JSON:
            raise ValueError
        return dict(json.loads(path.read_bytes().decode("utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        raise DataError(f"{path}: damaged, or not of a bundle. {AGAIN}") from None


def _config(folder: Path) -> dict[str, Any]:
    if not (folder / CONFIG).is_file():
        raise DataError(f"{folder}: not a bundle (no {CONFIG}). {AGAIN}")
    config = read_json(folder / CONFIG)
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


def _verified(folder: Path, facts: dict[str, Any], source: str, needed: frozenset[str]) -> frozenset[str]:
    """The names of the files that `facts` lists; all are there, and all are what they were."""
    listed = facts.get("files")
    if not isinstance(listed, list) or not all(isinstance(name, str) and NAME.fullmatch(name) for name in listed):
        raise DataError(f"{folder / source}: damaged: it does not list its files. {AGAIN}")
    names = needed | set(listed)
    for name in sorted({*names, SUMS}):
        if not (folder / name).is_file():
            raise DataError(f"{folder / name}: missing. {AGAIN}")
    found, wanted = _sums(folder, names).encode("ascii"), (folder / SUMS).read_bytes()
    if found != wanted:
        wrong = sorted(line.decode("ascii")[66:] for line in {*found.splitlines()} - {*wanted.splitlines()})
        which = f" ({', '.join(wrong)})" if wrong else ""
        raise DataError(f"{folder}: not what it was when it was written{which}. {AGAIN}")
    return names


def _sums(folder: Path, names: Iterable[str]) -> str:
    return "".join(f"{sha256(folder / name)}  {name}\n" for name in sorted(set(names)))

"""Salted hashes of forgotten accounts: `import` leaves these accounts out, and the file contains no ids.

The salt is in the file. The hashes hide ids from readers, but not from someone who can guess the ids.
"""

import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightgc2n import __version__
from lightgc2n.data.dataset import FORGOTTEN
from lightgc2n.errors import DataError, OutputError
from lightgc2n.files.atomic_writes import new_file
from lightgc2n.files.folder_kinds import MADE_BY, FolderKind
from lightgc2n.files.writer_lock import sole_writer

TOMBSTONES = FolderKind("tombstone file", "")
SALT, HASH = re.compile(r"[0-9a-f]{32}"), re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Tombstones:
    """The hashes of forgotten accounts, made with one salt."""

    salt: bytes
    hashes: frozenset[str] = frozenset()

    def __contains__(self, account: str) -> bool:
        return bool(self.hashes) and self._hash(account) in self.hashes

    def __len__(self) -> int:
        return len(self.hashes)

    def with_accounts(self, accounts: Iterable[str]) -> "Tombstones":
        """Return these tombstones with more accounts."""
        return Tombstones(self.salt, self.hashes | {self._hash(account) for account in accounts})

    def _hash(self, account: str) -> str:
        # An id from the command line may hold bytes that are no text; no log can hold such an id, but it has a hash.
        return hmac.new(self.salt, account.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def read_tombstones(path: Path) -> Tombstones:
    """Read a tombstone file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        salt, hashes = _checked(content)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file. `lightgc2n forget --tombstones FILE` writes one.") from None
    except (OSError, ValueError, RecursionError) as problem:
        raise DataError(f"{path}: not a tombstone file: {problem}. Give the file that `forget` wrote.") from None
    return Tombstones(salt, frozenset(hashes))


def _checked(content: Any) -> tuple[bytes, list[str]]:
    """Return the salt and the hashes of a tombstone file; a file with anything else in it is not one of ours."""
    if not isinstance(content, dict) or content.keys() != {"made_by", "salt", "accounts"}:
        raise ValueError("expected an object with made_by, salt and accounts, and nothing else")
    if not isinstance(content["made_by"], str) or not MADE_BY.fullmatch(content["made_by"]):
        raise ValueError("made_by: expected lightgc2n and its version")
    salt, hashes = content["salt"], content["accounts"]
    if not isinstance(salt, str) or not SALT.fullmatch(salt):
        raise ValueError("salt: expected 32 hexadecimal digits")
    if not isinstance(hashes, list) or not all(isinstance(one, str) and HASH.fullmatch(one) for one in hashes):
        raise ValueError("accounts: expected a list of hashes of 64 hexadecimal digits")
    return bytes.fromhex(salt), hashes


def tombstones_at(path: Path) -> Tombstones:
    """Read a tombstone file; return tombstones without accounts if there is no file."""
    return read_tombstones(path) if path.exists() else Tombstones(secrets.token_bytes(16))


def write_tombstones(path: Path, tombstones: Tombstones) -> None:
    """Write a tombstone file, replacing the one at `path`."""
    content = {
        "made_by": f"lightgc2n {__version__}",
        "salt": tombstones.salt.hex(),
        "accounts": sorted(tombstones.hashes),
    }
    with new_file(path, force=True) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def add_tombstones(path: Path, accounts: Iterable[str]) -> None:
    """Add accounts to the tombstone file at `path`, or create it. Waits for other processes that write it."""
    if path.exists() and not path.is_file():
        raise OutputError(f"{path} is not a regular file, so it is left alone. Choose another --tombstones.")
    with sole_writer(Path(os.path.realpath(path)), TOMBSTONES, wait=True):
        write_tombstones(path, tombstones_at(path).with_accounts(accounts))


def keep_tombstones(old: Path, new: Path, accounts: Collection[str] = ()) -> None:
    """Write the tombstones of the dataset at `old`, and of more accounts, into the folder that replaces it."""
    if accounts or (old / FORGOTTEN).exists():
        write_tombstones(new / FORGOTTEN, tombstones_at(old / FORGOTTEN).with_accounts(accounts))


def forgotten_among(accounts: Collection[str], files: Iterable[Tombstones]) -> set[str]:
    """Return the accounts that are in at least one set of tombstones."""
    known = [tombstones for tombstones in files if len(tombstones)]
    return {account for account in accounts if any(account in tombstones for tombstones in known)}

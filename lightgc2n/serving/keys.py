"""API keys and what each may do. The file of keys is read again when it changes, so keys are rotated while serving.

A line has a key, which may read, or scopes and a key:

    read,write  2f6c...
    erase       91ab...
"""

import hashlib
import os
import stat
from collections.abc import Mapping
from hmac import compare_digest
from pathlib import Path

from lightgc2n.config import unknown_name
from lightgc2n.errors import LightGC2NError, SettingError
from lightgc2n.serving.errors import RefusedError
from lightgc2n.serving.logs import log

READ, WRITE, ERASE = "read", "write", "erase"
SCOPES = (READ, WRITE, ERASE)
SHORTEST_KEY = 16
SHOWN_BYTES = 4  # bytes of a key's digest that identify it in the audit log
Keys = Mapping[bytes, frozenset[str]]  # SHA-256 of a key -> its scopes


class KeyRing:
    """The keys that are accepted now.

    Args:
        path: the file that they were read from.
    """

    def __init__(self, keys: Keys, path: Path | None) -> None:
        self.keys, self._path = keys, path
        self._seen = None if path is None else _state(path)

    def look(self) -> None:
        """Read the file again if it has changed; a file that cannot be used is reported, and the old keys stay."""
        if self._path is None or (state := _state(self._path)) == self._seen:
            return
        self._seen = state
        try:
            if not self._path.is_file():  # to open a FIFO could take for ever
                raise SettingError(f"{self._path}: expected a regular file with keys.")
            keys = read_keys(self._path)
        except (OSError, LightGC2NError) as problem:
            log("keys_refused", "error", reason=str(problem))
            return
        log("keys_taken", keys=len(keys), added=len(keys.keys() - self.keys.keys()))
        self.keys = keys

    def find(self, given: str) -> bytes | None:
        """The digest of a key if it is accepted; compared in constant time."""
        given_digest = digest(given)
        return given_digest if sum(compare_digest(given_digest, key) for key in self.keys) > 0 else None

    def check_scope(self, key: bytes, method: str, path: str) -> None:
        """Raise an error if the key may not do what is requested."""
        scope, held = scope_of(method, path), self.keys.get(key, frozenset())  # the file may just have changed
        if scope not in held:
            message = f"this key may {' and '.join(sorted(held))}; a key with the scope {scope} is needed."
            raise RefusedError(403, "wrong_scope", message)


def scope_of(method: str, path: str) -> str:
    """The scope that a request needs."""
    if method == "DELETE":
        return ERASE
    return WRITE if path == "/v1/events" and method == "POST" else READ


def read_keys(path: Path) -> dict[bytes, frozenset[str]]:
    """The keys of a file with their scopes; empty lines and lines that begin with # are skipped."""
    with path.open("rb") as file:
        mode, content = os.fstat(file.fileno()).st_mode, file.read()
    _refuse_shared_folder(path)
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise SettingError(
            f"{path}: expected a file that only its owner may write, found mode {stat.S_IMODE(mode):04o}: others could "
            f"add a key. Run: chmod go-w {path}"
        )
    try:
        lines = [line.strip() for line in content.decode("utf-8-sig").splitlines()]
    except UnicodeDecodeError:
        raise SettingError(f"{path}: not a text file in UTF-8. Write one key a line.") from None
    keys: dict[bytes, frozenset[str]] = {}
    for number, line in enumerate(lines, start=1):
        if line and not line.startswith("#"):
            key, scopes = _key_of(line, f"{path}:{number}")
            keys[digest(key)] = keys.get(digest(key), frozenset()) | scopes
    if not keys:
        raise SettingError(f"{path}: holds no key. Make one with: openssl rand -hex 32 > {path}")
    return keys


def _key_of(line: str, where: str) -> tuple[str, frozenset[str]]:
    words = line.split()
    key, scopes = words[-1], words[0].split(",") if len(words) == 2 else [READ]
    if len(words) > 2 or len(key) < SHORTEST_KEY or not key.isascii():
        raise SettingError(
            f"{where}: expected a key of at least {SHORTEST_KEY} letters, digits or signs, or its scopes and the key, "
            f"such as: read,write KEY. Make a key with: openssl rand -hex 32"
        )
    for scope in scopes:
        if scope not in SCOPES:
            raise SettingError(f"{where}: expected scopes and a key: {unknown_name('scope', scope, SCOPES)}")
    return key, frozenset(scopes)


def _refuse_shared_folder(path: Path) -> None:
    """Raise an error when others could put another file in the place of the keys, as ssh does.

    In a folder with the sticky bit, such as /tmp, only the owner of a file may replace it.
    """
    for folder in Path(os.path.realpath(path)).parents:
        mode = folder.stat().st_mode
        if mode & (stat.S_IWGRP | stat.S_IWOTH) and not mode & stat.S_ISVTX:
            raise SettingError(
                f"{path}: expected a key file in folders that only their owners may write, found {folder} with mode "
                f"{stat.S_IMODE(mode):04o}: others could replace the file. Run: chmod go-w {folder}"
            )


def _state(path: Path) -> tuple[int, ...] | None:
    """A value that changes when the file is replaced or written."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns


def digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()

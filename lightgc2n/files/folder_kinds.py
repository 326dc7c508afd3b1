"""Kinds of folders that this product writes, each with its marker file and the exact names of its files.

Other files are never removed or replaced, not even with --force.
"""

import json
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from lightgc2n.errors import FORCE, OutputError

TEMPORARY = ".lightgc2n-tmp-"  # prefix of unfinished files; a killed process may leave them in any output folder
TEMPORARY_NAME = re.compile(re.escape(TEMPORARY) + r"[0-9a-f]{8}-.+", re.DOTALL)
CLAIM = ".lightgc2n.json"  # in folders that commands fill step by step
FILE, FOLDER, OTHER = "file", "folder", "other"  # types of entries of a folder
KNOWN = {"manifest.json": "a prepared dataset", "run.json": "a run", "config.json": "a bundle"}  # by marker
MADE_BY = re.compile(r"lightgc2n [0-9][0-9A-Za-z.+-]*")


@dataclass(frozen=True)
class FolderKind:
    """One kind of folder that the product writes.

    Args:
        name: its name in messages.
        marker: the JSON file that every folder of this kind has; its `made_by` names the product.
        files: patterns of all files in it, as paths below the folder; `*` matches within one path component.
    """

    name: str
    marker: str
    files: tuple[str, ...] = ()

    def foreign(self, folder: Path) -> str | None:
        """Return the first entry that the product did not make, or None."""
        return next(self._foreign(folder), None)

    def is_marked(self, folder: Path) -> bool:
        """Return whether the folder holds the marker of this kind."""
        return is_made_by_us(folder / self.marker)

    def owns(self, path: str) -> bool:
        """Return whether a file of this name, as a path below the folder, is one of this kind."""
        parts = path.split("/")
        return is_temporary(parts[-1]) or any(
            _matches(parts, pattern.split("/")) for pattern in (self.marker, CLAIM, *self.files)
        )

    def may_hold(self, path: str) -> bool:
        """Return whether a file or a folder of this name, as a path below the folder, is one of this kind."""
        return self._is_own_folder(path) or self.owns(path)

    def linked(self, folder: Path) -> str | None:
        """Return the first entry with a name of this kind that is a link or no regular file, or None.

        Writing such a file would change, and reading it would trust, a file outside the folder.
        """
        names = ((path, self.may_hold(path)) for path, kind in _walk(folder) if kind == OTHER)
        return next((path for path, own in names if own), None)

    def remove(self, folder: Path) -> None:
        """Remove the files and folders of this kind. Other files and folders stay, also empty ones, and so do links."""
        for path, kind in list(_walk(folder)):
            if kind == FILE and self.owns(path):
                (folder / path).unlink(missing_ok=True)
        own = (folder / path for path, kind in _walk(folder) if kind == FOLDER and self._is_own_folder(path))
        for place in [*own, folder]:
            try:
                place.rmdir()
            except OSError:
                continue  # it holds a foreign file

    def _foreign(self, folder: Path) -> Iterator[str]:
        for path, kind in _walk(folder):
            own = self._is_own_folder(path) if kind == FOLDER else kind == FILE and self.owns(path)
            if not own:
                yield path

    def _is_own_folder(self, path: str) -> bool:
        parts = path.split("/")
        return any(_matches(parts, pattern.split("/")[: len(parts)]) for pattern in self.files if "/" in pattern)


def is_made_by_us(path: Path) -> bool:
    """Return whether the `made_by` of a JSON file names this product."""
    try:
        made_by = json.loads(path.read_text(encoding="utf-8"))["made_by"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False
    return isinstance(made_by, str) and MADE_BY.fullmatch(made_by) is not None


def kind_found(folder: Path) -> str:
    """Return a sentence on what a folder is, for an error that expected another kind; empty if it is none of ours."""
    return next((f"It is {kind}. " for marker, kind in KNOWN.items() if (folder / marker).is_file()), "")


def is_temporary(name: str) -> bool:
    """Return whether the name is that of a temporary file of this product."""
    return TEMPORARY_NAME.fullmatch(name) is not None


def refuse_linked(folder: Path, kind: FolderKind) -> None:
    """Raise an error when a file that a command would write into the folder is a link."""
    linked = kind.linked(folder)
    if linked is not None:
        raise OutputError(
            f"{folder / linked}: expected a regular file, found a link or a special file, so it is not written. "
            f"Replace the link by the file (cp -L), then try again."
        )


def refuse_foreign(folder: Path, kind: FolderKind) -> None:
    """Raise an error unless the folder may be replaced: it is empty, or this product made it and all files in it."""
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if not folder.is_dir() or not kind.is_marked(folder):
        raise OutputError(
            f"{folder} was not made by this command (not a {kind.name} of lightgc2n: no {kind.marker}), "
            f"so {FORCE} does not replace it. Choose another name."
        )
    refuse_linked(folder, kind)
    foreign = kind.foreign(folder)
    if foreign is not None:
        raise OutputError(
            f"{folder} holds {foreign}, which is not part of a {kind.name}, so the folder is not replaced. "
            f"Move {foreign} elsewhere, then try again."
        )
    refuse_read_only(folder)


def refuse_read_only(folder: Path) -> None:
    """Raise an error when this user may not replace a folder, because its files cannot be moved or removed."""
    for place, _, _ in os.walk(folder):
        if not os.access(place, os.W_OK | os.X_OK):
            mode = stat.S_IMODE(Path(place).stat().st_mode)
            raise OutputError(
                f"{place} is not writable for this user (mode {mode:04o}), so {folder} is not changed. "
                f"If it is yours, run: chmod u+w {place}"
            )


def _walk(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield every entry below `folder` with its type; the content of a folder comes before the folder."""
    for root, folders, files in os.walk(folder, topdown=False):
        for name in (*sorted(files), *sorted(folders)):
            path = Path(root) / name
            try:
                mode = path.lstat().st_mode
            except FileNotFoundError:
                continue  # removed meanwhile
            kind = FOLDER if stat.S_ISDIR(mode) else FILE if stat.S_ISREG(mode) else OTHER
            yield path.relative_to(folder).as_posix(), kind


def _matches(parts: list[str], pattern: list[str]) -> bool:
    return len(parts) == len(pattern) and all(map(fnmatchcase, parts, pattern))

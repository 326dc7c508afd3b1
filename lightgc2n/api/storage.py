"""Temporary folders that are removed with the object that owns them, and permanent copies."""

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from lightgc2n.errors import OUT, OutputError
from lightgc2n.files.atomic_writes import new_folder
from lightgc2n.files.folder_kinds import FolderKind, is_temporary


class OwnedFolder:
    """A temporary folder that is removed with this object; only files that its kind names are removed.

    Attributes:
        path: the path of the folder, which does not exist yet.
    """

    def __init__(self, kind: FolderKind, name: str) -> None:
        root = Path(tempfile.mkdtemp(prefix="lightgc2n-"))
        self.path = root / name
        self._removal = weakref.finalize(self, _remove, self.path, os.path.realpath(self.path), kind, os.getpid())

    def __deepcopy__(self, memo: dict[int, Any]) -> "OwnedFolder":
        return self  # the folder is removed with the last object that uses it


def _remove(path: Path, made_at: str, kind: FolderKind, owner: int) -> None:
    if os.getpid() != owner:
        return  # a forked process must not remove the folder of its parent
    if os.path.realpath(path) != made_at:
        return  # somebody moved the folder to keep it, and put a link in its place
    kind.remove(path)
    with suppress(OSError):
        path.parent.rmdir()  # it stays if a user put a file there


def copy_folder(
    source: Path, out: Path, kind: FolderKind, force: bool, check: Callable[[Path], None] = lambda folder: None
) -> None:
    """Copy the files of a kind, and no others; the copy appears whole or not at all.

    Args:
        check: raises an error when the complete copy may not appear; no other process writes `out` then.
    """
    if Path(os.path.realpath(source)) in Path(os.path.realpath(out)).parents:
        raise OutputError(f"{out} is inside {source}, which would be copied into itself. Choose another {OUT}.")

    def others(place: str, names: list[str]) -> list[str]:
        paths = {name: Path(place, name).relative_to(source).as_posix() for name in names}
        return [name for name, path in paths.items() if is_temporary(name) or not kind.may_hold(path)]

    with new_folder(out, force, kind=kind) as folder:
        shutil.copytree(source, folder, dirs_exist_ok=True, ignore=others)
        check(folder)

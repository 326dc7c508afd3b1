"""Temporary folders that are removed with the object that owns them, and permanent copies."""

import os
import shutil
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path

from lightgc2n.files.atomic_writes import new_folder
from lightgc2n.files.folder_kinds import FolderKind


class OwnedFolder:
    """A temporary folder that is removed with this object; only files that its kind names are removed.

    Attributes:
        path: the path of the folder, which does not exist yet.
    """

    def __init__(self, kind: FolderKind, name: str) -> None:
        root = Path(tempfile.mkdtemp(prefix="lightgc2n-"))
        self.path = root / name
        self._removal = weakref.finalize(self, _remove, self.path, kind, os.getpid())


def _remove(path: Path, kind: FolderKind, owner: int) -> None:
    if os.getpid() != owner:
        return  # a forked process must not remove the folder of its parent
    kind.remove(path)
    with suppress(OSError):
        path.parent.rmdir()  # it stays if a user put a file there


def copy_folder(source: Path, out: Path, kind: FolderKind, force: bool) -> None:
    """Copy a folder of a kind, atomically."""
    with new_folder(out, force, kind=kind) as folder:
        shutil.copytree(source, folder, dirs_exist_ok=True)

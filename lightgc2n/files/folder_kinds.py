"""Which files of a folder this product made: by exact name, in a folder with the product's marker.

Nothing else is ever removed or replaced, with --force or without.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from lightgc2n.errors import FORCE, OutputError

TEMPORARY = ".lightgc2n-tmp-"  # prefix of unfinished files; a killed process may leave them anywhere it writes


@dataclass(frozen=True)
class FolderKind:
    """One kind of folder that the product writes.

    Args:
        name: what a message calls it.
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
        try:
            made_by = json.loads((folder / self.marker).read_text(encoding="utf-8"))["made_by"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return False
        return str(made_by).startswith("lightgc2n")

    def remove(self, folder: Path) -> None:
        """Remove the files of this kind and the folders they leave empty. Other files stay."""
        for path, is_folder in list(_walk(folder)):
            if not is_folder and self._is_own_file(path):
                (folder / path).unlink(missing_ok=True)
        for place in [*(folder / path for path, is_folder in _walk(folder) if is_folder), folder]:
            try:
                place.rmdir()
            except OSError:
                continue  # something that is not ours keeps it

    def _foreign(self, folder: Path) -> Iterator[str]:
        for path, is_folder in _walk(folder):
            own = self._is_own_folder(path) if is_folder else self._is_own_file(path)
            if not own:
                yield path

    def _is_own_file(self, path: str) -> bool:
        parts = path.split("/")
        return parts[-1].startswith(TEMPORARY) or any(
            _matches(parts, pattern.split("/")) for pattern in (self.marker, *self.files)
        )

    def _is_own_folder(self, path: str) -> bool:
        parts = path.split("/")
        return any(_matches(parts, pattern.split("/")[: len(parts)]) for pattern in self.files if "/" in pattern)


def refuse_foreign(folder: Path, kind: FolderKind) -> None:
    """Raise an error unless the folder is empty or was made by this product and holds nothing else."""
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if not folder.is_dir() or not kind.is_marked(folder):
        raise OutputError(
            f"{folder} was not made by this command (it is no {kind.name} of ours: no {kind.marker}), "
            f"so {FORCE} leaves it alone. Choose another name."
        )
    foreign = kind.foreign(folder)
    if foreign is not None:
        raise OutputError(
            f"{folder} holds {foreign}, which is not part of a {kind.name}, so the folder is left alone. "
            f"Move {foreign} elsewhere, then try again."
        )


def _walk(folder: Path) -> Iterator[tuple[str, bool]]:
    """Yield every entry below `folder` and whether it is a folder; the content of a folder comes before it."""
    for root, folders, files in os.walk(folder, topdown=False):
        for name in sorted(files):
            yield (Path(root) / name).relative_to(folder).as_posix(), False
        for name in sorted(folders):
            path = Path(root) / name
            yield path.relative_to(folder).as_posix(), not path.is_symlink()


def _matches(parts: list[str], pattern: list[str]) -> bool:
    return len(parts) == len(pattern) and all(map(fnmatchcase, parts, pattern))

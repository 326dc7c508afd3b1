"""Results appear whole or not at all: write under a temporary name, then rename."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lightgc2n.errors import OutputError


def refuse_existing(path: Path, force: bool, option: str = "--out") -> None:
    """Stops early when `path` is taken and may not be replaced."""
    if path.exists() and not force:
        raise OutputError(f"{path} exists already. Choose another {option}, or replace it with --force.")


@contextmanager
def new_folder(path: Path, force: bool = False, *, marker: str) -> Iterator[Path]:
    """A temporary folder beside `path` that becomes `path` when the block ends well and vanishes otherwise.

    Args:
        marker: a file that every folder of this kind has; `force` never replaces a folder without it.
    """
    refuse_existing(path, force)
    if path.exists() and not (path / marker).is_file() and not (path.is_dir() and not any(path.iterdir())):
        raise OutputError(f"{path} was not made by this command (it has no {marker}), so --force leaves it alone.")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    temporary.chmod(0o777 & ~_umask())
    try:
        yield temporary
        _replace(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def new_file(path: Path, force: bool = False) -> Iterator[Path]:
    """A temporary file name beside `path` that becomes `path` when the block ends well and vanishes otherwise."""
    refuse_existing(path, force)
    path.parent.mkdir(parents=True, exist_ok=True)
    # The endings are kept because writers choose the format by them.
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def sha256(path: Path) -> str:
    """The checksum of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _replace(temporary: Path, path: Path) -> None:
    if path.exists():
        old = Path(tempfile.mkdtemp(prefix=f".{path.name}.old.", dir=path.parent))
        os.rename(path, old / "content")
        os.rename(temporary, path)
        shutil.rmtree(old, ignore_errors=True)
    else:
        os.rename(temporary, path)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

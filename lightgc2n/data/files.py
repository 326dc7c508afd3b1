"""Results appear whole or not at all: write under a temporary name, then rename."""

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lightgc2n.errors import OutputError

FULL = (errno.ENOSPC, errno.EDQUOT)


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
    _refuse_foreign(path, force, marker)
    with _told_of(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        try:
            temporary.chmod(0o777 & ~_umask())
            yield temporary
            _replace(temporary, path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def kept_folder(path: Path, force: bool = False, *, marker: str) -> Iterator[Path]:
    """The folder `path`.partial, which becomes `path` when the block ends well and stays for another try otherwise."""
    _refuse_foreign(path, force, marker)
    partial = path.with_name(f"{path.name}.partial")
    partial.mkdir(parents=True, exist_ok=True)
    try:
        yield partial
        _replace(partial, path)
    finally:
        if partial.exists() and not any(partial.iterdir()):
            partial.rmdir()


@contextmanager
def new_file(path: Path, force: bool = False) -> Iterator[Path]:
    """A temporary file name beside `path` that becomes `path` when the block ends well and vanishes otherwise."""
    refuse_existing(path, force)
    with _told_of(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # The endings are kept because writers choose the format by them.
        temporary = path.with_name(f".{os.getpid()}.{path.name}")
        try:
            yield temporary
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def _told_of(path: Path) -> Iterator[None]:
    """Tells an error of the disk, of a temporary name or of a folder above as one of `path`; others are as they are."""
    try:
        yield
    except OSError as problem:
        if problem.errno not in FULL and not _is_about(path, problem.filename):
            raise
        way = "Make room there" if problem.errno in FULL else "Choose a place where it can be made"
        raise OutputError(f"{path}: cannot be written: {problem.strerror}. {way}, then try again.") from None


def _is_about(path: Path, name: object) -> bool:
    if not isinstance(name, str | bytes):
        return False
    about, path = (Path(os.path.abspath(one)) for one in (os.fsdecode(name), path))
    temporary = any(part.startswith(".") and path.name in part for part in about.parts)
    return temporary or about == path or about in path.parents


def sha256(path: Path) -> str:
    """The checksum of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _refuse_foreign(path: Path, force: bool, marker: str) -> None:
    refuse_existing(path, force)
    if path.exists() and not _is_ours(path, marker):
        raise OutputError(f"{path} was not made by this command (no {marker} of ours), so --force leaves it alone.")


def _replace(temporary: Path, path: Path) -> None:
    if path.exists():
        old = Path(tempfile.mkdtemp(prefix=f".{path.name}.old.", dir=path.parent))
        try:
            os.rename(path, old / "content")
            os.rename(temporary, path)
        except BaseException:
            if not path.exists():
                os.rename(old / "content", path)
            raise
        finally:
            shutil.rmtree(old, ignore_errors=True)
    else:
        os.rename(temporary, path)


def _is_ours(path: Path, marker: str) -> bool:
    """Whether a folder is empty, or holds a marker that says who made it."""
    if path.is_dir() and not any(path.iterdir()):
        return True
    try:
        made_by = json.loads((path / marker).read_text(encoding="utf-8"))["made_by"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return str(made_by).startswith("lightgc2n")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

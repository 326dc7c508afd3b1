"""Results appear whole or not at all: written under a temporary name, made durable, then renamed.

A name that is taken stays as it is. With `force`, a folder of the product's own is replaced; see `folder_kinds`.
"""

import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lightgc2n import __version__
from lightgc2n.errors import FORCE, OUT, OutputError
from lightgc2n.files.folder_kinds import TEMPORARY, FolderKind, refuse_foreign
from lightgc2n.files.writer_lock import (
    NEW,
    OLD,
    READY,
    SCRATCH,
    discard,
    sole_writer,
    swap,
    sync_file,
    sync_folder,
    sync_tree,
    workshop_of,
)

CLAIM = ".lightgc2n.json"  # in folders that commands fill over time
FULL = (errno.ENOSPC, errno.EDQUOT)
TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR)


def refuse_existing(path: Path, force: bool, option: str = OUT) -> None:
    """Raise an error when `path` is taken and may not be replaced. An empty folder is free."""
    if not force and os.path.lexists(path) and not _is_empty_folder(path):
        raise OutputError(f"{path} exists already. Choose another {option}, or replace it with {FORCE}.")


@contextmanager
def new_folder(path: Path, force: bool = False, *, kind: FolderKind, wait: bool = False) -> Iterator[Path]:
    """Yield a temporary folder that becomes `path` when the block ends well and is removed otherwise.

    A block that writes nothing leaves `path` as it is.

    Args:
        force: replace a folder of the same kind; one with anything else in it is refused.
        wait: wait for another process that writes `path` instead of raising an error.
    """
    target = Path(os.path.realpath(path))  # a link keeps pointing at the folder
    _refuse(path, force, kind)
    with _errors_name(path), sole_writer(target, kind, wait) as workshop:
        _refuse(path, force, kind)
        (workshop / NEW).mkdir()
        yield workshop / NEW
        if _is_empty_folder(workshop / NEW):
            return
        _keep_modes(target, workshop / NEW)
        sync_tree(workshop / NEW)
        os.rename(workshop / NEW, workshop / READY)
        _put(workshop / READY, target, force, kind)


@contextmanager
def scratch_folder(new: Path) -> Iterator[Path]:
    """Yield a folder for intermediate files beside a folder of `new_folder`; it is removed at the end."""
    scratch = new.parent / SCRATCH
    scratch.mkdir()
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch)


@contextmanager
def resumable_folder(path: Path, force: bool = False, *, kind: FolderKind) -> Iterator[Path]:
    """Yield the folder `path`.partial, which becomes `path` when the block ends well and otherwise stays, to resume."""
    target = Path(os.path.realpath(path))
    partial = target.with_name(f"{target.name}.partial")
    _refuse(path, force, kind)
    with _errors_name(path), sole_writer(target, kind):
        _refuse(path, force, kind)
        _refuse_partial(partial, kind)
        partial.mkdir(parents=True, exist_ok=True)
        try:
            yield partial
            sync_tree(partial)
            _put(partial, target, force, kind)
        finally:
            with suppress(OSError):
                partial.rmdir()


def claim_folder(folder: Path, what: str, ours: bool = False) -> None:
    """Create a folder that a command fills over time, or check that the existing one is empty or claimed already.

    Args:
        what: what the folder holds, for the message.
        ours: whether other evidence shows that this product made it; earlier versions left no claim.
    """
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file. Choose another {OUT}.")
    held = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if held and not ours and not FolderKind(what, CLAIM).is_marked(folder):
        raise OutputError(f"{folder} holds {held[0]} and is no folder of {what}. Choose another {OUT}.")
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / CLAIM).exists():
        with new_file(folder / CLAIM, force=True) as temporary:
            text = json.dumps({"made_by": f"lightgc2n {__version__}", "holds": what})
            temporary.write_text(text + "\n", encoding="utf-8")


@contextmanager
def new_file(path: Path, force: bool = False) -> Iterator[Path]:
    """Yield a temporary file beside `path` that becomes `path` when the block ends well and is removed otherwise."""
    refuse_existing(path, force)
    if path.exists() and not path.is_file():
        raise OutputError(f"{path} is not a regular file, so it is left alone. Choose another name.")
    path = Path(os.path.realpath(path))  # a link keeps pointing at the file
    with _errors_name(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path.parent, path.name)
        temporary, handle = _reserve(path)
        try:
            yield temporary
            sync_file(temporary)
            _put_file(temporary, path, force)
            sync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)
            os.close(handle)


def remove_leftovers(folder: Path, name: str = "*") -> None:
    """Remove unfinished files of killed processes. A living writer holds a lock on its file."""
    for path in folder.glob(f"{TEMPORARY}[0-9a-f]*-{name}"):
        with suppress(FileNotFoundError):
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            except BlockingIOError:
                continue
            finally:
                os.close(handle)


def sha256(path: Path) -> str:
    """Return the checksum of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _refuse(path: Path, force: bool, kind: FolderKind) -> None:
    refuse_existing(path, force)
    if path.exists() and not _is_empty_folder(path):
        refuse_foreign(path, kind)


def _is_empty_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and not any(path.iterdir())


def _refuse_partial(partial: Path, kind: FolderKind) -> None:
    foreign = kind.foreign(partial) if partial.is_dir() and not partial.is_symlink() else partial.name
    if os.path.lexists(partial) and foreign is not None:
        raise OutputError(
            f"{partial} holds {foreign}, which is not part of an unfinished {kind.name}. Move it elsewhere."
        )


def _put(new: Path, path: Path, force: bool, kind: FolderKind) -> None:
    """Rename a complete folder to `path`; a folder there is replaced with `force`, never without."""
    try:
        os.rename(new, path)  # fails on anything but an empty folder
        sync_folder(path.parent)
    except OSError as problem:
        if problem.errno not in TAKEN:
            raise
        if not force:
            raise OutputError(f"{path} appeared meanwhile, so it is left alone. Choose another name.") from None
        refuse_foreign(path, kind)
        discard(swap(new, path, workshop_of(path) / OLD), kind, path)


def _put_file(temporary: Path, path: Path, force: bool) -> None:
    if force:
        os.replace(temporary, path)
        return
    try:
        os.link(temporary, path)  # fails where the name is taken
    except FileExistsError:
        raise OutputError(f"{path} appeared meanwhile, so it is left alone. Choose another name.") from None
    except OSError:  # a file system without hard links
        refuse_existing(path, force)
        os.rename(temporary, path)


def _reserve(path: Path) -> tuple[Path, int]:
    """Return a new file beside `path` and a handle that holds its lock. Its ending is kept: writers choose by it."""
    while True:
        temporary = path.with_name(f"{TEMPORARY}{secrets.token_hex(4)}-{path.name}")
        handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return temporary, handle
        os.close(handle)  # another process took it for a leftover before it was locked


def _keep_modes(old: Path, new: Path) -> None:
    """Give a folder that replaces another the access rights of that one, file by file."""
    for path in [new, *new.rglob("*")]:
        with suppress(FileNotFoundError):
            shutil.copymode(old / path.relative_to(new), path)


@contextmanager
def _errors_name(path: Path) -> Iterator[None]:
    """Report an error of the disk, of a temporary name or of a parent folder as one of `path`."""
    try:
        yield
    except OSError as problem:
        if is_disk_full(problem):
            raise OutputError(_sentence(path, os.strerror(errno.ENOSPC), True)) from None
        if not _is_about(path, problem.filename):
            raise
        raise OutputError(_sentence(path, problem.strerror, False)) from None
    except Exception as problem:
        if not is_disk_full(problem):  # libraries wrap the error of a full disk in types of their own
            raise
        raise OutputError(_sentence(path, os.strerror(errno.ENOSPC), True)) from None


def is_disk_full(problem: BaseException) -> bool:
    """Return whether an error, of whatever type, says that the disk is full."""
    if isinstance(problem, OSError) and problem.errno is not None:
        return problem.errno in FULL
    full = [*(os.strerror(code) for code in FULL), "requested and "]  # numpy: "4500 requested and 2016 written"
    return any(text in str(problem) for text in full)


def _sentence(path: Path, what: str | None, full: bool) -> str:
    way = "Make room there" if full else "Choose a place where it can be made"
    return f"{path}: cannot be written: {what}. {way}, then try again."


def _is_about(path: Path, name: object) -> bool:
    if not isinstance(name, str | bytes):
        return False
    about, path = (Path(os.path.abspath(one)) for one in (os.fsdecode(name), path))
    temporary = any(part.startswith((TEMPORARY, workshop_of(path).name)) for part in about.parts)
    return temporary or about == path or about in path.parents

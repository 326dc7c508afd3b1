"""Atomic writes: files and folders are written under a temporary name, synced to disk, then renamed.

An existing file or folder is not changed. With `force`, a folder that the product made is replaced; see `folder_kinds`.
"""

import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lightgc2n import __version__
from lightgc2n.errors import FORCE, OUT, OutputError
from lightgc2n.files.folder_kinds import (
    CLAIM,
    TEMPORARY,
    FolderKind,
    is_made_by_us,
    is_temporary,
    refuse_foreign,
    refuse_linked,
)
from lightgc2n.files.writer_lock import (
    NEW,
    OLD,
    READY,
    SCRATCH,
    discard,
    is_empty_folder,
    keep_access,
    keep_access_below,
    make_folders,
    mode_while_written,
    partial_folder,
    sole_writer,
    staging_folder,
    swap,
    sync_file,
    sync_folder,
    sync_tree,
)

FULL = (errno.ENOSPC, errno.EDQUOT)
EXISTS = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR)


def refuse_existing(path: Path, force: bool, option: str = OUT) -> None:
    """Raise an error when `path` exists and may not be replaced. An empty folder does not count as existing."""
    if not force and os.path.lexists(path) and not is_empty_folder(path):
        raise OutputError(f"{path} exists already. Choose another {option}, or replace it with {FORCE}.")


def refuse_own_input(out: Path, *sources: Path) -> None:
    """Raise an error when `out` is or holds what the command reads: the input would be replaced by the result."""
    target = Path(os.path.realpath(out))
    for source in sources:
        place = Path(os.path.realpath(source))
        if target in (place, *place.parents):
            raise OutputError(f"{out} would replace {source}, which is read. Choose another {OUT}.")


@contextmanager
def new_folder(path: Path, force: bool = False, *, kind: FolderKind, wait: bool = False) -> Iterator[Path]:
    """Yield a temporary folder that is renamed to `path` when the block succeeds, and removed when it fails.

    A block that writes nothing does not change `path`.

    Args:
        force: replace a folder of the same kind; any foreign file in it is an error.
        wait: wait for another process that writes `path` instead of raising an error.
    """
    target = Path(os.path.realpath(path))  # a link keeps pointing at the folder
    _refuse(path, force, kind)
    with _errors_about(path), sole_writer(target, kind, wait) as staging:
        _refuse(path, force, kind)
        (staging / NEW).mkdir()
        yield staging / NEW
        if is_empty_folder(staging / NEW):
            return
        keep_access_below(target, staging / NEW)
        sync_tree(staging / NEW)
        os.rename(staging / NEW, staging / READY)
        _install(staging / READY, target, force, kind)


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
    """Yield the folder `path`.partial, which is renamed to `path` when the block succeeds, else kept to be resumed.

    A claim file in it distinguishes it from a user's folder of the same name.
    """
    target = Path(os.path.realpath(path))
    _refuse(path, force, kind)
    partial = partial_folder(target)
    with _errors_about(path), sole_writer(target, kind) as staging:
        _refuse(path, force, kind)
        _refuse_partial(partial, kind)
        make_folders(partial)
        _write_claim(partial, f"unfinished {kind.name}")
        try:
            yield partial
            sync_tree(partial)
            _install_partial(partial, target, staging / OLD, force, kind)
        finally:
            _remove_unused(partial)


def claim_folder(folder: Path, what: str, ours: bool = False) -> None:
    """Create a folder that a command fills over time, or check that the existing one is empty or claimed already.

    Args:
        what: the content of the folder, for messages.
        ours: whether the product made it by other evidence; earlier versions wrote no claim file.
    """
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file. Choose another {OUT}.")
    held = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if held and not ours and not FolderKind(what, CLAIM).is_marked(folder):
        raise OutputError(f"{folder} holds {held[0]} and is no folder of {what}. Choose another {OUT}.")
    make_folders(folder)
    _write_claim(folder, what)


def _write_claim(folder: Path, what: str) -> None:
    if not os.path.lexists(folder / CLAIM):
        with new_file(folder / CLAIM, force=True) as temporary:
            text = json.dumps({"made_by": f"lightgc2n {__version__}", "holds": what})
            temporary.write_text(text + "\n", encoding="utf-8")


@contextmanager
def new_file(path: Path, force: bool = False) -> Iterator[Path]:
    """Yield a temporary file that is renamed to `path` when the block succeeds, and removed when it fails."""
    refuse_existing(path, force)
    if path.exists() and not path.is_file():
        raise OutputError(f"{path} is not a regular file, so it is not replaced. Choose another name.")
    path = Path(os.path.realpath(path))  # a link keeps pointing at the file
    with _errors_about(path):
        make_folders(path.parent)
        remove_leftovers(path.parent, path.name)
        temporary, handle = _reserve(path)
        try:
            yield temporary
            if path.exists():
                keep_access(path, temporary)
            sync_file(temporary)
            _install_file(temporary, path, force)
            sync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)
            os.close(handle)


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Remove temporary files of killed processes. A running writer holds a lock on its file.

    Args:
        name: only those of the file with this name.
    """
    for path in list(folder.iterdir()):
        wanted = is_temporary(path.name) and name in (None, path.name[len(TEMPORARY) + 9 :])
        if wanted and stat.S_ISREG(_mode(path)):
            _remove_leftover(path)


def _mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except FileNotFoundError:
        return 0


def _remove_leftover(path: Path) -> None:
    with suppress(FileNotFoundError, PermissionError):  # removed meanwhile, or owned by another user
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
        except BlockingIOError:
            return
        finally:
            os.close(handle)


def sha256(path: Path) -> str:
    """Return the checksum of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _refuse(path: Path, force: bool, kind: FolderKind) -> None:
    refuse_existing(path, force)
    if path.exists() and not is_empty_folder(path):
        refuse_foreign(path, kind)


def _refuse_partial(partial: Path, kind: FolderKind) -> None:
    """Raise an error when `partial` was not left by an unfinished command of this kind."""
    if not os.path.lexists(partial) or _holds_nothing(partial):
        return
    if partial.is_symlink() or not partial.is_dir() or not is_made_by_us(partial / CLAIM):
        raise OutputError(
            f"{partial} is not an unfinished {kind.name} of this version (it has no {CLAIM}), so it is not changed. "
            f"Move it elsewhere, then try again."
        )
    refuse_linked(partial, kind)
    foreign = kind.foreign(partial)
    if foreign is not None:
        raise OutputError(
            f"{partial} holds {foreign}, which is not part of an unfinished {kind.name}. Move it elsewhere."
        )


def _holds_nothing(folder: Path) -> bool:
    """Return whether a folder is empty, apart from temporary files of a killed command."""
    return folder.is_dir() and not folder.is_symlink() and all(is_temporary(path.name) for path in folder.iterdir())


def _remove_unused(partial: Path) -> None:
    """Remove the folder and its claim file when a command stored nothing in it."""
    if not partial.is_dir() or [path.name for path in partial.iterdir()] not in ([], [CLAIM]):
        return
    (partial / CLAIM).unlink(missing_ok=True)
    with suppress(OSError):
        partial.rmdir()


def _install_partial(partial: Path, path: Path, old: Path, force: bool, kind: FolderKind) -> None:
    """Rename a complete folder to `path`. After a kill before that, it can be resumed and `old` is restored."""
    if force and path.exists() and not is_empty_folder(path):
        refuse_foreign(path, kind)
        os.rename(path, old)
        sync_folder(path.parent)
    _install(partial, path, False, kind)
    (path / CLAIM).unlink(missing_ok=True)
    sync_folder(path)
    if old.exists():
        discard(old, kind, path)


def _install(new: Path, path: Path, force: bool, kind: FolderKind) -> None:
    """Rename a complete folder to `path`; an existing folder is replaced only with `force`."""
    try:
        os.rename(new, path)  # fails on anything but an empty folder
        sync_folder(path.parent)
    except OSError as problem:
        if problem.errno not in EXISTS:
            raise
        if not force:
            raise _appeared(path) from None
        refuse_foreign(path, kind)
        try:
            replaced = swap(new, path, staging_folder(path) / OLD)
        except OSError as second:
            raise _appeared(path) if second.errno in EXISTS else second from None
        discard(replaced, kind, path)


def _appeared(path: Path) -> OutputError:
    return OutputError(f"{path} was created meanwhile, so it is not replaced. Choose another name.")


def _install_file(temporary: Path, path: Path, force: bool) -> None:
    if force:
        os.replace(temporary, path)
        return
    try:
        os.link(temporary, path)  # fails if the name exists
    except FileExistsError:
        raise _appeared(path) from None
    except OSError:  # a file system without hard links
        refuse_existing(path, force)
        os.rename(temporary, path)


def _reserve(path: Path) -> tuple[Path, int]:
    """Return a new file beside `path` and the handle of its lock. It has the same suffix, which selects the writer."""
    while True:
        temporary = path.with_name(f"{TEMPORARY}{secrets.token_hex(4)}-{path.name}")
        mode = mode_while_written(path) & 0o666
        handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return temporary, handle
        os.close(handle)  # another process removed it as a leftover before it was locked


@contextmanager
def _errors_about(path: Path) -> Iterator[None]:
    """Report errors of the disk, of temporary names and of parent folders as errors of `path`."""
    try:
        yield
    except OSError as problem:
        if is_disk_full(problem):
            raise OutputError(_message(path, os.strerror(errno.ENOSPC), True)) from None
        if not _is_about(path, problem.filename):
            raise
        raise OutputError(_message(path, problem.strerror, False)) from None
    except Exception as problem:
        if not is_disk_full(problem):  # libraries wrap the error of a full disk in types of their own
            raise
        raise OutputError(_message(path, os.strerror(errno.ENOSPC), True)) from None


def is_disk_full(problem: BaseException) -> bool:
    """Return whether an error of any type means that the disk is full."""
    if isinstance(problem, OSError) and problem.errno is not None:
        return problem.errno in FULL
    full = [*(os.strerror(code) for code in FULL), "requested and "]  # numpy: "4500 requested and 2016 written"
    return any(text in str(problem) for text in full)


def _message(path: Path, what: str | None, full: bool) -> str:
    way = "Free disk space" if full else "Choose a writable place"
    return f"{path}: cannot be written: {what}. {way}, then try again."


def _is_about(path: Path, name: object) -> bool:
    if not isinstance(name, str | bytes):
        return False
    about, path = (Path(os.path.abspath(one)) for one in (os.fsdecode(name), path))
    temporary = any(part.startswith((TEMPORARY, staging_folder(path).name)) for part in about.parts)
    return temporary or about == path or about in path.parents

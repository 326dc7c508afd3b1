"""Locks for one writer per folder, and replacement of folders that survives a killed process.

While a command writes the folder `shop`, the staging folder `.shop.lightgc2n` is beside it:

    owner.json   the product that made it, and the kind of the folder `shop`
    lock         locked by the writer; the system releases it when the process ends
    new          the folder that is being written
    scratch      intermediate files
    ready        `new` once it is complete and synced to disk; after an exchange, the replaced folder
    old          the folder that is being replaced, where the file system cannot exchange two names

The next command that reads or writes `shop` completes or removes what a killed writer left.

The folder or file that replaces another gets the owner, group and access rights of the other.
"""

import ctypes
import errno
import fcntl
import json
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from itertools import count
from pathlib import Path

from lightgc2n import __version__
from lightgc2n.errors import OutputError
from lightgc2n.files.folder_kinds import CLAIM, TEMPORARY, FolderKind, is_made_by_us

OWNER, LOCK, NEW, READY, OLD, SCRATCH = "owner.json", "lock", "new", "ready", "old", "scratch"
FOLDERS = (NEW, READY, OLD, SCRATCH)
UNFINISHED_OWNER = f"{TEMPORARY}00000000-{OWNER}"
AT_FDCWD, RENAME_EXCHANGE = -100, 2


def notify(sentence: str) -> None:
    """Print a sentence to stderr, without the progress bars: this module must not need rich."""
    print(sentence, file=sys.stderr)


def staging_folder(path: Path) -> Path:
    """Return the staging folder of `path`, in which its writer works."""
    return path.with_name(f".{path.name}.lightgc2n")


def partial_folder(path: Path) -> Path:
    """Return the folder beside `path` that holds a result which can be resumed."""
    return path.with_name(f"{path.name}.partial")


def is_empty_folder(path: Path) -> bool:
    """Return whether there is a folder without entries; a link to one does not count."""
    return path.is_dir() and not path.is_symlink() and not any(path.iterdir())


@contextmanager
def sole_writer(path: Path, kind: FolderKind, wait: bool = False) -> Iterator[Path]:
    """Lock `path` for writing and yield the staging beside it, which is removed at the end.

    Args:
        wait: wait for another writer of `path`; without it, another writer is an error.
    """
    staging = staging_folder(path)
    handle = _lock(path, staging, wait)
    try:
        _recover(path, staging)
        _write_owner(staging, kind)
        yield staging
    finally:
        try:
            _recover(path, staging)
            for name in (UNFINISHED_OWNER, OWNER, LOCK):
                (staging / name).unlink(missing_ok=True)
            with suppress(OSError):
                staging.rmdir()
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)  # closing is not enough: a process forked meanwhile has the handle too
            os.close(handle)


def recover(path: Path) -> None:
    """Complete or remove what a killed writer of `path` left. Do nothing while a writer is active."""
    path = Path(os.path.realpath(path))
    staging = staging_folder(path)
    if not os.path.isdir(staging):  # also where its name would be too long
        return
    try:
        with sole_writer(path, _owner_kind(staging), wait=not path.exists()):
            pass
    except (OutputError, OSError):
        return  # another writer is active, the user may only read, or the disk is full: `path` can still be read


def swap(new: Path, path: Path, old: Path) -> Path:
    """Move the folder `new` to `path` and return the new place of the folder that it replaced.

    After a kill at any time there is a complete folder at `path`, or `recover` can restore one.
    """
    replaced = new
    try:
        _exchange(new, path)
    except OSError as problem:
        if problem.errno not in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
            raise
        os.rename(path, old)
        sync_folder(path.parent)
        os.rename(new, path)
        replaced = old
    sync_folder(path.parent)
    return replaced


def discard(folder: Path, kind: FolderKind, path: Path) -> None:
    """Remove a replaced folder. Foreign files in it are moved to a folder beside `path`, with a message."""
    kind.remove(folder)
    if folder.exists():
        set_aside(folder, path, "was replaced; files in it that this command did not make are in")


def set_aside(folder: Path, path: Path, why: str) -> None:
    """Rename a folder that was at `path` to a free name beside it, and print that name."""
    names = (path.with_name(f"{path.name}.kept-{number}") for number in count())
    free = next(name for name in names if not os.path.lexists(name))
    os.rename(folder, free)
    sync_folder(path.parent)
    notify(f"{path} {why} {free}")


def make_folders(path: Path, mode: int = 0o777) -> None:
    """Create a folder and its missing parents, and sync them to disk."""
    missing = [place for place in (path, *path.parents) if not os.path.lexists(place)]
    path.mkdir(mode, parents=True, exist_ok=True)
    for place in missing:
        sync_folder(place.parent)


def sync_tree(folder: Path) -> None:
    """Sync every file and folder below `folder` to disk."""
    for root, _, files in os.walk(folder):
        for name in files:
            sync_file(Path(root) / name)
        sync_folder(Path(root))


def sync_file(path: Path) -> None:
    """Sync the content of one file to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(path: Path) -> None:
    """Sync the entries of a folder to disk, if its file system supports that."""
    try:
        sync_file(path)
    except OSError as problem:
        if problem.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES):
            raise


def _lock(path: Path, staging: Path, wait: bool) -> int:
    """Return the locked handle of the staging's lock file; the previous writer may remove that file meanwhile."""
    waiting = False
    while True:
        _make(staging, mode_while_written(path) if path.is_dir() else 0o777)
        try:
            handle = os.open(staging / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:
            continue  # the previous writer has just removed its staging
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if waiting else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(handle)
            if not wait:
                raise OutputError(f"{path} is being written by another process. Wait for it, or stop it.") from None
            notify(f"waiting for another process that writes {path}")
            waiting = True
            continue
        except BaseException:
            os.close(handle)
            raise
        if _is_at(handle, staging / LOCK):
            return handle
        os.close(handle)


def _make(staging: Path, mode: int) -> None:
    if staging.is_symlink() or (staging.exists() and not _is_ours(staging)):
        raise OutputError(f"{staging} exists, and this command did not make it. Move it elsewhere.")
    make_folders(staging, mode)


def _is_ours(staging: Path) -> bool:
    """Return whether this product made the folder: by exact names, an empty lock and the marker in owner.json."""
    try:
        names = {entry.name for entry in staging.iterdir()} - {UNFINISHED_OWNER}
    except FileNotFoundError:
        return True
    except NotADirectoryError:
        return False
    if not names <= {OWNER, LOCK, *FOLDERS} or not _is_lock(staging / LOCK):
        return False
    if any((staging / name).is_symlink() for name in names):
        return False  # removing its target would remove a user's files
    if OWNER not in names or is_made_by_us(staging / OWNER):
        return OWNER in names or names <= {LOCK}
    # The previous writer may have removed it since the folder was read.
    return not os.path.lexists(staging / OWNER) and _is_ours(staging)


def _is_lock(path: Path) -> bool:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return True
    return stat.S_ISREG(status.st_mode) and status.st_size == 0


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _recover(path: Path, staging: Path) -> None:
    """Complete a swap that was interrupted between its two renames, then remove leftovers of earlier writers."""
    new, ready, old = (staging / name for name in (NEW, READY, OLD))
    if old.exists() and (ready.exists() or _is_unfinished(path)):  # the folder at `path` is not the one that replaces
        wanted = ready if ready.exists() else old
        if os.path.lexists(path) and not is_empty_folder(path):
            set_aside(wanted, path, "appeared while the folder of that name was being replaced, which is now")
        else:
            os.rename(wanted, path)
            sync_folder(path.parent)
    for incomplete in (new, staging / SCRATCH):
        if incomplete.exists():
            shutil.rmtree(incomplete)  # holds nothing but files of the killed writer
    for replaced in (ready, old):
        if replaced.exists():
            discard(replaced, _owner_kind(staging), path)


def _is_unfinished(path: Path) -> bool:
    """Return whether nothing of this product is at `path`, or the result that is to replace it is still beside it."""
    return not os.path.lexists(path) or is_empty_folder(path) or is_made_by_us(partial_folder(path) / CLAIM)


def _write_owner(staging: Path, kind: FolderKind) -> None:
    text = json.dumps({"made_by": f"lightgc2n {__version__}", "kind": asdict(kind)}, indent=1) + "\n"
    (staging / UNFINISHED_OWNER).write_text(text, encoding="utf-8")
    sync_file(staging / UNFINISHED_OWNER)
    os.replace(staging / UNFINISHED_OWNER, staging / OWNER)
    sync_folder(staging)


def _owner_kind(staging: Path) -> FolderKind:
    """Return the kind of folder that owner.json names; without it, every file counts as foreign."""
    try:
        kind = json.loads((staging / OWNER).read_text(encoding="utf-8"))["kind"]
        return FolderKind(kind["name"], kind["marker"], tuple(kind["files"]))
    except (OSError, ValueError, KeyError, TypeError):
        return FolderKind("folder", OWNER)


def _exchange(one: Path, other: Path) -> None:
    """Exchange two folders atomically."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if call(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), os.fspath(one), None, os.fspath(other))


def keep_access(old: Path, new: Path) -> None:
    """Copy owner, group and mode from `old` to `new`. An owner or group that this user may not set is ignored."""
    attributes = old.stat()
    _set_owner(new, attributes)
    new.chmod(stat.S_IMODE(attributes.st_mode))


def keep_access_below(old: Path, new: Path) -> None:
    """Copy them for a folder and every entry of the same name in it. New entries get the owner of the folder."""
    if not old.is_dir():
        return
    attributes = old.stat()
    for path in new.rglob("*"):
        counterpart = old / path.relative_to(new)
        if counterpart.exists() and not counterpart.is_symlink():
            keep_access(counterpart, path)
        else:
            _set_owner(path, attributes)
    keep_access(old, new)


def mode_while_written(old: Path) -> int:
    """Return the mode of the temporary file or folder that replaces `old`: no wider than the mode of `old`."""
    with suppress(OSError):
        attributes = old.stat()
        return stat.S_IMODE(attributes.st_mode) & 0o777 | (0o700 if stat.S_ISDIR(attributes.st_mode) else 0o600)
    return 0o777


def _set_owner(path: Path, attributes: os.stat_result) -> None:
    own = path.stat()
    for now, wanted, ids in (
        (own.st_uid, attributes.st_uid, (attributes.st_uid, -1)),
        (own.st_gid, attributes.st_gid, (-1, attributes.st_gid)),
    ):
        if now != wanted:
            with suppress(PermissionError):
                os.chown(path, *ids)

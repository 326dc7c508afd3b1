"""One writer at a time for a folder, and swaps that survive a kill.

While a command writes the folder `shop`, the folder `.shop.lightgc2n` stands beside it:

    owner.json   who made it, and which kind of folder `shop` is
    lock         locked by the writer; the lock ends with its process, however that ends
    new          the folder that is being written
    scratch      what is needed while it is written
    ready        the same once it is complete and durable; after an exchange, the folder that it replaced
    old          the folder that is being replaced, where the file system cannot exchange two names

What a killed writer left is completed or removed by the next command that reads or writes `shop`.
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
from lightgc2n.files.access_rights import mode_while_written
from lightgc2n.files.folder_kinds import TEMPORARY, FolderKind, is_made_by_us

OWNER, LOCK, NEW, READY, OLD, SCRATCH = "owner.json", "lock", "new", "ready", "old", "scratch"
FOLDERS = (NEW, READY, OLD, SCRATCH)
UNFINISHED_OWNER = f"{TEMPORARY}00000000-{OWNER}"
AT_FDCWD, RENAME_EXCHANGE = -100, 2


def tell(sentence: str) -> None:
    """Print a sentence to stderr. People are found with numpy alone, so nothing here needs the progress bars."""
    print(sentence, file=sys.stderr)


def workshop_of(path: Path) -> Path:
    """Return the folder beside `path` in which its writer works."""
    return path.with_name(f".{path.name}.lightgc2n")


@contextmanager
def sole_writer(path: Path, kind: FolderKind, wait: bool = False) -> Iterator[Path]:
    """Lock `path` for writing and yield the workshop beside it, which is removed at the end.

    Args:
        wait: wait for another writer of `path`; without it, another writer is an error.
    """
    workshop = workshop_of(path)
    handle = _lock(path, workshop, wait)
    try:
        _recover(path, workshop)
        _write_owner(workshop, kind)
        yield workshop
    finally:
        try:
            _recover(path, workshop)
            for name in (UNFINISHED_OWNER, OWNER, LOCK):
                (workshop / name).unlink(missing_ok=True)
            with suppress(OSError):
                workshop.rmdir()
        finally:
            os.close(handle)


def recover(path: Path) -> None:
    """Complete or remove what a killed writer of `path` left behind. Do nothing while a writer is at work."""
    path = Path(os.path.realpath(path))
    workshop = workshop_of(path)
    if not workshop.is_dir():
        return
    try:
        with sole_writer(path, _owner_kind(workshop), wait=not path.exists()):
            pass
    except (OutputError, OSError):
        return  # a writer is at work, or this user may only read, or the disk is full: what is at `path` can be read


def swap(new: Path, path: Path, old: Path) -> Path:
    """Put the folder `new` at `path` and return where the folder that was there is now.

    A kill at any moment leaves a whole folder at `path`, or all that `recover` needs to put one there.
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
    """Remove a folder that was replaced. Files in it that are not ours are kept beside `path`, and the user is told."""
    kind.remove(folder)
    if folder.exists():
        set_aside(folder, path)


def set_aside(folder: Path, path: Path) -> None:
    """Keep a folder that was at `path` beside it, under a free name, and tell the user."""
    names = (path.with_name(f"{path.name}.kept-{number}") for number in count())
    kept = next(name for name in names if not os.path.lexists(name))
    os.rename(folder, kept)
    tell(f"{path} was replaced; files in it that this command did not make are in {kept}")


def make_folders(path: Path, mode: int = 0o777) -> None:
    """Create a folder and its missing parents, and make every new name durable."""
    missing = [place for place in (path, *path.parents) if not os.path.lexists(place)]
    path.mkdir(mode, parents=True, exist_ok=True)
    for place in missing:
        sync_folder(place.parent)


def sync_tree(folder: Path) -> None:
    """Make every file and folder below `folder` durable."""
    for root, _, files in os.walk(folder):
        for name in files:
            sync_file(Path(root) / name)
        sync_folder(Path(root))


def sync_file(path: Path) -> None:
    """Make the content of one file durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable, where its file system can do that."""
    try:
        sync_file(path)
    except OSError as problem:
        if problem.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES):
            raise


def _lock(path: Path, workshop: Path, wait: bool) -> int:
    """Return the locked handle of the workshop's lock file; the previous writer may remove that file meanwhile."""
    waiting = False
    while True:
        _make(workshop, mode_while_written(path) if path.is_dir() else 0o777)
        try:
            handle = os.open(workshop / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:
            continue  # the previous writer has just removed its workshop
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if waiting else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(handle)
            if not wait:
                raise OutputError(f"{path} is being written by another process. Wait for it, or stop it.") from None
            tell(f"waiting for another process that writes {path}")
            waiting = True
            continue
        except BaseException:
            os.close(handle)
            raise
        if _is_at(handle, workshop / LOCK):
            return handle
        os.close(handle)


def _make(workshop: Path, mode: int) -> None:
    if workshop.is_symlink() or (workshop.exists() and not _is_ours(workshop)):
        raise OutputError(f"{workshop} is in the way, and this command did not make it. Move it elsewhere.")
    make_folders(workshop, mode)


def _is_ours(workshop: Path) -> bool:
    """Return whether a writer of ours made the folder: by exact names, an empty lock and a marker in owner.json."""
    try:
        held = {entry.name for entry in workshop.iterdir()} - {UNFINISHED_OWNER}
    except FileNotFoundError:
        return True
    except NotADirectoryError:
        return False
    if not held <= {OWNER, LOCK, *FOLDERS} or not _is_lock(workshop / LOCK):
        return False
    if any((workshop / name).is_symlink() for name in held):
        return False  # removing what it points at would be removing somebody's files
    if OWNER not in held or is_made_by_us(workshop / OWNER):
        return OWNER in held or held <= {LOCK}
    # The previous writer may have removed it since the folder was read.
    return not os.path.lexists(workshop / OWNER) and _is_ours(workshop)


def _is_lock(path: Path) -> bool:
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return True
    return stat.S_ISREG(facts.st_mode) and facts.st_size == 0


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _recover(path: Path, workshop: Path) -> None:
    """Complete a swap that was cut off between its two renames, then remove what is left of earlier writers."""
    new, ready, old = (workshop / name for name in (NEW, READY, OLD))
    if old.exists() and not path.exists():
        os.rename(ready if ready.exists() else old, path)
        sync_folder(path.parent)
    for unseen in (new, workshop / SCRATCH):
        if unseen.exists():
            shutil.rmtree(unseen)  # no user has ever seen it
    for replaced in (ready, old):
        if replaced.exists():
            discard(replaced, _owner_kind(workshop), path)


def _write_owner(workshop: Path, kind: FolderKind) -> None:
    text = json.dumps({"made_by": f"lightgc2n {__version__}", "kind": asdict(kind)}, indent=1) + "\n"
    (workshop / UNFINISHED_OWNER).write_text(text, encoding="utf-8")
    sync_file(workshop / UNFINISHED_OWNER)
    os.replace(workshop / UNFINISHED_OWNER, workshop / OWNER)
    sync_folder(workshop)


def _owner_kind(workshop: Path) -> FolderKind:
    """Return the kind of folder that the workshop's owner writes; without one, no file counts as ours."""
    try:
        kind = json.loads((workshop / OWNER).read_text(encoding="utf-8"))["kind"]
        return FolderKind(kind["name"], kind["marker"], tuple(kind["files"]))
    except (OSError, ValueError, KeyError, TypeError):
        return FolderKind("folder", OWNER)


def _exchange(one: Path, other: Path) -> None:
    """Exchange two names in one step."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if call(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), os.fspath(one), None, os.fspath(other))

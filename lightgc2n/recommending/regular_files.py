"""Opens files of an untrusted folder: regular files only, and never through a symbolic link."""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

from lightgc2n.errors import DataError
from lightgc2n.recommending.schema_checks import EXPORT_AGAIN

FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
LINKS = (errno.ELOOP, errno.EMLINK, errno.ENOTDIR, errno.ENXIO)  # errors of open() for a link or a socket
LONGEST_TEXT = 2**20
State = tuple[int, ...]


def open_regular(folder: Path, name: str) -> BufferedReader:
    """Open a regular file below `folder`; no part of its name may be a link, and a FIFO does not block."""
    *parents, last = name.split("/")
    try:
        handle = _open_below(folder, parents, last)
    except FileNotFoundError:
        raise DataError(f"{folder / name}: missing. {EXPORT_AGAIN}") from None
    except OSError as problem:
        if problem.errno in LINKS:
            raise _not_regular(folder / name) from None
        raise DataError(f"{folder / name}: cannot be read: {problem.strerror}.") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _not_regular(folder / name)
    return os.fdopen(handle, "rb")


def _open_below(folder: Path, parents: list[str], last: str) -> int:
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)  # the folder itself may be a link
    try:
        for parent in parents:
            below = os.open(parent, FLAGS | os.O_DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = below
        return os.open(last, FLAGS | os.O_NONBLOCK, dir_fd=directory)
    finally:
        os.close(directory)


def read_regular(folder: Path, name: str, longest: int = LONGEST_TEXT) -> bytes:
    """The content of a regular file below `folder`; raise an error if it is longer than this."""
    with open_regular(folder, name) as file:
        data = file.read(longest + 1)
    if len(data) > longest:
        raise DataError(f"{folder / name}: damaged: longer than {longest:,} bytes.")
    return data


def state_of(file: BufferedReader) -> State:
    """A value that changes when the file is replaced or rewritten."""
    status = os.fstat(file.fileno())
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def refuse_links(folder: Path) -> None:
    """Raise an error if the folder contains anything but regular files and folders."""
    for where, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(where, name)
            try:
                mode = path.lstat().st_mode
            except FileNotFoundError:
                continue
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise _not_regular(path)


def _not_regular(path: Path) -> DataError:
    return DataError(
        f"{path}: a link, or no regular file: everything in a bundle must be a regular file. "
        f"Copy the file itself there (cp -L); the bundle folder may be a link."
    )

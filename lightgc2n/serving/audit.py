"""The audit log: one line of JSON for each request that stored or erased something, with keyed hashes of accounts.

Ids of accounts and items are in it only with --log-ids. The file is opened for each line, so it can be rotated.
"""

import asyncio
import errno
import json
import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lightgc2n.errors import OutputError
from lightgc2n.serving.logs import log

BEGIN = b'{"audit": '


class AuditLog:
    """Appends lines to a file, or to the log on stderr where there is no file."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, "audit")
        self._thread.submit(int).result()  # start the thread now: later the system may refuse

    async def note(self, action: str, facts: Callable[[], dict[str, Any]], durable: bool) -> None:
        """Append a line, in a thread; a line that cannot be written is reported in the log.

        Args:
            facts: returns what the line holds; called in the thread.
            durable: return only after the line has reached the disk.
        """
        await asyncio.get_running_loop().run_in_executor(self._thread, self.write, action, facts, durable)

    def close(self) -> None:
        self._thread.shutdown(wait=False)

    def write(self, action: str, facts: Callable[[], dict[str, Any]], durable: bool) -> None:
        """The same in the thread of the caller."""
        if self._path is None:
            log("audit", action=action, **facts())
            return
        line = {"audit": action, "time": datetime.now(UTC).isoformat(timespec="milliseconds"), **facts()}
        try:
            append_line(self._path, json.dumps(line).encode() + b"\n", durable)
        except OSError as problem:
            log("audit_failed", "error", reason=f"{self._path}: {problem.strerror}", line=line)


def append_line(path: Path, line: bytes, durable: bool) -> None:
    """Append a line with one write, so that workers share a file; to a file of somebody else nothing is written."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # never wait for a FIFO
    file = os.open(path, flags, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode) or os.pread(file, len(BEGIN), 0) not in (b"", BEGIN):
            raise OSError(errno.EEXIST, "a file that lightgc2n did not begin is there")
        written = os.write(file, line)
        if written < len(line):  # the disk is full: leave no half line
            end = os.lseek(file, 0, os.SEEK_CUR)
            if os.fstat(file).st_size == end:  # no other worker has written behind it
                os.ftruncate(file, end - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if durable:
            os.fdatasync(file)
    finally:
        os.close(file)


def refuse_foreign_file(path: Path) -> None:
    """Raise an error unless an audit log may be appended to this path: a new file, or one that we began."""
    try:
        facts = path.lstat()
        if not stat.S_ISREG(facts.st_mode):
            raise OutputError(f"--audit-log {path}: is not a regular file. Choose another path.")
        with path.open("rb") as file:
            begin = file.read(len(BEGIN))
    except FileNotFoundError:
        if not path.absolute().parent.is_dir():
            raise OutputError(f"--audit-log {path}: there is no folder {path.parent}. Create it first.") from None
        return
    except OSError as problem:
        raise OutputError(f"--audit-log {path}: cannot be read: {problem.strerror}.") from None
    if begin not in (b"", BEGIN):
        raise OutputError(f"--audit-log {path}: a file that lightgc2n did not begin. Choose another path.")

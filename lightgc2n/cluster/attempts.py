"""One attempt at a run, on a node: the same subprocess as without a cluster, in a scratch folder of this node."""

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lightgc2n.cluster.connect import refuse_here
from lightgc2n.cluster.home import Order, sendable
from lightgc2n.errors import ClusterError
from lightgc2n.experiments.subprocesses import POLL_SECONDS, SECONDS_TO_STOP, child_command
from lightgc2n.files.folder_kinds import FolderKind
from lightgc2n.training.runs import RUN

Folder = Mapping[str, npt.NDArray[np.uint8]]  # the bytes of each file by its relative path


@dataclass(frozen=True)
class Job:
    """What a node needs for an attempt, beside the data and the run."""

    name: str
    attempt: int
    module: str
    arguments: tuple[str, ...]  # between the run's folder and the seconds
    data: str  # the name of the dataset's folder
    environment: dict[str, str]
    beat: float  # seconds between two messages
    versions: dict[str, str]  # of the machine of the command


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended: the exit code of its subprocess, or None if a newer attempt has replaced it."""

    code: int | None
    log: str = ""


def attempt(home: Any, job: Job, data: Folder) -> Outcome:
    """Train in scratch, and send the files of each epoch to the machine of the command."""
    import ray

    refuse_here(job.versions)
    node = ray.get_runtime_context().get_node_id()
    order = ray.get(home.begin.remote(job.name, job.attempt, node))
    if order is None:
        return Outcome(None)
    with scratch() as folder:
        run = _unpack(folder, job, order, data)
        command = child_command(job.module, (run, *job.arguments), order.seconds)

        def send(files: dict[str, bytes]) -> bool:
            return bool(ray.get(home.keep.remote(job.name, job.attempt, node, files)))

        with (folder / "log.txt").open("wb") as log:
            code = _watch(command, os.environ | job.environment, log.fileno(), run, job.beat, send)
        return Outcome(code, (folder / "log.txt").read_text(encoding="utf-8", errors="replace"))


def _watch(command: list[str], environment: Any, log: int, run: Path, beat: float, send: Any) -> int | None:
    """Run the subprocess; send its new files now and then, or an empty message to show that this node is alive."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, cwd=run.parent)
    sent, next_beat = _signatures(run), time.monotonic()
    try:
        while True:
            code = process.poll()  # before the files are read: none is written after it
            now = _signatures(run)
            changed = [path for path in sendable(run) if now.get(path.name) != sent.get(path.name)]
            if changed or code is not None or time.monotonic() >= next_beat:
                if not send(_contents(changed)):
                    return None
                sent, next_beat = now, time.monotonic() + beat
            if code is not None:
                return code
            time.sleep(POLL_SECONDS)
    finally:
        _stop(process)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(SECONDS_TO_STOP)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    assert process.stdin is not None
    process.stdin.close()


def _signatures(run: Path) -> dict[str, tuple[int, int, int]]:
    """What changes when a file is replaced."""
    states = ((path.name, path.stat()) for path in sendable(run))
    return {name: (state.st_ino, state.st_mtime_ns, state.st_size) for name, state in states}


def _contents(paths: list[Path]) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in paths}


def _unpack(folder: Path, job: Job, order: Order, data: Folder) -> Path:
    """Write the dataset and the run into scratch; return the run's folder, whose description names this dataset."""
    place, run = folder / "data" / job.data, folder / "run"
    write_folder(place, data)
    run.mkdir()
    for name, content in order.files.items():
        (run / name).write_bytes(content)
    description = json.loads(order.files[RUN])
    description["data"]["folder"] = str(place)
    (run / RUN).write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
    return run


def write_folder(folder: Path, files: Folder) -> None:
    """Write the files of a folder that was read with `read_folder`."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content.tofile(path)


def read_folder(folder: Path, kind: FolderKind) -> dict[str, npt.NDArray[np.uint8]]:
    """The bytes of each file of a folder, by its path relative to that; files of other programs are left out."""
    paths = (path for pattern in (kind.marker, *kind.files) for path in sorted(folder.glob(pattern)) if path.is_file())
    return {path.relative_to(folder).as_posix(): np.fromfile(path, dtype=np.uint8) for path in paths}


ATTEMPT = "attempt-"  # begins the names of our scratch folders; nothing else there is removed


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder of this process alone, removed at the end; those that killed processes left are removed first."""
    root = Path(tempfile.gettempdir()) / f"lightgc2n-scratch-{os.getuid()}"
    with suppress(FileExistsError):
        root.mkdir(mode=0o700)
    if root.is_symlink() or not root.is_dir() or root.stat().st_uid != os.getuid():
        raise ClusterError(
            f"{root} on {os.uname().nodename} is not a folder of this user. Remove it, or set TMPDIR for `ray start` "
            f"there."
        )
    with ExitStack() as held:
        with _locked(root):  # so that nobody removes a folder that is being made
            for left in root.glob(f"{ATTEMPT}*"):
                with suppress(OSError), _locked(left, fcntl.LOCK_NB):
                    shutil.rmtree(left, ignore_errors=True)
            folder = Path(tempfile.mkdtemp(dir=root, prefix=ATTEMPT))
            held.enter_context(_locked(folder))
        held.callback(shutil.rmtree, folder, ignore_errors=True)
        yield folder


@contextmanager
def _locked(folder: Path, flag: int = 0) -> Iterator[None]:
    """Lock a folder; the system unlocks it when the process ends."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | flag)
        yield
    finally:
        os.close(handle)

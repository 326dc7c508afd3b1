"""A PostgreSQL server in a temporary folder, for tests; it can be killed and started again."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path


def find_binaries() -> Path | None:
    """Return the folder of PostgreSQL's programs, or None where it is not installed."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    on_path = shutil.which("initdb")
    if on_path:
        folders.append(Path(os.path.realpath(on_path)).parent)
    return next((folder for folder in folders if (folder / "postgres").exists()), None)


class PostgresServer:
    """One server with one database, reached over a socket in its folder."""

    def __init__(self, folder: Path, binaries: Path) -> None:
        self.folder, self._binaries = folder, binaries
        self._data = folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            shutil.chown(folder, "postgres")
        if not self._data.exists():
            self._run(["initdb", "-D", str(self._data), "-A", "trust", "-U", "tester", "-E", "UTF8", "--no-sync"])
        self._port = _free_port()

    def new_database(self, name: str) -> str:
        """Create an empty database and return its address."""
        subprocess.run(
            [self._binaries / "createdb", "-h", "127.0.0.1", "-p", str(self._port), "-U", "tester", name], check=True
        )
        return self.address(name)

    def address(self, name: str) -> str:
        return f"postgresql://tester@127.0.0.1:{self._port}/{name}"

    def start(self) -> None:
        command = self._command(
            ["postgres", "-D", str(self._data), "-p", str(self._port), "-h", "127.0.0.1", "-k", str(self.folder)]
        )
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, start_new_session=True)
        self._wait_until_ready()

    def kill(self) -> None:
        """Kill the server and all its processes at once, as a power cut would."""
        assert self._process is not None
        for child in _children(self._process.pid):
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(child, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        self._process = None
        (self._data / "postmaster.pid").unlink(missing_ok=True)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop all processes of the server for the time of the block; they keep their connections."""
        assert self._process is not None
        pids = [self._process.pid, *_children(self._process.pid)]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait()
            self._process = None

    def _wait_until_ready(self) -> None:
        for _ in range(600):
            done = subprocess.run(
                [self._binaries / "pg_isready", "-h", "127.0.0.1", "-p", str(self._port), "-q"], check=False
            )
            if done.returncode == 0:
                return
            time.sleep(0.1)
        raise RuntimeError(f"PostgreSQL did not start:\n{(self.folder / 'log').read_text()}")

    def _run(self, command: Sequence[str]) -> None:
        subprocess.run(self._command(command), check=True, stdout=subprocess.DEVNULL, cwd=self.folder)

    def _command(self, command: Sequence[str]) -> list[str]:
        full = [str(self._binaries / command[0]), *command[1:]]
        if os.geteuid() != 0:
            return full
        return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *full]


@contextmanager
def running_postgres(folder: Path, binaries: Path) -> Iterator[PostgresServer]:
    """Yield a running server, and stop it at the end."""
    server = PostgresServer(folder, binaries)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()] if path.exists() else []


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])

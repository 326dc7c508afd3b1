"""One real cluster of three raylets for all tests of a session that need one."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("three_raylets.py")
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}


def until(holds: Callable[[], object], what: str, seconds: float = 120) -> None:
    """Wait for what a test needs; fail if it never comes."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.05)


def descendants(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for one in found:
        for thread in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                found += [int(child) for child in thread.read_text().split()]
            except OSError:
                continue  # the thread has ended
    return found


class Raylets:
    """The cluster, driven by another process: ray stays out of the process of the tests."""

    def __init__(self, folder: Path) -> None:
        log = (folder / "cluster.log").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            env=os.environ | QUIET,
        )  # fmt: skip
        log.close()
        self.address, self.nodes = "", dict[int, str]()
        self._read()

    def _read(self) -> None:
        assert self.process.stdout is not None
        facts = next(json.loads(line) for line in self.process.stdout if line.startswith("{"))
        self.address, self.nodes = facts["address"], {int(pid): one for pid, one in facts["raylets"].items()}

    def ask(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        self._read()

    def node_with(self, text: str, apart_from: int = 0) -> int:
        """The raylet above a process whose command line contains this text; 0 while there is none."""
        return self._with(text, apart_from)[0]

    def worker_with(self, text: str) -> int:
        """The process of a node whose command line contains this text; 0 while there is none."""
        return self._with(text)[1]

    def _with(self, text: str, apart_from: int = 0) -> tuple[int, int]:
        for raylet in self.nodes.keys() - {apart_from}:
            for pid in descendants(raylet):
                try:
                    if text in Path(f"/proc/{pid}/cmdline").read_text(errors="replace"):
                        return raylet, pid
                except OSError:
                    continue
        return 0, 0

    def kill(self, raylet: int) -> None:
        """End a node as a power cut would, and start another in its place."""
        self.ask(f"kill {raylet}")
        self.ask("add")

    def freeze(self, raylet: int) -> Callable[[], None]:
        """Stop every process of a node; the returned function lets them go on."""
        stopped = descendants(raylet)
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)

        def thaw() -> None:
            for pid in reversed(stopped):
                os.kill(pid, signal.SIGCONT)

        return thaw

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


@pytest.fixture(scope="session")
def raylets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Raylets]:
    pytest.importorskip("ray")
    started = Raylets(tmp_path_factory.mktemp("cluster"))
    try:
        yield started
    finally:
        started.close()


def start(*words: object, **limits: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "lightgc2n", *map(str, words)]
    environment = os.environ | QUIET | limits
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def end(process: subprocess.Popen[str], code: int = 0) -> str:
    """The messages of a command that must end with this code."""
    out, messages = process.communicate(timeout=400)
    assert process.returncode == code, out + messages
    return messages


def run(*words: object, code: int = 0, **limits: str) -> str:
    return end(start(*words, **limits), code)


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "homes"
    run("generate", "--accounts", 60, "--out", folder)
    return folder

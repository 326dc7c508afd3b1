"""What a service and a disk must bear: little memory, a log that nobody reads, no descriptors, no room."""

import fcntl
import http.client
import os
import resource
import shutil
import signal
import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from tests.chaos.world import EVERYBODY
from tests.serving.running import Client, Command, command, wait_for

MEMORY = 512 * 2**20
BUSY = (408, 429, 503)


class PoorService:
    """A service with 512 MB of address space whose log nobody reads. An honest client asks it all the time."""

    def __init__(self, bundle: Path) -> None:
        self.bundle, self.answers, self.killed = bundle, Counter[int](), 0
        self._resources, self._ending, self._honest = ExitStack(), threading.Event(), threading.Thread()
        self.start()

    def start(self) -> None:
        """Start the service and the client."""
        self._ending.clear()
        reading, writing = os.pipe()
        self._resources.callback(os.close, reading)
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
        served = command(self.bundle, most={resource.RLIMIT_AS: MEMORY}, stderr=writing)
        self.served: Command = self._resources.enter_context(served)
        os.close(writing)
        self._honest = threading.Thread(target=self._ask)
        self._honest.start()

    def kill(self) -> None:
        """Kill the service at whatever it is doing."""
        self._stop_asking()
        self.served.process.send_signal(signal.SIGKILL)
        self.served.process.wait(30)
        self._resources.close()
        self.killed += 1

    def end(self) -> int:
        """Tell the service to end, and return its exit code."""
        self._stop_asking()
        self.served.process.send_signal(signal.SIGTERM)
        code = self.served.process.wait(60)
        self._resources.close()
        return code

    def take_descriptors(self) -> tuple[int, int]:
        """Leave the service no free file descriptor, and return what it had."""
        process = self.served.process.pid
        used = {int(one.name) for one in Path(f"/proc/{process}/fd").iterdir()}
        free = min(set(range(len(used) + 1)) - used)
        before = resource.prlimit(process, resource.RLIMIT_NOFILE)
        resource.prlimit(process, resource.RLIMIT_NOFILE, (free, before[1]))
        return before

    def give_descriptors(self, before: tuple[int, int]) -> None:
        resource.prlimit(self.served.process.pid, resource.RLIMIT_NOFILE, before)

    def check(self, in_bundle: set[str]) -> None:
        """Check that it lives and answers for the accounts that the bundle holds now, and for no other."""
        assert self.served.process.poll() is None, "the service has ended by itself"
        client = Client(self.served.client.port)
        gone, there = sorted(EVERYBODY - in_bundle), sorted(in_bundle)
        try:
            assert client.get("/healthz").status == 200
            huge = client.post("/v1/recommend", b'{"history": [' + b"0," * 900_000 + b'"x"]}')
            assert huge.status in (413, 422, *BUSY), huge.status
            for account in (*gone[:2], *gone[-2:]):
                wait_for(lambda one=account: client.recommend(account=one).status == 404, 150)
            wait_for(lambda: client.recommend(account=there[0]).status == 200, 150)
        finally:
            client.close()

    def _ask(self) -> None:
        client = Client(self.served.client.port)
        while not self._ending.wait(0.05):
            try:
                self.answers[client.recommend(account="h000001", k=3).status] += 1
            except (OSError, http.client.HTTPException):
                self.answers[0] += 1  # it could not connect: no descriptor is free
        client.close()

    def _stop_asking(self) -> None:
        self._ending.set()
        self._honest.join(60)


class Filler:
    """A file that takes all the room of a disk but a little."""

    def __init__(self, disk: Path) -> None:
        self.path = disk / "filler"

    def fill(self, room: int) -> None:
        with self.path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, shutil.disk_usage(self.path.parent).free - room))

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)

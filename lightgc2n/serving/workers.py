"""Starting and ending the service: one worker in this process, or several beside it."""

import ctypes
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Event
from typing import Any

from lightgc2n.errors import LightGC2NError, SettingError
from lightgc2n.recommending.bundle_files import open_bundle
from lightgc2n.serving.logs import flush_logs, log, set_up_logs
from lightgc2n.serving.settings import ServiceSettings

BACKLOG = 2048
LOOK_SECONDS, RESTING_SECONDS = 0.2, 5.0  # between looks at workers, and between two tries to replace one
STARTING_SECONDS = 30.0  # a worker that fails so early would fail for ever
SWITCH_SECONDS = 0.001  # for which one thread of a worker keeps the others waiting, while it runs Python
ARENA_MAX = -8  # the number that mallopt knows it by
SHARED = "PROMETHEUS_MULTIPROC_DIR"


def share_arenas() -> None:
    """Let all threads allocate from two arenas, as MALLOC_ARENA_MAX=2 does: each further one reserves 64 MiB."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc has it
    if mallopt is not None and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(ARENA_MAX, 2)


def reserve(settings: ServiceSettings) -> socket.socket:
    """A socket at the address, before anything slow: a taken port is told at once. Nobody can connect yet."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # The protocol is named, or asyncio would leave small packets waiting for each other.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((settings.host, settings.port))
    except OSError as problem:
        found.close()
        raise SettingError(
            f"--host {settings.host} --port {settings.port}: cannot listen there: {problem.strerror or problem}. "
            f"Choose another --port, or a --host of this machine."
        ) from None
    found.set_inheritable(True)
    return found


def address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(settings: ServiceSettings, listening: socket.socket, ready: Callable[[], None]) -> None:
    """Serves until SIGTERM or Ctrl-C, then answers what was asked and ends.

    Args:
        ready: is called when the bundle has been found sound.
    """
    share_arenas()
    set_up_logs()
    if settings.workers == 1:
        work(settings, listening, ready)
    else:
        open_bundle(settings.bundle)  # a damaged one is told once, not by each worker
        listening.listen(BACKLOG)  # from now on who comes may have to wait, and is not sent away
        ready()
        Workers(settings, listening).run()


def work(
    settings: ServiceSettings,
    listening: socket.socket,
    ready: Callable[[], None] = lambda: None,
    parent: int | None = None,
    all_end: Callable[[], bool] = lambda: True,
) -> None:
    """One worker.

    Args:
        parent: the process that looks after it, without which it ends.
        all_end: whether all workers end, and not this one alone.
    """
    from lightgc2n.serving.live_bundle import spare_collector
    from lightgc2n.serving.server import Server
    from lightgc2n.serving.service import Service

    sys.setswitchinterval(SWITCH_SECONDS)
    service = Service(settings, os.environ.get(SHARED))
    server = Server(service, parent, all_end)
    spare_collector()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, server.handle_exit)  # heard from now on, also before and after it runs
    log("started", model=service.served.recommender.name, checksum=service.served.checksum, address=address(listening))
    listening.listen(BACKLOG)
    ready()
    server.run(sockets=[listening])


class Workers:
    """Several workers on one socket; one that dies is replaced."""

    def __init__(self, settings: ServiceSettings, listening: socket.socket) -> None:
        self._settings, self._listening = settings, listening
        self._context = multiprocessing.get_context("spawn")
        self._processes: list[SpawnProcess] = []
        self._shared = tempfile.mkdtemp(prefix="lightgc2n-metrics-")  # where workers add up their numbers
        self._asked_to_end = False
        self._all_end = self._context.Event()  # tells a worker that is told to end whether the others stay

    def run(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._end)
        try:
            self._processes = [self._start() for _ in range(self._settings.workers)]
            failed = self._look_after()
            self._all_end.set()  # also where a worker could not start
            self._listening.close()  # or connections would wait at a door that nobody opens
            for process in self._processes:
                process.terminate()
            for process in self._processes:
                process.join()
        finally:
            shutil.rmtree(self._shared, ignore_errors=True)
            flush_logs()
        if failed:
            raise SettingError("a worker could not start; its words are above.")

    def _start(self) -> SpawnProcess:
        told = self._settings, self._listening, os.getpid(), self._shared, self._all_end
        process = self._context.Process(target=_worker, args=told)
        process.start()
        return process

    def _look_after(self) -> bool:
        """Until the end is asked for; true if a worker cannot even start."""
        begun, resting = time.monotonic(), dict[int, float]()  # until when not to try again, by place
        while not self._asked_to_end:
            time.sleep(LOOK_SECONDS)
            now = time.monotonic()
            for place, process in enumerate(self._processes):
                code = process.exitcode
                if code is None or now < resting.get(place, 0) or self._asked_to_end:
                    continue
                log("worker_died", "error", exit_code=code)
                if code > 0 and now - begun < STARTING_SECONDS:
                    return True
                resting[place] = now + RESTING_SECONDS
                self._replace(place)
        return False

    def _replace(self, place: int) -> None:
        from prometheus_client.multiprocess import mark_process_dead

        mark_process_dead(self._processes[place].pid, self._shared)  # type: ignore[no-untyped-call]
        self._processes[place] = self._start()

    def _end(self, _number: int, _frame: Any) -> None:
        self._asked_to_end = True
        self._all_end.set()


def _worker(settings: ServiceSettings, listening: socket.socket, parent: int, shared: str, all_end: Event) -> None:
    os.environ[SHARED] = shared  # read when what counts is imported
    share_arenas()
    set_up_logs()
    signal.signal(signal.SIGINT, lambda _number, _frame: None)  # the parent says when it is time
    try:
        work(settings, listening, parent=parent, all_end=all_end.is_set)
    except (LightGC2NError, OSError) as problem:
        log("cannot_start", "error", reason=str(problem))
        flush_logs()
        sys.exit(LightGC2NError.exit_code)

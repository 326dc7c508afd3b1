"""Starts and stops the service: one worker in this process, or several child processes."""

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
CHECK_SECONDS, RESTART_SECONDS = 0.2, 5.0  # seconds between checks of the workers, and between two restarts of one
STARTUP_SECONDS = 30.0  # a worker that fails this early would fail again
SWITCH_SECONDS = 0.001  # a Python thread yields to others after this time
ARENA_MAX = -8  # M_ARENA_MAX of malloc.h
SHARED = "PROMETHEUS_MULTIPROC_DIR"  # the folder that workers share; prometheus_client reads it on import


def share_arenas() -> None:
    """Limit malloc to two arenas, as MALLOC_ARENA_MAX=2 does: each further one reserves 64 MiB."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc has it
    if mallopt is not None and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(ARENA_MAX, 2)


def reserve(settings: ServiceSettings) -> socket.socket:
    """Bind a socket before anything slow, so that a taken port is reported at once; it does not listen yet."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is given.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as problem:
        listening.close()
        raise SettingError(
            f"--host {settings.host} --port {settings.port}: cannot listen there: {problem.strerror or problem}. "
            f"Choose another --port, or a --host of this machine."
        ) from None
    listening.set_inheritable(True)
    return listening


def address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(settings: ServiceSettings, listening: socket.socket, ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or Ctrl-C, then finish the open requests and return.

    Args:
        ready: called once the bundle has been checked.
    """
    share_arenas()
    set_up_logs()
    if settings.workers == 1:
        work(settings, listening, ready)
    else:
        open_bundle(settings.bundle)  # a damaged bundle is reported once, not by each worker
        listening.listen(BACKLOG)  # connections are queued from now on
        ready()
        Workers(settings, listening).run()


def work(
    settings: ServiceSettings,
    listening: socket.socket,
    ready: Callable[[], None] = lambda: None,
    parent: int | None = None,
    all_end: Callable[[], bool] = lambda: True,
) -> None:
    """Run one worker.

    Args:
        parent: the process id of the supervisor; the worker ends when it dies.
        all_end: returns whether all workers shut down, not only this one.
    """
    from lightgc2n.serving.served_bundle import freeze_garbage_collector
    from lightgc2n.serving.server import Server
    from lightgc2n.serving.service import Service

    sys.setswitchinterval(SWITCH_SECONDS)
    service = Service(settings, os.environ.get(SHARED))
    server = Server(service, parent, all_end)
    freeze_garbage_collector()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, server.handle_exit)  # also before and after server.run()
    log("started", model=service.served.recommender.name, checksum=service.served.checksum, address=address(listening))
    listening.listen(BACKLOG)
    ready()
    server.run(sockets=[listening])


class Workers:
    """Supervises several workers on one socket; a worker that dies is replaced."""

    def __init__(self, settings: ServiceSettings, listening: socket.socket) -> None:
        self._settings, self._listening = settings, listening
        os.environ["PYTHONSAFEPATH"] = "1"  # or workers import Python files of the current folder in place of packages
        self._context = multiprocessing.get_context("spawn")
        self._processes: list[SpawnProcess] = []
        self._shared = tempfile.mkdtemp(prefix="lightgc2n-metrics-")  # where workers share their metrics
        self._ending = False
        self._all_end = self._context.Event()  # set when all workers shut down

    def run(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._end)
        try:
            self._processes = [self._start() for _ in range(self._settings.workers)]
            failed = self._supervise()
            self._all_end.set()  # also if a worker could not start
            self._listening.close()  # or connections would be queued and never accepted
            for process in self._processes:
                process.terminate()
            for process in self._processes:
                process.join()
        finally:
            shutil.rmtree(self._shared, ignore_errors=True)
            flush_logs()
        if failed:
            raise SettingError("a worker could not start; its log lines are above.")

    def _start(self) -> SpawnProcess:
        arguments = self._settings, self._listening, os.getpid(), self._shared, self._all_end
        process = self._context.Process(target=_worker, args=arguments)
        process.start()
        return process

    def _supervise(self) -> bool:
        """Replace dead workers until shutdown; return True if a worker cannot start."""
        begun, not_before = time.monotonic(), dict[int, float]()  # the earliest time of the next restart, by worker
        while not self._ending:
            time.sleep(CHECK_SECONDS)
            now = time.monotonic()
            for place, process in enumerate(self._processes):
                code = process.exitcode
                if code is None or now < not_before.get(place, 0) or self._ending:
                    continue
                log("worker_died", "error", exit_code=code)
                if code > 0 and now - begun < STARTUP_SECONDS:
                    return True
                not_before[place] = now + RESTART_SECONDS
                self._replace(place)
        return False

    def _replace(self, place: int) -> None:
        from prometheus_client.multiprocess import mark_process_dead

        mark_process_dead(self._processes[place].pid, self._shared)  # type: ignore[no-untyped-call]
        self._processes[place] = self._start()

    def _end(self, _number: int, _frame: Any) -> None:
        self._ending = True
        self._all_end.set()


def _worker(settings: ServiceSettings, listening: socket.socket, parent: int, shared: str, all_end: Event) -> None:
    os.environ[SHARED] = shared  # read when prometheus_client is imported
    share_arenas()
    set_up_logs()
    signal.signal(signal.SIGINT, lambda _number, _frame: None)  # the parent decides when to shut down
    try:
        work(settings, listening, parent=parent, all_end=all_end.is_set)
    except (LightGC2NError, OSError) as problem:
        log("cannot_start", "error", reason=str(problem))
        flush_logs()
        sys.exit(LightGC2NError.exit_code)

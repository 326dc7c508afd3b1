"""Several processes that run the same function as the workers of one process group; this process is worker 0."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch.distributed import TCPStore

from lightgc2n.layers.workers import LostWorkerError, Workers
from lightgc2n.training.distributed import Job, join_run
from lightgc2n.training.process_group import find_meeting, joined, open_meeting

HERE, SECONDS = "127.0.0.1", 60.0
Work = Callable[..., Any]


class Together:
    """Processes that stay for many calls: starting one takes seconds."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.others: list[tuple[Any, Connection]] = [self._start() for _ in range(count - 1)]

    def _start(self) -> tuple[Any, Connection]:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs,), daemon=True)
        process.start()
        return process, ours

    def run(self, work: Work, *arguments: Any) -> list[Any]:
        """What `work(workers, *arguments)` returns in each process."""
        torch.set_num_threads(1)
        store = open_meeting(HERE, self.count, SECONDS)
        for number, (_, pipe) in enumerate(self.others, start=1):
            pipe.send((_in_group, (store.port, number, self.count, work, *arguments)))
        results = [_as_member(store, 0, self.count, work, *arguments)]
        for _, pipe in self.others:
            succeeded, value = pipe.recv()
            assert succeeded, value
            results.append(value)
        return results

    def start(self, jobs: list[Job], port: int) -> "Started":
        """Start the other workers of a run, as `train_with` wants them started."""
        self.others = [(process, pipe) if process.is_alive() else self._start() for process, pipe in self.others]
        for job, (_, pipe) in zip(jobs, self.others, strict=True):
            pipe.send((join_run, (job, HERE, port, "cpu", SECONDS)))
        return Started([pipe for _, pipe in self.others])

    def close(self) -> None:
        for process, pipe in self.others:
            pipe.close()
            process.join(10)
            process.kill()


class Started:
    """The other workers of a run."""

    def __init__(self, pipes: list[Connection]) -> None:
        self.pipes = dict(enumerate(pipes, start=1))
        self.errors: dict[int, Exception | None] = {}

    def ended(self) -> dict[int, Exception | None]:
        for number, pipe in self.pipes.items():
            if number not in self.errors and pipe.poll():
                self._receive(number)
        return dict(self.errors)

    def leave(self, number: int) -> None:
        """They have one place only."""

    def stop(self) -> None:
        """Wait for them: a worker that is left alone ends soon."""
        for number in self.pipes.keys() - self.errors.keys():
            self._receive(number)

    def _receive(self, number: int) -> None:
        try:
            succeeded, value = self.pipes[number].recv()
            self.errors[number] = None if succeeded else value
        except EOFError:
            self.errors[number] = LostWorkerError(f"worker {number}: its process ended")


def _serve(pipe: Connection) -> None:
    torch.set_num_threads(1)
    while True:
        try:
            work, arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((True, work(*arguments)))
        except Exception as problem:
            pipe.send((False, problem))


def _in_group(port: int, number: int, count: int, work: Work, *arguments: Any) -> Any:
    return _as_member(find_meeting(HERE, port, count, SECONDS), number, count, work, *arguments)


def _as_member(store: TCPStore, number: int, count: int, work: Work, *arguments: Any) -> Any:
    with joined(number, count, store, "cpu", SECONDS) as workers:
        assert isinstance(workers, Workers)
        return work(workers, *arguments)

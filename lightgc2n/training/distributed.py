"""Several processes train one model, divided by accounts (the LightGC2N family) or by the rows of each batch.

Worker 0 is the process of the caller; it writes an ordinary run. When a worker is lost, all start again from the
checkpoint of the last epoch.

By accounts, the result is that of one process up to the rounding of sums. By rows, a model sees the other targets of a
worker's part instead of those of the whole batch where they are its negatives, and draws dropout for its own rows.
"""

import math
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from lightgc2n import zoo
from lightgc2n.data.account_parts import AccountPart, part_of_split, with_own_events
from lightgc2n.data.splits import Split, SplitConfig
from lightgc2n.errors import DataError, LightGC2NError, SettingError, TrainingError
from lightgc2n.layers.workers import LostWorkerError, Workers
from lightgc2n.models.contract import Model
from lightgc2n.models.lightgc2n.account_parts import (
    build_part,
    refuse_negatives_of_the_batch,
)
from lightgc2n.progress import SILENT, say, sent_to
from lightgc2n.training.beats import Beats
from lightgc2n.training.checkpoints import (
    Progress,
    epochs_of,
)
from lightgc2n.training.loop import TrainingConfig, train
from lightgc2n.training.process_group import find_meeting, joined, open_meeting
from lightgc2n.training.run import OpenData, finish_run, new_model, open_data
from lightgc2n.training.runs import FROM, RunPlan, load_run, read_run, sole_trainer, start_run, write_run
from lightgc2n.training.worker_steps import ManyProcesses, PartOfAccounts, PartOfRows

ACCOUNTS, ROWS = "accounts", "rows"  # ways to divide a model
WORKERS = "workers"  # key in run.json: the number of workers
SECONDS_TO_ANSWER = 1800.0  # a worker that does not answer an exchange for so long is lost
SECONDS_OF_SILENCE = 60.0  # a worker whose process is stopped, or cut off, for so long is lost
SECONDS_TO_REPORT = 5.0  # time for the worker that failed first to report its error, once another worker failed
POLL_SECONDS = 0.1
MOST_ATTEMPTS = 5  # without a finished epoch between them


@dataclass(frozen=True)
class Job:
    """All that a worker needs to train its part of a run."""

    number: int
    count: int
    model: str
    settings: dict[str, Any]
    training: TrainingConfig
    data: AccountPart | Split  # the whole split, without test queries, where a model is divided by rows
    threads: int
    selects: bool = True  # whether there are validation targets


class Started(Protocol):
    """Workers that were started."""

    def ended(self) -> dict[int, Exception | None]:
        """The workers that have ended, by number, with the error of each that failed."""

    def leave(self, number: int) -> None:
        """Start this worker elsewhere next time, if possible: it is silent."""

    def stop(self) -> None:
        """End all of them."""


Start = Callable[[list[Job], int], Started]  # starts the workers other than 0, which meet at a port


def way_to_divide(model: str, settings: dict[str, Any]) -> str:
    """Return how several workers divide a model.

    Raises:
        SettingError: it trains on one machine.
    """
    entry = zoo.entry_of(model)
    if not entry.divided_by:
        known = ", ".join(name for name, one in zoo.ZOO.items() if one.divided_by)
        raise SettingError(f"{model} trains on one machine. Train it without workers, or choose one of: {known}.")
    if entry.divided_by == ACCOUNTS:
        refuse_negatives_of_the_batch(model, zoo.model_config(model, settings))
    return entry.divided_by


def jobs_of(plan: RunPlan, split: Split, count: int) -> Iterator[Job]:
    """Yield the jobs of all workers; none of them holds a test query."""
    way = way_to_divide(plan.model, plan.settings)
    if not 1 <= count <= split.train.accounts:
        raise SettingError(f"workers: expected 1 to {split.train.accounts:,}, the number of accounts, found {count}.")
    if split.config.validation and not len(split.validation):
        raise DataError("no validation targets: the logs are too short to train on. Use a simple baseline.")
    shown = replace(
        split, validation=with_own_events(split.validation), test=split.test.select(np.arange(0)), known=None
    )
    for number in range(count):
        data = part_of_split(split, number, count) if way == ACCOUNTS else shown
        facts = (plan.model, plan.settings, plan.training, data, torch.get_num_threads())
        yield Job(number, count, *facts, split.config.validation)


def work(
    job: Job,
    workers: Workers,
    folder: Path,
    device: str = "cpu",
    seconds: float = math.inf,
    stop_after: float = math.inf,
) -> Progress:
    """Train the part of one worker until the run ends or pauses.

    Args:
        folder: the folder of the run; only worker 0 reads and writes there.
    """
    torch.set_num_threads(job.threads)
    process, model, split = _member(job, workers)
    evaluate = process.validation(split, device) if job.selects else None
    return train(model, split, job.training, evaluate, folder, device, seconds, 0, stop_after, process)


def _member(job: Job, workers: Workers) -> tuple[ManyProcesses, Model, Split]:
    """The process, the model and the split of one worker."""
    if not isinstance(job.data, AccountPart):
        return PartOfRows(workers), new_model(job.model, job.data, job.settings, job.training.seed), job.data
    torch.manual_seed(job.training.seed)
    model = build_part(job.model, zoo.model_config(job.model, job.settings), job.data, workers)
    nothing = job.data.validation.select(np.arange(0))
    split = Split(SplitConfig(), job.data.train, np.empty(0, dtype=np.int64), job.data.validation, nothing)
    return PartOfAccounts(workers, job.data), model, split


def join_run(job: Job, host: str, port: int, device: str = "cpu", seconds: float = SECONDS_TO_ANSWER) -> None:
    """Train as a worker other than 0; the run's workers meet at this address."""
    store = find_meeting(host, port, job.count, seconds)
    with sent_to(SILENT), joined(job.number, job.count, store, device, seconds) as workers:
        work(job, workers, Path(), device)


@dataclass(frozen=True)
class Home:
    """Where worker 0 trains: a process of this machine, which writes the run."""

    folder: Path
    device: str
    stop_after: float
    host: str  # the address of this machine that the other workers connect to
    seconds_to_answer: float

    def train(self, job: Job, port: int, seconds: float) -> Progress:
        store = find_meeting(self.host, port, job.count, self.seconds_to_answer)
        with joined(0, job.count, store, self.device, self.seconds_to_answer) as workers:
            return work(job, workers, self.folder, self.device, seconds, self.stop_after)


class FirstWorker:
    """The process of worker 0. A process of its own can be ended while it waits for a machine that hangs."""

    def __init__(self, home: Home, job: Job, port: int, seconds: float) -> None:
        context = multiprocessing.get_context("spawn")
        self.progress: Progress | None = None
        self._pipe, send = context.Pipe(duplex=False)
        self.process = context.Process(target=_train_at_home, args=(send, home, job, port, seconds), daemon=True)
        self.process.start()
        send.close()

    def ended(self) -> dict[int, Exception | None]:
        if self.progress is None and self._pipe.poll():
            try:
                result = self._pipe.recv()
            except EOFError:
                return {0: LostWorkerError("worker 0: its process ended")}
            if isinstance(result, Exception):
                return {0: result}
            self.progress = result
        return {} if self.progress is None else {0: None}

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self._pipe.close()


def _train_at_home(pipe: Connection, home: Home, job: Job, port: int, seconds: float) -> None:
    """The work of worker 0 in its own process, which ends with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends this process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        pipe.send(home.train(job, port, seconds))
    except LightGC2NError as problem:
        pipe.send(problem)
    except Exception as problem:
        traceback.print_exc()
        pipe.send(TrainingError(f"worker 0: {type(problem).__name__}: {problem}"))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def train_with(
    start: Start,
    plan: RunPlan,
    folder: Path,
    count: int,
    device: str = "cpu",
    seconds: float = math.inf,
    stop_after: float = math.inf,
    data: OpenData | None = None,
    host: str = "127.0.0.1",
    seconds_to_answer: float = SECONDS_TO_ANSWER,
    seconds_of_silence: float = SECONDS_OF_SILENCE,
) -> Progress:
    """Train the planned model in `folder` with `count` workers, the first of them here, or resume it.

    When a worker is lost, all start again from the checkpoint of the last epoch.

    Args:
        start: starts the other workers.
        seconds: time budget; the run pauses at the end of the epoch that exceeds it, and can resume.
        host: the address of this machine that the other workers connect to.
        seconds_to_answer: how long an exchange may take before a worker counts as lost.
        seconds_of_silence: how long a worker may show no sign of life before it counts as lost.
    """
    until = time.monotonic() + seconds
    way_to_divide(plan.model, plan.settings)
    if plan.from_run is not None:
        raise SettingError(f"a warm start trains on one machine. Train without {FROM}, or without workers.")
    dataset, split = data or open_data(plan)
    jobs = list(jobs_of(plan, split, count))
    start_run(folder, plan, dataset)
    with sole_trainer(folder):
        write_run(folder, read_run(folder) | {WORKERS: count})
        home, lost_at = Home(folder, device, stop_after, host, seconds_to_answer), list[int]()
        while True:
            try:
                progress = _attempt(start, home, jobs, until - time.monotonic(), seconds_of_silence)
                break
            except LostWorkerError as problem:
                lost_at.append(epochs_of(folder))
                if lost_at.count(lost_at[-1]) >= MOST_ATTEMPTS:
                    raise TrainingError(f"{MOST_ATTEMPTS} attempts at one epoch failed; the last: {problem}") from None
                say(f"{problem}; all workers start again after epoch {lost_at[-1]}")
        if progress.ended_by:
            finish_run(folder, load_run(folder)[1], split, progress, device)
        return progress


def _attempt(start: Start, home: Home, jobs: list[Job], seconds: float, seconds_of_silence: float) -> Progress:
    """Train until the run ends or pauses, or a worker is lost."""
    meeting = open_meeting(home.host, len(jobs) + 1, home.seconds_to_answer)
    others = start(jobs[1:], meeting.port)
    try:
        first = FirstWorker(home, jobs[0], meeting.port, seconds)
        try:
            return _supervise(first, others, Beats(meeting, len(jobs), seconds_of_silence))
        finally:
            first.stop()
    finally:
        others.stop()


def _supervise(first: FirstWorker, others: Started, beats: Beats) -> Progress:
    """Wait for worker 0; raise the error of a worker that failed, if possible the one that caused the others."""
    while True:
        ended = first.ended() | others.ended()
        if any(ended.values()):
            raise _cause(first, others)
        if first.progress is not None:
            return first.progress
        for number in beats.silent():
            if number in ended:
                continue
            if number:
                others.leave(number)
            raise LostWorkerError(f"worker {number} is silent for {beats.limit:g} s")
        time.sleep(POLL_SECONDS)


def _cause(first: FirstWorker, others: Started) -> Exception:
    """The error that made workers fail: those that wait for a failed worker report it as lost."""
    until, errors = time.monotonic() + SECONDS_TO_REPORT, list[Exception]()
    while not errors or (time.monotonic() < until and all(isinstance(one, LostWorkerError) for one in errors)):
        ended = first.ended() | others.ended()
        errors = [problem for problem in ended.values() if problem is not None]
        time.sleep(POLL_SECONDS)
    return next((one for one in errors if not isinstance(one, LostWorkerError)), errors[0])

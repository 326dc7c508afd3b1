"""Several processes train one model: divided by accounts (the LightGC2N family), or each batch divided by its rows.

Worker 0 is the process of the caller; it writes an ordinary run. When a worker is lost, all start again from the
checkpoint of the last epoch.

By accounts, the result is that of one process up to the rounding of sums. By rows, a model sees the other targets of a
worker's part instead of those of the whole batch where they are its negatives, and draws dropout for its own rows.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
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
WORKERS = "workers"  # in run.json: the number of workers
SECONDS_TO_ANSWER = 1800.0  # a worker that does not answer an exchange for so long is lost
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


class Others(Protocol):
    """The processes of the other workers."""

    def error(self) -> LightGC2NError | None:
        """What a worker reports that ended with an error of ours, rather than with its machine."""

    def stop(self) -> None:
        """End all of them."""


Start = Callable[[list[Job], int], Others]  # starts the other workers, which meet this process at a port


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
    """Train as a worker other than the first, which is at this address."""
    store = find_meeting(host, port, job.count, seconds)
    with sent_to(SILENT), joined(job.number, job.count, store, device, seconds) as workers:
        work(job, workers, Path(), device)


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
) -> Progress:
    """Train the planned model in `folder` with `count` workers, of which this process is the first; or resume it.

    When a worker is lost, all start again from the checkpoint of the last epoch.

    Args:
        start: starts the other workers.
        seconds: time budget; the run pauses at the end of the epoch that exceeds it, and can resume.
        host: the address of this machine that the other workers connect to.
    """
    until = time.monotonic() + seconds
    dataset, split = data or open_data(plan)
    way_to_divide(plan.model, plan.settings)
    if plan.from_run is not None:
        raise SettingError(f"a warm start trains on one machine. Train without {FROM}, or without workers.")
    own, *others = jobs_of(plan, split, count)
    start_run(folder, plan, dataset)
    with sole_trainer(folder):
        write_run(folder, read_run(folder) | {WORKERS: count})
        lost_at: list[int] = []
        while True:
            try:
                left = until - time.monotonic()
                progress = _attempt(start, own, others, folder, device, left, stop_after, host, seconds_to_answer)
                break
            except LostWorkerError as problem:
                lost_at.append(epochs_of(folder))
                if lost_at.count(lost_at[-1]) >= MOST_ATTEMPTS:
                    raise TrainingError(f"{MOST_ATTEMPTS} attempts at one epoch failed; the last: {problem}") from None
                say(f"{problem}; all workers start again after epoch {lost_at[-1]}")
        if progress.ended_by:
            _, model, _ = load_run(folder)
            finish_run(folder, model, split, progress, device)
        return progress


def _attempt(
    start: Start,
    own: Job,
    others: list[Job],
    folder: Path,
    device: str,
    seconds: float,
    stop_after: float,
    host: str,
    seconds_to_answer: float,
) -> Progress:
    """Train until the run ends or pauses, or a worker is lost."""
    store = open_meeting(host, own.count, seconds_to_answer)
    started = start(others, store.port)
    try:
        with joined(0, own.count, store, device, seconds_to_answer) as workers:
            return work(own, workers, folder, device, seconds, stop_after)
    except LostWorkerError:
        if (error := started.error()) is not None:
            raise error from None
        raise
    finally:
        started.stop()

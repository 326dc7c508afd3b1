"""Several processes train one model: divided by accounts (the LightGC2N family), or each batch divided by its rows.

Worker 0 is the process that writes the run; its checkpoints are those of an ordinary run. Every worker calls the same
loop, which reaches the same decisions everywhere: losses, validation and times are exchanged.

By accounts, the result is that of one process up to the rounding of sums. By rows, a model sees the other targets of a
worker's part instead of those of the whole batch where they are its negatives, and draws dropout for its own rows.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as distributed
from torch import Tensor
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.nn.utils import clip_grads_with_norm_
from torch.optim import Adam

from lightgc2n import zoo
from lightgc2n.data.account_parts import AccountPart, part_of_split, with_own_events
from lightgc2n.data.batches import Sizes, TrainingBatch, training_batch
from lightgc2n.data.splits import Split, SplitConfig, Training
from lightgc2n.devices import device_of
from lightgc2n.errors import DataError, LightGC2NError, SettingError, TrainingError
from lightgc2n.layers.workers import LostWorkerError, Workers
from lightgc2n.metrics.ranking import SELECTION_CUTOFF, reciprocal_rank
from lightgc2n.metrics.ranks import ranks_in_domains
from lightgc2n.models.contract import Model
from lightgc2n.models.lightgc2n.account_parts import (
    HELD,
    PartScorer,
    build_part,
    gather_checkpoint,
    is_of_accounts,
    refuse_negatives_of_the_batch,
)
from lightgc2n.progress import SILENT, say, sent_to
from lightgc2n.training.checkpoints import (
    OPTIMIZER,
    Progress,
    checkpoint_tensors,
    epochs_of,
    load_checkpoint,
    restore_optimizer,
    write_checkpoint,
)
from lightgc2n.training.loop import OneProcess, TrainingConfig, resume_from, train
from lightgc2n.training.run import OpenData, finish_run, new_model, open_data, validation
from lightgc2n.training.runs import FROM, RunPlan, load_run, read_run, sole_trainer, start_run, write_run

ACCOUNTS, ROWS = "accounts", "rows"  # ways to divide a model
WORKERS = "workers"  # in run.json: the number of workers
SECONDS_TO_ANSWER = 1800.0  # a worker that does not answer an exchange for so long is lost
MOST_ATTEMPTS = 5  # without a finished epoch between them


class ManyProcesses(OneProcess):
    """What one of several workers does; each of the two ways to divide a model adds how it divides a batch."""

    def __init__(self, workers: Workers) -> None:
        self.workers, self.leads = workers, workers.number == 0
        self.weight = 1.0  # of this worker's terms in the loss of the whole batch
        self.squared_norm = torch.zeros(())

    def backward(self, model: Model, terms: dict[str, Tensor]) -> dict[str, Tensor]:
        """Compute the gradients, and sum those of shared weights, the squares of the others and the terms."""
        (self.weight * torch.stack(list(terms.values())).sum()).backward()  # type: ignore[no-untyped-call]
        shared, own = split_weights(model)
        squares = sum((_square(weight) for weight in own), torch.zeros(()))
        numbers = [squares, *(self.weight * term.detach() for term in terms.values())]
        sizes = [weight.numel() for weight in shared]
        gradients = [_gradient(weight).flatten() for weight in shared]
        flat = torch.cat([*gradients, *(number.to(gradients[0])[None] for number in numbers)])
        self.workers.sum(flat, "gradients")
        *summed, numbers_of_all = torch.split(flat, [*sizes, len(numbers)])
        for weight, gradient in zip(shared, summed, strict=True):
            weight.grad = gradient.view_as(weight)
        self.squared_norm = sum((_square(weight) for weight in shared), numbers_of_all[0].double())
        return dict(zip(terms, numbers_of_all[1:], strict=True))

    def clip(self, model: Model, most: float) -> None:
        clip_grads_with_norm_(model.parameters(), most, self.squared_norm.sqrt())

    def start_epoch(self, model: Model, optimizer: Adam, epoch: int) -> None:
        """Start from the same shared weights everywhere: processors may round differently."""
        model.start_epoch(epoch)
        shared, _ = split_weights(model)
        moments = [optimizer.state[weight] for weight in shared if optimizer.state.get(weight)]
        with torch.no_grad():
            self.workers.copy_from_first(
                [*shared, *(one[part] for one in moments for part in ("exp_avg", "exp_avg_sq"))]
            )

    def resume(self, model: Model, optimizer: Adam, folder: Path) -> Progress:
        """Load the checkpoint of a run, which worker 0 has."""
        found: dict[str, Tensor] = {}
        progress = Progress()
        if self.leads and resume_from(folder).is_file():
            tensors, moments, progress = load_checkpoint(resume_from(folder))
            found = tensors | {f"{OPTIMIZER}{name}": tensor for name, tensor in moments.items()}
        own = self.workers.share_json({"progress": asdict(progress), "tensors": _shapes(found)})
        received = self.share_checkpoint(model, found, own["tensors"])
        if received:
            model.load_state_dict({name: one for name, one in received.items() if not name.startswith(OPTIMIZER)})
            moments = {
                name.removeprefix(OPTIMIZER): one for name, one in received.items() if name.startswith(OPTIMIZER)
            }
            restore_optimizer(model, optimizer, moments)
        return Progress(**own["progress"])

    def share_checkpoint(
        self, model: Model, found: dict[str, Tensor], shapes: dict[str, tuple[list[int], str]]
    ) -> dict[str, Tensor]:
        """Return this worker's tensors of a checkpoint, which worker 0 has found."""
        return {name: self.share_tensor(found.get(name), *shape) for name, shape in shapes.items()}

    def share_tensor(self, found: Tensor | None, shape: list[int], kind: str) -> Tensor:
        tensor = torch.empty(shape, dtype=getattr(torch, kind)) if found is None else found.clone()
        self.workers.copy_from_first([tensor])
        return tensor

    def validation(self, split: Split, device: str) -> Callable[[Model], float]:
        """A function that returns the validation MRR over the accounts of all workers."""
        raise AssertionError("each way to divide a model has its own")

    def restore_best(self, model: Model, folder: Path) -> None:
        """The caller of worker 0 reads them from the run."""

    def largest(self, value: float) -> float:
        return self.workers.largest(value)


class PartOfAccounts(ManyProcesses):
    """A worker that holds a part of the accounts."""

    def __init__(self, workers: Workers, part: AccountPart) -> None:
        super().__init__(workers)
        self.part = part

    def batches(
        self, train: Training, rows: int, order: np.random.Generator, device: str, sizes: Sizes
    ) -> Iterator[TrainingBatch]:
        return self.part.batches(rows, order, device)

    def share_checkpoint(
        self, model: Model, found: dict[str, Tensor], shapes: dict[str, tuple[list[int], str]]
    ) -> dict[str, Tensor]:
        own = model.state_dict()
        held = {name: own[name] for name in HELD if name in shapes}
        return held | {
            name: self._own_rows(found.get(name), shape, kind)
            if is_of_accounts(name)
            else self.share_tensor(found.get(name), shape, kind)
            for name, (shape, kind) in shapes.items()
            if name not in HELD
        }

    def _own_rows(self, found: Tensor | None, shape: list[int], kind: str) -> Tensor:
        own = torch.empty(self.part.train.accounts, *shape[1:], dtype=getattr(torch, kind))
        count = self.workers.count
        self.workers.scatter(None if found is None else [found[worker::count] for worker in range(count)], own)
        return own

    def save(self, path: Path, model: Model, optimizer: Adam | None, progress: Progress) -> None:
        whole = gather_checkpoint(checkpoint_tensors(model, optimizer), self.part.accounts, self.workers)
        if self.leads:
            write_checkpoint(path, whole, progress)

    def validation(self, split: Split, device: str) -> Callable[[Model], float]:
        learned = self.part.item_counts > 0

        def mrr(model: Model) -> float:
            scorer = PartScorer(model, self.workers)  # type: ignore[arg-type]
            ranks = ranks_in_domains(
                type(model).__name__, scorer, self.part.validation, self.part.catalogues, learned=learned, device=device
            )
            gains = reciprocal_rank(ranks, SELECTION_CUTOFF)
            total = self.workers.sum(torch.tensor([gains.sum(), len(gains)], dtype=torch.float64), "evaluation")
            return float(total[0] / total[1])

        return mrr


class PartOfRows(ManyProcesses):
    """A worker that computes every so many rows of each batch, with the whole model."""

    def batches(
        self, train: Training, rows: int, order: np.random.Generator, device: str, sizes: Sizes
    ) -> Iterator[TrainingBatch]:
        usable = order.permutation(np.flatnonzero(np.diff(train.offsets) >= 2))
        number, count = self.workers.number, self.workers.count
        for first in range(0, len(usable), rows):
            whole = usable[first : first + rows]
            own = whole[number::count]
            self.weight = _targets(train, own) / _targets(train, whole)
            yield training_batch(train, own if len(own) else whole[:1]).to(device)  # no row: one of weight 0

    def start_epoch(self, model: Model, optimizer: Adam, epoch: int) -> None:
        super().start_epoch(model, optimizer, epoch)
        torch.manual_seed(torch.initial_seed() + 1_000_000_007 * self.workers.number)  # no two rows share a mask

    def save(self, path: Path, model: Model, optimizer: Adam | None, progress: Progress) -> None:
        if self.leads:
            super().save(path, model, optimizer, progress)

    def validation(self, split: Split, device: str) -> Callable[[Model], float]:
        """Every worker evaluates all queries, because that may also calibrate the model."""
        mrr = validation(split, device)
        assert mrr is not None
        return lambda model: self.workers.first(mrr(model))


def split_weights(model: Model) -> tuple[list[Tensor], list[Tensor]]:
    """The weights that all workers share, and those of a worker's own accounts."""
    accounts = {name for name, kind in model.warm_start_tensors().items() if kind == "accounts"}
    shared: list[Tensor] = [weight for name, weight in model.named_parameters() if name not in accounts]
    return shared, [weight for name, weight in model.named_parameters() if name in accounts]


def _gradient(weight: Tensor) -> Tensor:
    return torch.zeros_like(weight) if weight.grad is None else weight.grad


def _square(weight: Tensor) -> Tensor:
    """The squared norm of a gradient, in float64."""
    return _gradient(weight).double().square().sum()


def _shapes(tensors: dict[str, Tensor]) -> dict[str, tuple[list[int], str]]:
    return {name: (list(one.shape), str(one.dtype).removeprefix("torch.")) for name, one in tensors.items()}


def _targets(train: Training, rows: np.ndarray) -> int:
    lengths = train.offsets[rows + 1] - train.offsets[rows]
    return int((lengths - 1).sum()) if train.targets == "all" else len(rows)


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


@contextmanager
def joined(number: int, count: int, store: TCPStore, device: str, seconds: float) -> Iterator[Workers]:
    """Join the process group of a run."""
    backend = "cpu:gloo,cuda:nccl" if device_of(device).is_gpu else "gloo"
    limit = timedelta(seconds=seconds)
    try:
        distributed.init_process_group(backend, store=store, rank=number, world_size=count, timeout=limit)
    except RuntimeError as problem:
        raise LostWorkerError(f"worker {number}: the other workers did not join: {problem}") from None
    try:
        yield Workers(number, count)
    finally:
        distributed.destroy_process_group()


def join_run(job: Job, host: str, port: int, device: str = "cpu", seconds: float = SECONDS_TO_ANSWER) -> None:
    """Train as a worker other than the first, which is at this address."""
    store = TCPStore(host, port, job.count, is_master=False, timeout=timedelta(seconds=seconds))
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
    seconds_to_answer: float = SECONDS_TO_ANSWER,
) -> Progress:
    """Train the planned model in `folder` with `count` workers, of which this process is the first; or resume it.

    When a worker is lost, all start again from the checkpoint of the last epoch.

    Args:
        start: starts the other workers.
        seconds: time budget; the run pauses at the end of the epoch that exceeds it, and can resume.
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
                progress = _attempt(start, own, others, folder, device, left, stop_after, seconds_to_answer)
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
    seconds_to_answer: float,
) -> Progress:
    """Train until the run ends or pauses, or a worker is lost."""
    limit = timedelta(seconds=seconds_to_answer)
    store = TCPStore("0.0.0.0", 0, own.count, is_master=True, wait_for_workers=False, timeout=limit)
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

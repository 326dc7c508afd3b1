"""The training loop, the same for every model: it minimises the sum of the terms of the loss.

On a GPU the step of a model that is `cuda_graph_safe` is captured as a CUDA graph and replayed. The time and memory of
a run are estimated from a few steps and one evaluation of a copy of the model.
"""

import copy
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import Adam

from lightgc2n.config import LARGEST_SEED, setting
from lightgc2n.data.batches import EXACT, Sizes, TrainingBatch, sizes_of, training_batches
from lightgc2n.data.dataset import Ints, Longs
from lightgc2n.data.splits import Split, Training
from lightgc2n.devices import device_of, keep_memory, peak_bytes
from lightgc2n.errors import ScoreError
from lightgc2n.models.contract import Model
from lightgc2n.progress import SECONDS_BETWEEN_LINES, duration, number_of, pace, say, step
from lightgc2n.training.checkpoints import (
    BEST,
    LAST,
    Progress,
    Row,
    epoch_log,
    load_checkpoint,
    restore_optimizer,
    save_checkpoint,
)
from lightgc2n.training.cuda_graph import WARM_UP, CapturedStep

BUDGET = "budget"  # Progress.ended_by of a run that has trained all its epochs
COUNTED = "counted"  # the run of a simple baseline, which has no epochs
FORGET = "forget"  # `forget` removed the optimizer's state of a run before its training ended
FEWEST_STEPS, FEWEST_SECONDS = 500, 10.0  # a run with fewer of both gets no estimate
MOST_MEASURED, SECONDS_MEASURED = 20, 1.0
LARGEST_FACTOR = 4.0  # largest increase of the learning rate; larger ones were not measured


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingConfig:
    """The paper's values, and defaults for what it leaves open."""

    epochs: int = setting(200, at_least=1, help="Maximum number of epochs.")
    batch_size: int = setting(256, at_least=1, help="Sequences in one step; more where batch_share demands more.")
    batch_share: float = setting(
        1 / 128,
        at_least=0.0,
        at_most=1.0,
        help="Smallest share of the accounts in one step, for models that encode all accounts in every step.",
    )
    learning_rate: float = setting(
        0.005, at_least=0.0, help="Learning rate of Adam; it grows with the root of a step that batch_share enlarges."
    )
    weight_decay: float = setting(0.0, at_least=0.0, help="Weight decay of Adam.")
    clip: float = setting(5.0, at_least=0.0, help="Maximum norm of the gradient; 0 does not clip.")
    patience: int = setting(10, at_least=1, help="Evaluations without improvement before training stops.")
    evaluate_every: int = setting(1, at_least=1, help="Epochs between evaluations.")
    seed: int = setting(0, at_least=0, at_most=LARGEST_SEED, help="Seed of weights, order of sequences and dropout.")
    cuda_graph: bool = setting(True, help="Capture the step as a CUDA graph, where device and model allow it.")


class OneProcess:
    """The steps of the loop that differ when several processes train one model; this class is a single process."""

    leads = True  # whether this process writes the run

    def accounts(self, train: Training) -> int:
        """The accounts of all processes."""
        return train.accounts

    def lengths(self, train: Training) -> Ints | Longs:
        """The events of each training sequence of all processes."""
        return np.diff(train.offsets)

    def batches(
        self, train: Training, rows: int, order: np.random.Generator, device: str, sizes: Sizes
    ) -> Iterator[TrainingBatch]:
        """The batches that this process computes the losses of."""
        return training_batches(train, rows, order, device, sizes)

    def backward(self, model: Model, terms: dict[str, Tensor]) -> dict[str, Tensor]:
        """Compute the gradients of the sum of the terms; return the terms for reports."""
        torch.stack(list(terms.values())).sum().backward()  # type: ignore[no-untyped-call]
        return terms

    def clip(self, model: Model, most: float) -> None:
        """Scale the gradients down to this norm."""
        clip_grad_norm_(model.parameters(), most)

    def start_epoch(self, model: Model, optimizer: Adam, epoch: int) -> None:
        model.start_epoch(epoch)

    def save(self, path: Path, model: Model, optimizer: Adam | None, progress: Progress) -> None:
        save_checkpoint(path, model, optimizer, progress)

    def resume(self, model: Model, optimizer: Adam, folder: Path) -> Progress:
        """Load the checkpoint that a run resumes from, if there is one."""
        if not resume_from(folder).is_file():
            return Progress()
        tensors, moments, progress = load_checkpoint(resume_from(folder))
        model.load_state_dict(tensors)
        restore_optimizer(model, optimizer, moments)
        return progress

    def restore_best(self, model: Model, folder: Path) -> None:
        """Load the best weights of a run that has ended."""
        model.load_state_dict(load_checkpoint(folder / BEST)[0])

    def largest(self, value: float) -> float:
        """The largest of the values of all processes."""
        return value


ALONE = OneProcess()


class Steps:
    """The optimizer of a model and its step on each batch."""

    def __init__(
        self, model: Model, train: Training, config: TrainingConfig, device: str, process: OneProcess = ALONE
    ) -> None:
        self.model, self.train, self.config, self.process = model, train, config, process
        if not device_of(device).is_gpu:
            keep_memory()
        captured = process is ALONE and config.cuda_graph and device_of(device).has_cuda_graphs
        captured = captured and _can_be_captured(model, train)
        self.rows = rows_per_step(model, process.accounts(train), config)
        rate, decay = learning_rate_for(self.rows, config), config.weight_decay
        fused = True if captured else None  # None: torch chooses
        self.optimizer = Adam(model.parameters(), rate, weight_decay=decay, fused=fused, capturable=captured)
        self.sizes = sizes_of(train, self.rows) if captured else EXACT
        self.device = "cpu" if captured else device  # a captured step takes batches from the host
        self.run = CapturedStep(self._step) if captured else self._step

    def __len__(self) -> int:
        return -(-int((self.process.lengths(self.train) >= 2).sum()) // self.rows)

    def batches(self, epoch: int) -> Iterator[TrainingBatch]:
        """The batches of an epoch, in an order that follows from the seed and the epoch."""
        order = np.random.default_rng([self.config.seed, epoch])
        return self.process.batches(self.train, self.rows, order, self.device, self.sizes)

    def __call__(self, batch: TrainingBatch) -> dict[str, Tensor]:
        """One step; the returned terms of the loss are valid until the next step."""
        return self.run(batch)

    def _step(self, batch: TrainingBatch) -> dict[str, Tensor]:
        terms = self.model.losses(self.model.encode(), batch)
        self.optimizer.zero_grad(set_to_none=True)
        terms = self.process.backward(self.model, terms)
        if self.config.clip:
            self.process.clip(self.model, self.config.clip)
        self.optimizer.step()
        return {name: term.detach() for name, term in terms.items()}


def rows_per_step(model: Model, accounts: int, config: TrainingConfig) -> int:
    """The sequences in one step.

    A model that encodes all accounts in every step gets at least `batch_share` of the accounts. With fewer sequences
    the cost of an epoch would grow with the square of the accounts.
    """
    share = config.batch_share if model.encodes_all_accounts else 0.0
    return max(config.batch_size, math.ceil(share * accounts))


def learning_rate_for(rows: int, config: TrainingConfig) -> float:
    """The learning rate of a step with this many sequences; `config` has the rate for `batch_size` sequences."""
    return config.learning_rate * min(LARGEST_FACTOR, math.sqrt(rows / config.batch_size))


def _can_be_captured(model: Model, train: Training) -> bool:
    longest = int(np.diff(train.offsets).max(initial=0))
    return model.cuda_graph_safe and longest <= model.captured_length and train.domain_targets is None


def train(
    model: Model,
    split: Split,
    config: TrainingConfig,
    evaluate: Callable[[Model], float] | None,
    folder: Path | None = None,
    device: str = "cpu",
    seconds: float = math.inf,
    epochs_before: int = 0,
    stop_after: float = math.inf,
    process: OneProcess = ALONE,
) -> Progress:
    """Train until patience or budget ends the run, and leave the best weights in the model.

    Args:
        evaluate: the validation metric, higher is better; test events are never used for selection. Without it the
            weights of the last epoch are kept.
        folder: the folder of checkpoints and metrics; an interrupted run in it resumes.
        seconds: time budget; when it is reached, the run pauses at the end of the epoch and can resume.
        epochs_before: epochs of the run that the weights come from; its validation value is then the first to beat.
        stop_after: pause after this many epochs; the run can resume.
        process: this process, where several train one model; all of them call this function.
    """
    until = time.monotonic() + seconds
    model.to(device)
    steps = Steps(model, split.train, config, device, process)
    if steps.rows > config.batch_size:
        rate = f"learning rate {learning_rate_for(steps.rows, config):.4g}"
        say(f"{len(steps)} steps an epoch with {steps.rows:,} sequences each, {rate} (training.batch_share)")
    progress = Progress() if folder is None else process.resume(model, steps.optimizer, folder)
    if progress.ended_by == BUDGET and progress.epochs < config.epochs:
        progress.ended_by = ""  # its budget was raised
    best = _weights(model) if folder is None else None
    if epochs_before and not progress.epochs and evaluate is not None:
        progress.best_value = evaluate(model.eval())
        best = _keep_best(model, progress, folder, process)
        say(f"initial weights: validation MRR@20 {100 * progress.best_value:.2f} %")
    reported = -SECONDS_BETWEEN_LINES
    with epoch_log(folder if process.leads else None, progress.epochs) as log:
        while not progress.ended_by and progress.epochs < stop_after:
            epoch = progress.epochs
            started = time.perf_counter()
            losses = _epoch(model, steps, config, epochs_before + epoch)
            progress.epochs += 1
            progress.seconds += time.perf_counter() - started
            row: Row = {"epoch": epoch, **losses, "seconds": time.perf_counter() - started}
            last = progress.epochs == config.epochs
            if evaluate is None and last:
                progress.best_epoch = epoch
                best = _keep_best(model, progress, folder, process)
            elif evaluate is not None and (last or progress.epochs % config.evaluate_every == 0):
                model.eval()
                row["validation"] = evaluate(model)
                if row["validation"] > progress.best_value:
                    progress.best_value, progress.best_epoch = row["validation"], epoch
                    best = _keep_best(model, progress, folder, process)
            progress.ended_by = _end(progress, config, selecting=evaluate is not None)
            progress.peak_bytes = max(progress.peak_bytes, int(process.largest(peak_bytes(device))))
            log(row)  # before the checkpoint: a row without its checkpoint is removed when the run resumes
            if folder is not None:
                process.save(folder / LAST, model, steps.optimizer, progress)
            if time.monotonic() - reported > SECONDS_BETWEEN_LINES or progress.ended_by:
                reported = time.monotonic()
                say(_epoch_line(row, progress, config, len(steps)))
            if process.largest(time.monotonic() - until) > 0 and not progress.ended_by:
                return progress
    if not progress.ended_by:
        return progress
    if best is not None:
        model.load_state_dict(best)
    elif folder is not None:
        process.restore_best(model, folder)
    model.eval()
    return progress


def _epoch(model: Model, steps: Steps, config: TrainingConfig, epoch: int) -> dict[str, float]:
    """One pass over the training sequences; all random numbers follow from the seed and the epoch."""
    torch.manual_seed(config.seed * 1_000_003 + epoch)
    model.train()
    steps.process.start_epoch(model, steps.optimizer, epoch)
    totals: dict[str, Tensor] = {}
    count = 0
    with step(f"epoch {epoch + 1} of {config.epochs}", total=len(steps)) as shown:
        for batch in steps.batches(epoch):
            for name, term in steps(batch).items():
                totals[name] = totals[name] + term if name in totals else term.clone()
            count += 1
            shown.advance()
    means = {name: float(total) / max(count, 1) for name, total in totals.items()}
    for name, mean in means.items():
        if not np.isfinite(mean):
            raise ScoreError(f"epoch {epoch + 1}: the loss {name} is {mean}. Use a smaller learning rate.")
    return means


def _end(progress: Progress, config: TrainingConfig, selecting: bool) -> str:
    if selecting and progress.epochs - 1 - progress.best_epoch >= config.patience * config.evaluate_every:
        return "patience"
    return BUDGET if progress.epochs >= config.epochs else ""


def _epoch_line(row: Row, progress: Progress, config: TrainingConfig, steps: int) -> str:
    """The progress line of an epoch: losses, validation, speed, an upper bound of the time left, and memory."""
    terms = [f"{name} {value:.3f}" for name, value in row.items() if name not in ("epoch", "seconds", "validation")]
    if "validation" in row:
        terms.append(f"validation MRR@20 {100 * row['validation']:.2f} % (best {100 * progress.best_value:.2f} %)")
    left = (config.epochs - progress.epochs) * progress.seconds / max(1, progress.epochs)
    memory = progress.peak_bytes / 1e6
    speed = f"{pace(steps, row['seconds'])}, at most {duration(left)} left, {memory:.0f} MB"
    return f"epoch {row['epoch'] + 1}/{config.epochs}: {', '.join(terms)}; {speed}"


def _weights(model: Model) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def _keep_best(model: Model, progress: Progress, folder: Path | None, process: OneProcess) -> dict[str, Tensor] | None:
    if folder is None:
        return _weights(model)
    process.save(folder / BEST, model, None, progress)
    return None


def resume_from(folder: Path) -> Path:
    """Return the checkpoint that a run resumes from: the newest, or the best of a run that ended and has no other."""
    if not (folder / LAST).is_file() and (folder / BEST).is_file() and load_checkpoint(folder / BEST)[2].ended_by:
        return folder / BEST
    return folder / LAST


def was_still_improving(progress: Progress) -> bool:
    """Whether a run reached its maximum number of epochs while validation still improved."""
    return progress.ended_by == BUDGET and progress.best_epoch == progress.epochs - 1


@dataclass(frozen=True)
class Estimate:
    """A rough estimate: it is measured on few batches, and other load on the machine slows it."""

    epoch_seconds: float
    most_epochs: int
    bytes: int
    ends_early: bool = False

    def __str__(self) -> str:
        most = duration(self.epoch_seconds * self.most_epochs)
        epochs = number_of(self.most_epochs, "epoch")
        epoch = f"about {duration(self.epoch_seconds)} an epoch, at most {most} for {epochs}"
        early = "; ends earlier when validation no longer improves" if self.ends_early else ""
        return f"estimate: {epoch}{early}; about {self.bytes / 1e6:.0f} MB"


def estimate(
    model: Model, split: Split, config: TrainingConfig, evaluate: Callable[[Model], float] | None, device: str = "cpu"
) -> Estimate | None:
    """Return the estimate; None for a short run. The model and the random state are not changed."""
    steps = -(-int((np.diff(split.train.offsets) >= 2).sum()) // rows_per_step(model, split.train.accounts, config))
    unit = device_of(device)
    with torch.random.fork_rng(devices=unit.random_devices()):
        trial = copy.deepcopy(model).to(device)
        few = steps * config.epochs < FEWEST_STEPS
        step_seconds = _seconds_of_a_step(trial, split, config, device, 2 if few else MOST_MEASURED)
        if few and steps * config.epochs * step_seconds < FEWEST_SECONDS:
            return None
        trial.eval()
        started = time.perf_counter()
        if evaluate is not None:
            evaluate(trial)
        seconds = steps * step_seconds + (time.perf_counter() - started) / config.evaluate_every
    peak = unit.peak_bytes()
    if unit.is_gpu:
        # Without the copy, which the run does not make.
        peak -= sum(tensor.nbytes for tensor in trial.state_dict().values())
        del trial
        unit.reset_peak()  # after the copy is gone, so that it is not counted as held before the run
    ends_early = evaluate is not None and config.patience * config.evaluate_every < config.epochs
    return Estimate(seconds, config.epochs, peak, ends_early)


def _seconds_of_a_step(model: Model, split: Split, config: TrainingConfig, device: str, most: int) -> float:
    """The mean over at most so many batches of the first epoch, without the warm-up steps."""
    steps = Steps(model, split.train, config, device)
    model.train()
    model.start_epoch(0)
    moments = [_now(device)]
    for batch in steps.batches(0):
        steps(batch)
        moments.append(_now(device))
        if len(moments) > most or (moments[-1] - moments[0] > SECONDS_MEASURED and len(moments) > 3):
            break
    warm_up = WARM_UP + 2 if device_of(device).is_gpu else 1
    later = moments[warm_up:] if len(moments) > warm_up + 1 else moments
    return (later[-1] - later[0]) / (len(later) - 1)


def _now(device: str) -> float:
    """The time when all queued steps are done."""
    device_of(device).synchronize()
    return time.perf_counter()

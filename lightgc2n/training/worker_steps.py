"""What one of several workers does in the training loop: how it divides a batch, and what it exchanges.

Every worker runs the same loop and reaches the same decisions: losses, validation and times are exchanged.
Worker 0 writes the run; its checkpoints are those of an ordinary run.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_
from torch.optim import Adam

from lightgc2n.data.account_parts import AccountPart
from lightgc2n.data.batches import Sizes, TrainingBatch, training_batch
from lightgc2n.data.dataset import Ints
from lightgc2n.data.splits import Split, Training
from lightgc2n.layers.workers import Workers
from lightgc2n.metrics.ranking import SELECTION_CUTOFF, reciprocal_rank
from lightgc2n.metrics.ranks import ranks_in_domains
from lightgc2n.models.contract import Model
from lightgc2n.models.lightgc2n.account_parts import HELD, PartScorer, gather_checkpoint, is_of_accounts
from lightgc2n.training.checkpoints import (
    OPTIMIZER,
    Progress,
    checkpoint_tensors,
    load_checkpoint,
    restore_optimizer,
    write_checkpoint,
)
from lightgc2n.training.loop import OneProcess, resume_from
from lightgc2n.training.run import validation


class ManyProcesses(OneProcess):
    """What one of several workers does; each of the two ways to divide a model adds how it divides a batch."""

    def __init__(self, workers: Workers) -> None:
        self.workers, self.leads = workers, workers.number == 0
        self.weight = 1.0  # weight of this worker's terms in the loss of the whole batch
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
        """Load the checkpoint of a run, which worker 0 reads and sends to the others."""
        checkpoint: dict[str, Tensor] = {}
        progress = Progress()
        if self.leads and resume_from(folder).is_file():
            tensors, moments, progress = load_checkpoint(resume_from(folder))
            checkpoint = tensors | {f"{OPTIMIZER}{name}": tensor for name, tensor in moments.items()}
        own = self.workers.share_json({"progress": asdict(progress), "tensors": _shapes(checkpoint)})
        received = self.share_checkpoint(model, checkpoint, own["tensors"])
        if received:
            model.load_state_dict({name: one for name, one in received.items() if not name.startswith(OPTIMIZER)})
            moments = {
                name.removeprefix(OPTIMIZER): one for name, one in received.items() if name.startswith(OPTIMIZER)
            }
            restore_optimizer(model, optimizer, moments)
        return Progress(**own["progress"])

    def share_checkpoint(
        self, model: Model, checkpoint: dict[str, Tensor], shapes: dict[str, tuple[list[int], str]]
    ) -> dict[str, Tensor]:
        """Return this worker's tensors of the checkpoint that worker 0 has read."""
        return {name: self.share_tensor(checkpoint.get(name), *shape) for name, shape in shapes.items()}

    def share_tensor(self, sent: Tensor | None, shape: list[int], kind: str) -> Tensor:
        tensor = torch.empty(shape, dtype=getattr(torch, kind)) if sent is None else sent.clone()
        self.workers.copy_from_first([tensor])
        return tensor

    def validation(self, split: Split, device: str) -> Callable[[Model], float]:
        """A function that returns the validation MRR over the accounts of all workers."""
        raise AssertionError("each way to divide a model has its own")

    def restore_best(self, model: Model, folder: Path) -> None:
        """The caller of worker 0 reads them from the run."""

    def largest(self, value: float) -> float:
        return self.workers.largest(float(value))


class PartOfAccounts(ManyProcesses):
    """A worker that holds a part of the accounts."""

    def __init__(self, workers: Workers, part: AccountPart) -> None:
        super().__init__(workers)
        self.part = part

    def accounts(self, train: Training) -> int:
        return self.part.accounts

    def lengths(self, train: Training) -> Ints:
        return self.part.lengths

    def batches(
        self, train: Training, rows: int, order: np.random.Generator, device: str, sizes: Sizes
    ) -> Iterator[TrainingBatch]:
        for part in self.part.batches(rows, order):
            yield self._with_items_of_all(part).to(device)

    def _with_items_of_all(self, part: TrainingBatch) -> TrainingBatch:
        """The part with this worker's share of the distinct items of the whole batch, which the contrast is over."""
        assert part.whole is not None
        counts = torch.bincount(part.log[part.seen], minlength=self.part.train.items).int()
        self.workers.sum(counts, "items")
        items = counts.nonzero()[self.workers.number :: self.workers.count, 0]
        share = counts[items].numpy() / max(1, int(part.whole[1]))
        return replace(part, items=items, item_share=torch.from_numpy(share.astype(np.float32)))

    def share_checkpoint(
        self, model: Model, checkpoint: dict[str, Tensor], shapes: dict[str, tuple[list[int], str]]
    ) -> dict[str, Tensor]:
        own = model.state_dict()
        held = {name: own[name] for name in HELD if name in shapes}
        return held | {
            name: self._own_rows(checkpoint.get(name), shape, kind)
            if is_of_accounts(name)
            else self.share_tensor(checkpoint.get(name), shape, kind)
            for name, (shape, kind) in shapes.items()
            if name not in HELD
        }

    def _own_rows(self, sent: Tensor | None, shape: list[int], kind: str) -> Tensor:
        own = torch.empty(self.part.train.accounts, *shape[1:], dtype=getattr(torch, kind))
        count = self.workers.count
        self.workers.scatter(None if sent is None else [sent[worker::count] for worker in range(count)], own)
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

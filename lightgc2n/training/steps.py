"""The steps of training: batches, the optimizer, and what is done with one batch.

On a GPU the step of a model whose work depends on the shapes of a batch alone is recorded as a CUDA graph and replayed.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import Adam

from lightgc2n.config import LARGEST_SEED, setting
from lightgc2n.data.batches import EXACT, TrainingBatch, sizes_of, training_batches
from lightgc2n.data.splits import Training
from lightgc2n.devices import keep_memory
from lightgc2n.models.contract import Model
from lightgc2n.training.captured import CapturedStep

LONGEST_RECORDED = 256  # events: batches of longer sequences are too much padding at one size


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingConfig:
    """The paper's values, and what it leaves open."""

    epochs: int = setting(200, at_least=1, help="Most epochs.")
    batch_size: int = setting(256, at_least=1, help="Sequences in one step.")
    learning_rate: float = setting(0.005, at_least=0.0, help="Of Adam.")
    weight_decay: float = setting(0.0, at_least=0.0, help="Of Adam.")
    clip: float = setting(5.0, at_least=0.0, help="Longest gradient; 0 leaves it as it is.")
    patience: int = setting(10, at_least=1, help="Evaluations without a better validation value before it ends.")
    evaluate_every: int = setting(1, at_least=1, help="Epochs between evaluations.")
    seed: int = setting(
        0, at_least=0, at_most=LARGEST_SEED, help="Weights, order of sequences and dropout follow from it."
    )


class Steps:
    """All that happens between two checkpoints."""

    def __init__(self, model: Model, train: Training, config: TrainingConfig, device: str) -> None:
        self.model, self.train, self.config = model, train, config
        if device == "cpu":
            keep_memory()
        longest = int(np.diff(train.offsets).max(initial=0))
        recorded = device == "cuda" and model.fixed_work and longest <= LONGEST_RECORDED
        rate, decay = config.learning_rate, config.weight_decay
        fused = True if recorded else None  # otherwise torch chooses
        self.optimizer = Adam(model.parameters(), rate, weight_decay=decay, fused=fused, capturable=recorded)
        self.sizes = sizes_of(train, config.batch_size) if recorded else EXACT
        self.device = "cpu" if recorded else device  # a recorded step takes batches from the host
        self.run = CapturedStep(self._step) if recorded else self._step

    def __len__(self) -> int:
        return -(-int((np.diff(self.train.offsets) >= 2).sum()) // self.config.batch_size)

    def batches(self, epoch: int) -> Iterator[TrainingBatch]:
        """The batches of an epoch, in an order that follows from the seed and its number."""
        order = np.random.default_rng([self.config.seed, epoch])
        return training_batches(self.train, self.config.batch_size, order, self.device, self.sizes)

    def __call__(self, batch: TrainingBatch) -> dict[str, Tensor]:
        """One step; the terms of the loss hold until the next."""
        return self.run(batch)

    def _step(self, batch: TrainingBatch) -> dict[str, Tensor]:
        terms = self.model.losses(self.model.encode(), batch)
        self.optimizer.zero_grad(set_to_none=True)
        torch.stack(list(terms.values())).sum().backward()  # type: ignore[no-untyped-call]
        if self.config.clip:
            clip_grad_norm_(self.model.parameters(), self.config.clip)
        self.optimizer.step()
        return {name: term.detach() for name, term in terms.items()}

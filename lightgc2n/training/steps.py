"""Training steps: batches, the optimizer, and the update from one batch.

On a GPU the step of a model that is `cuda_graph_safe` is captured as a CUDA graph and replayed.
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
from lightgc2n.devices import device_of, keep_memory
from lightgc2n.models.contract import Model
from lightgc2n.training.cuda_graph import CapturedStep

LONGEST_CAPTURED = 256  # events: longer sequences would need too much padding to a fixed size


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingConfig:
    """The paper's values, and defaults for what it leaves open."""

    epochs: int = setting(200, at_least=1, help="Maximum number of epochs.")
    batch_size: int = setting(256, at_least=1, help="Sequences in one step.")
    learning_rate: float = setting(0.005, at_least=0.0, help="Learning rate of Adam.")
    weight_decay: float = setting(0.0, at_least=0.0, help="Weight decay of Adam.")
    clip: float = setting(5.0, at_least=0.0, help="Maximum norm of the gradient; 0 does not clip.")
    patience: int = setting(10, at_least=1, help="Evaluations without improvement before training stops.")
    evaluate_every: int = setting(1, at_least=1, help="Epochs between evaluations.")
    seed: int = setting(0, at_least=0, at_most=LARGEST_SEED, help="Seed of weights, order of sequences and dropout.")


class Steps:
    """The optimizer of a model and its step on each batch."""

    def __init__(self, model: Model, train: Training, config: TrainingConfig, device: str) -> None:
        self.model, self.train, self.config = model, train, config
        if not device_of(device).is_gpu:
            keep_memory()
        longest = int(np.diff(train.offsets).max(initial=0))
        captured = device_of(device).has_cuda_graphs and model.cuda_graph_safe and longest <= LONGEST_CAPTURED
        rate, decay = config.learning_rate, config.weight_decay
        fused = True if captured else None  # None: torch chooses
        self.optimizer = Adam(model.parameters(), rate, weight_decay=decay, fused=fused, capturable=captured)
        self.sizes = sizes_of(train, config.batch_size) if captured else EXACT
        self.device = "cpu" if captured else device  # a captured step takes batches from the host
        self.run = CapturedStep(self._step) if captured else self._step

    def __len__(self) -> int:
        return -(-int((np.diff(self.train.offsets) >= 2).sum()) // self.config.batch_size)

    def batches(self, epoch: int) -> Iterator[TrainingBatch]:
        """The batches of an epoch, in an order that follows from the seed and the epoch."""
        order = np.random.default_rng([self.config.seed, epoch])
        return training_batches(self.train, self.config.batch_size, order, self.device, self.sizes)

    def __call__(self, batch: TrainingBatch) -> dict[str, Tensor]:
        """One step; the returned terms of the loss are valid until the next step."""
        return self.run(batch)

    def _step(self, batch: TrainingBatch) -> dict[str, Tensor]:
        terms = self.model.losses(self.model.encode(), batch)
        self.optimizer.zero_grad(set_to_none=True)
        torch.stack(list(terms.values())).sum().backward()  # type: ignore[no-untyped-call]
        if self.config.clip:
            clip_grad_norm_(self.model.parameters(), self.config.clip)
        self.optimizer.step()
        return {name: term.detach() for name, term in terms.items()}

"""Exchanges between the workers that train one model, by torch.distributed, and their bytes.

All workers make the same exchanges in the same order. When a worker ends, the exchanges of all others fail.

Shapes: R rows, W width.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as distributed
from jaxtyping import Float
from torch import Tensor, nn

from lightgc2n.data.dataset import Longs
from lightgc2n.errors import TrainingError


class LostWorkerError(TrainingError):
    """Another worker ended, or did not answer in time."""


class Workers:
    """The workers of a run, seen by one of them; a single worker needs no process group.

    Attributes:
        bytes: the bytes that this worker has sent to all-reduces, by purpose.
    """

    def __init__(self, number: int = 0, count: int = 1) -> None:
        self.number, self.count = number, count
        self.bytes: Counter[str] = Counter()

    def sum(self, tensor: Tensor, purpose: str) -> Tensor:
        """Sum a tensor over all workers, in place."""
        self.bytes[purpose] += tensor.nbytes
        if self.count > 1:
            self._exchange(lambda: distributed.all_reduce(tensor))
        return tensor

    def largest(self, value: float) -> float:
        """The largest of the values of all workers."""
        numbers = torch.tensor([value], dtype=torch.float64)
        if self.count > 1:
            self._exchange(lambda: distributed.all_reduce(numbers, distributed.ReduceOp.MAX))
        return float(numbers)

    def first(self, value: float) -> float:
        """The value of worker 0."""
        number = torch.tensor([value], dtype=torch.float64)
        self.copy_from_first([number])
        return float(number)

    def copy_from_first(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by those of worker 0."""
        for tensor in tensors if self.count > 1 else ():
            held = tensor.contiguous()
            self._exchange(lambda held=held: distributed.broadcast(held, 0))  # type: ignore[misc]
            tensor.copy_(held)

    def share_json(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Return the facts of worker 0, as JSON values."""
        text = torch.frombuffer(bytearray(json.dumps(facts if self.number == 0 else {}).encode()), dtype=torch.uint8)
        length = int(self.largest(float(len(text))))
        text = text if self.number == 0 else torch.empty(length, dtype=torch.uint8)
        self.copy_from_first([text])
        return dict(json.loads(bytes(text.numpy())))

    def union(self, numbers: Longs) -> Longs:
        """The sorted distinct numbers of all workers."""
        return np.unique(
            np.concatenate([part.numpy() for part in self.gather(torch.from_numpy(numbers), everywhere=True)])
        )

    def gather(self, part: Tensor, everywhere: bool = False) -> list[Tensor]:
        """The tensors of all workers, which may differ in length, on worker 0 or everywhere; empty elsewhere."""
        if self.count == 1:
            return [part]
        lengths = torch.zeros(self.count, dtype=torch.long)
        lengths[self.number] = len(part)
        self._exchange(lambda: distributed.all_reduce(lengths))
        part, gathered = part.contiguous(), []
        for worker, length in enumerate(lengths.tolist()):
            if everywhere:
                other = part if worker == self.number else part.new_empty(length, *part.shape[1:])
                self._exchange(lambda other=other, worker=worker: distributed.broadcast(other, worker))  # type: ignore[misc]
                gathered.append(other)
            elif self.number == 0:
                other = part if worker == 0 else part.new_empty(length, *part.shape[1:])
                if worker:
                    self._exchange(lambda other=other, worker=worker: distributed.recv(other, worker))  # type: ignore[misc]
                gathered.append(other)
            elif worker == self.number:
                self._exchange(lambda: distributed.send(part, 0))
        return gathered

    def scatter(self, parts: Sequence[Tensor] | None, own: Tensor) -> None:
        """Send each worker its part from worker 0; `own` is overwritten with the part of this worker."""
        if self.number:
            received = torch.empty_like(own)
            self._exchange(lambda: distributed.recv(received, 0))
            own.copy_(received)
            return
        assert parts is not None
        own.copy_(parts[0])
        for worker in range(1, self.count):
            sent = parts[worker].contiguous()
            self._exchange(lambda sent=sent, worker=worker: distributed.send(sent, worker))  # type: ignore[misc]

    def _exchange(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except RuntimeError as problem:
            first = str(problem).splitlines()[0]
            raise LostWorkerError(f"worker {self.number}: the exchange with another worker failed: {first}") from None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, workers: Workers) -> Tensor:
        ctx.workers = workers
        return workers.sum(table.clone(), "layers")

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.workers.sum(gradients[0].clone(memory_format=torch.contiguous_format), "layers"), None


class SumOverWorkers(nn.Module):
    """The sum over all workers of what a layer computes from a worker's part; so is its gradient."""

    def __init__(self, layer: nn.Module, workers: Workers) -> None:
        super().__init__()
        self.layer, self.workers = layer, workers

    def forward(self, table: Float[Tensor, "_ W"]) -> Float[Tensor, "R W"]:
        return _Sum.apply(self.layer(table), self.workers)  # type: ignore[no-untyped-call]

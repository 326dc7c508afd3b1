"""A training step as a CUDA graph: captured once for each shape of a batch, then replayed."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lightgc2n.data.batches import TrainingBatch

Step = Callable[[TrainingBatch], dict[str, Tensor]]
WARM_UP = 3  # eager steps before the first capture, which compile kernels and create the optimizer's state


@dataclass(frozen=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    batch: TrainingBatch  # the input tensors of the graph
    terms: dict[str, Tensor]  # its output tensors


class CapturedStep:
    """Runs `step` on batches from the host; the returned tensors are valid until the next call."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.captured: dict[tuple[torch.Size, ...], _Captured] = {}
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.pool = torch.cuda.graph_pool_handle()
        self.warm = 0

    def __call__(self, batch: TrainingBatch) -> dict[str, Tensor]:
        shapes = tuple(tensor.shape for tensor in batch.tensors().values())
        if shapes not in self.captured:
            if self.warm < WARM_UP:
                self.warm += 1
                return self._eager(batch)
            self.captured[shapes] = self._capture(batch)
        captured = self.captured[shapes]
        for own, given in zip(captured.batch.tensors().values(), batch.tensors().values(), strict=True):
            own.copy_(given, non_blocking=True)
        captured.graph.replay()
        return captured.terms

    def _eager(self, batch: TrainingBatch) -> dict[str, Tensor]:
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            terms = self.step(batch.to("cuda"))
        torch.cuda.current_stream().wait_stream(self.stream)
        return terms

    def _capture(self, batch: TrainingBatch) -> _Captured:
        inputs = {name: tensor.to("cuda") for name, tensor in batch.tensors().items()}
        own = replace(batch, **inputs)
        graph = torch.cuda.CUDAGraph()
        with _no_garbage_collection(), torch.cuda.graph(graph, pool=self.pool):
            terms = self.step(own)
        return _Captured(graph, own, terms)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Disable garbage collection: freeing the graphs of an earlier model would invalidate the capture."""
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()

"""A training step as a CUDA graph: recorded once for each shape of a batch, then replayed without the host's help."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lightgc2n.data.batches import TrainingBatch

Step = Callable[[TrainingBatch], dict[str, Tensor]]
WARM_UP = 3  # real steps before the first recording, so that kernels and the optimizer's state are there


@dataclass(frozen=True)
class _Recorded:
    graph: torch.cuda.CUDAGraph
    batch: TrainingBatch  # the tensors that the graph reads
    terms: dict[str, Tensor]  # the tensors that it leaves


class CapturedStep:
    """`step` on batches from the host; what it returns holds until the next call."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.recorded: dict[tuple[torch.Size, ...], _Recorded] = {}
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.pool = torch.cuda.graph_pool_handle()
        self.warm = 0

    def __call__(self, batch: TrainingBatch) -> dict[str, Tensor]:
        shapes = tuple(tensor.shape for tensor in batch.tensors().values())
        if shapes not in self.recorded:
            if self.warm < WARM_UP:
                self.warm += 1
                return self._eager(batch)
            self.recorded[shapes] = self._record(batch)
        found = self.recorded[shapes]
        for mine, given in zip(found.batch.tensors().values(), batch.tensors().values(), strict=True):
            mine.copy_(given, non_blocking=True)
        found.graph.replay()
        return found.terms

    def _eager(self, batch: TrainingBatch) -> dict[str, Tensor]:
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            terms = self.step(batch.to("cuda"))
        torch.cuda.current_stream().wait_stream(self.stream)
        return terms

    def _record(self, batch: TrainingBatch) -> _Recorded:
        here = {name: tensor.to("cuda") for name, tensor in batch.tensors().items()}
        kept = replace(batch, **here)
        graph = torch.cuda.CUDAGraph()
        with _no_collection(), torch.cuda.graph(graph, pool=self.pool):
            terms = self.step(kept)
        return _Recorded(graph, kept, terms)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Graphs of an earlier model that are thrown away while another is recorded would spoil the recording."""
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()

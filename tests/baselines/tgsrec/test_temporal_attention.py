"""A layer of attention in time, head by head and neighbour by neighbour, and the vector of a span."""

import math

import pytest
import torch
from torch import Tensor, tensor
from torch.testing import assert_close

from lightgc2n.baselines.tgsrec.temporal_attention import TemporalAttention, TimeEncoding

WIDTH, TIME = 3, 5


def by_loops(
    layer: TemporalAttention, node: Tensor, now: Tensor, neighbours: list[Tensor], times: list[Tensor]
) -> Tensor:
    """Every neighbour is mapped by itself, for every head by itself."""
    asking = torch.cat([node, now])
    size = len(asking) // layer.heads
    heard = []
    for head in range(layer.heads):
        rows = slice(head * size, (head + 1) * size)
        query = layer.query.weight[rows] @ asking
        there = [torch.cat(pair) for pair in zip(neighbours, times, strict=True)]
        fits = [query @ (layer.key.weight[rows] @ one) / math.sqrt(size) for one in there]
        total = sum(fit.exp() for fit in fits)
        parts = [fit.exp() / total * (layer.value.weight[rows] @ one) for fit, one in zip(fits, there, strict=True)]
        heard.append(sum(parts) if parts else torch.zeros(size))
    mixed = asking + layer.out.weight @ torch.cat(heard) + layer.out.bias
    mixed = (mixed - mixed.mean()) / (mixed.var(unbiased=False) + 1e-5).sqrt() * layer.norm.weight + layer.norm.bias
    hidden = (layer.inner.weight @ torch.cat([mixed, node]) + layer.inner.bias).clamp(min=0)
    return layer.outer.weight @ hidden + layer.outer.bias


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_a_layer_is_that_of_loops(heads: int) -> None:
    torch.manual_seed(0)
    layer = TemporalAttention(WIDTH, TIME, heads, 0.0)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    node, now = torch.randn(4, WIDTH), torch.randn(TIME)
    neighbours, times = torch.randn(4, 3, WIDTH), torch.randn(4, 3, TIME)
    known = tensor([[True, True, True], [True, False, True], [False, False, True], [False, False, False]])
    actual = layer(node, now, neighbours, times, known)
    for row in range(4):
        there = known[row].nonzero()[:, 0].tolist()
        near = [neighbours[row, one] for one in there], [times[row, one] for one in there]
        assert_close(actual[row], by_loops(layer, node[row], now, *near), rtol=1e-4, atol=1e-5)


def test_a_span_as_a_vector_by_hand() -> None:
    """Three frequencies from 1 to a hundredth; each feature is a cosine."""
    time = TimeEncoding(3, 0.0, -2.0)
    assert_close(time(tensor(0.0)), torch.ones(3))
    assert_close(time(tensor([5.0])), tensor([[math.cos(5), math.cos(0.5), math.cos(0.05)]]))
    with torch.no_grad():
        time.phase.fill_(0.3)
    assert_close(time(tensor(5.0)), tensor([math.cos(5.3), math.cos(0.8), math.cos(0.35)]))

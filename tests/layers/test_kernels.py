"""Every Triton kernel does what the plain layer does, forwards and backwards.

They run on a GPU. Without one they run where Triton is installed and TRITON_INTERPRET=1 is set, slowly, on the CPU.
"""

import os
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from lightgc2n.graph.sequential import Edges
from lightgc2n.layers.squash import squash
from lightgc2n.models.lightgc2n.capsules import DynamicRouting
from lightgc2n.models.lightgc2n.convolution import CapsuleLayer
from lightgc2n.models.lightgc2n.item_attention import AttentionOfAllAccounts, attend
from lightgc2n.models.lightgc2n.subspaces import SubspaceAlignment

INTERPRETED = bool(os.environ.get("TRITON_INTERPRET")) and find_spec("triton") is not None
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available() and not INTERPRETED, reason="no usable GPU was found"),
]
sizes = pytest.mark.parametrize(("people", "width"), [(3, 5), (1, 16), (5, 8), (4, 20)])


def agree(plain: Callable[..., Tensor], fast: Callable[..., Tensor], *inputs: Tensor) -> None:
    """Both give the same, and the same gradients for all inputs."""
    generator = torch.Generator().manual_seed(1)
    actual = []
    for function, device in ((plain, "cpu"), (fast, DEVICE)):
        leaves = [tensor.detach().to(device).requires_grad_() for tensor in inputs]
        result = function(*leaves)
        told = torch.randn(result.shape, generator=generator.manual_seed(1)).to(device)
        gradients = torch.autograd.grad(result, leaves, told, allow_unused=True)
        empty = [torch.zeros_like(leaf) for leaf in leaves]
        actual.append(
            [result, *(given if given is not None else zero for given, zero in zip(gradients, empty, strict=True))]
        )
    for one, other in zip(*actual, strict=True):
        assert_close(other.cpu(), one, rtol=1e-4, atol=1e-4)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def test_squash() -> None:
    from lightgc2n.layers.kernels.squash import squash as fast

    vectors = normal(130, 5)
    vectors[3] = 0
    agree(squash, fast, vectors)
    agree(squash, fast, vectors.view(10, 13, 5))


# Degrees below, at and above what a program reads at a time, and more than one piece of a row.
EDGES = Edges(
    offsets=np.concatenate([[0], np.cumsum([0, 0, 1, 2, 5, 16, 17, 40, 300])]),
    columns=np.random.default_rng(0).integers(14, size=381),
    weights=np.random.default_rng(1).random(381).astype(np.float32),
    width=14,
)


@sizes
@pytest.mark.parametrize("rows", [None, [3, 6, 6, 0, 8]])
def test_attention_and_sum(people: int, width: int, rows: list[int] | None) -> None:
    from lightgc2n.layers.kernels.item_attention import attend_and_sum

    chosen = np.arange(9) if rows is None else np.array(rows)
    first, stop = EDGES.offsets[chosen], EDGES.offsets[chosen + 1]
    place = torch.from_numpy(first)[:, None] + torch.arange(300)
    known = place < torch.from_numpy(stop)[:, None]
    place = torch.where(known, place, 0)

    def slow(users: Tensor, items: Tensor) -> Tensor:
        gathered = items[torch.from_numpy(EDGES.columns)[place]]
        summed = (gathered * (torch.from_numpy(EDGES.weights)[place] * known)[..., None]).sum(dim=1)
        return torch.cat([summed[:, None], attend(users, gathered, known)[0]], dim=1)

    graph = AttentionOfAllAccounts(EDGES).to(DEVICE)
    index = None if rows is None else torch.tensor(rows, device=DEVICE)

    def fast(users: Tensor, items: Tensor) -> Tensor:
        summed, heard = attend_and_sum(users, items, graph.plain.sums, graph.edges_of_item, index)
        return torch.cat([summed[:, None], heard], dim=1)

    agree(slow, fast, normal(len(chosen), people, width) / 2, normal(14, width) / 2)


def test_sums_of_long_rows() -> None:
    from lightgc2n.layers.kernels.segment_sums import segment_sum

    graph = AttentionOfAllAccounts(EDGES).plain.sums
    table = normal(14, 5)
    expected = graph(table)
    graph, table = graph.to(DEVICE), table.to(DEVICE)
    actual = segment_sum(table, graph.columns, graph.weights, graph.pieces, graph.row_pieces)
    assert_close(actual.cpu(), expected, rtol=1e-5, atol=1e-5)


@sizes
def test_the_update_of_latent_users(people: int, width: int) -> None:
    from lightgc2n.layers.kernels.squashed_sum import squashed_sum

    layer = CapsuleLayer(width)
    maps = [layer.from_items.weight, layer.from_matches.weight, layer.from_self.weight]

    def slow(summed: Tensor, heard: Tensor, users: Tensor, *weights: Tensor) -> Tensor:
        return squash((summed @ weights[0].T)[:, None] + heard @ weights[1].T + users @ weights[2].T)

    def fast(summed: Tensor, heard: Tensor, users: Tensor, *weights: Tensor) -> Tensor:
        return squashed_sum(list(weights), summed, heard.flatten(0, 1), users.flatten(0, 1)).view(users.shape)

    given = (normal(70, width), normal(70, people, width), normal(70, people, width, seed=1))
    assert_close(slow(*given, *maps), layer.users(*given))
    agree(slow, fast, *given, *maps)


def test_the_update_of_items() -> None:
    from lightgc2n.layers.kernels.squashed_sum import squashed_sum

    layer = CapsuleLayer(6)
    maps = [layer.from_users.weight, layer.from_before.weight]

    def slow(from_users: Tensor, before: Tensor, *weights: Tensor) -> Tensor:
        return squash(from_users @ weights[0].T + before @ weights[1].T)

    def fast(from_users: Tensor, before: Tensor, *weights: Tensor) -> Tensor:
        return squashed_sum(list(weights), from_users, before)

    given = (normal(33, 6), normal(33, 6, seed=1))
    assert_close(slow(*given, *maps), layer.items(*given))
    agree(slow, fast, *given, *maps)


@sizes
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_routing(people: int, width: int, steps: int) -> None:
    from lightgc2n.layers.kernels.dynamic_routing import route

    plain = DynamicRouting(people, width, steps)

    def slow(users: Tensor, weight: Tensor) -> Tensor:
        return torch.func.functional_call(plain, {"agree.weight": weight}, (users,))

    def fast(users: Tensor, weight: Tensor) -> Tensor:
        return route(users, plain.start.to(DEVICE), weight, steps)

    agree(slow, fast, normal(11, people, width), plain.agree.weight)


@sizes
def test_alignment(people: int, width: int) -> None:
    from lightgc2n.layers.kernels.subspace_alignment import _Align, align

    plain = SubspaceAlignment(people, width, smoothing=0.01)
    names = ["bases", "mix.weight", "norm.weight", "norm.bias"]
    with torch.no_grad():
        plain.norm.weight.copy_(1 + normal(width) / 4)
        plain.norm.bias.copy_(normal(width, seed=2))

    def slow(items: Tensor, *learned: Tensor) -> Tensor:
        return torch.stack(torch.func.functional_call(plain, dict(zip(names, learned, strict=True)), (items,)))

    def fast(items: Tensor, bases: Tensor, mix: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
        return torch.stack(_Align.apply(items, bases, mix, gain, shift, 0.01, plain.norm.eps))

    items = normal(70, width)
    agree(slow, fast, items, *(plain.get_parameter(name) for name in names))
    copied = SubspaceAlignment(people, width, smoothing=0.01)
    copied.load_state_dict(plain.state_dict())
    copied = copied.to(DEVICE)
    _, rows = align(items.to(DEVICE), copied.bases, copied.mix.weight, copied.norm, 0.01)
    assert_close(rows.cpu(), plain(items)[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("rows", "classes"), [(1, 1), (3, 7), (5, 4096), (4, 9001)])
def test_gradients_of_logits(rows: int, classes: int) -> None:
    from lightgc2n.layers.kernels.softmax import become_gradients, log_totals

    logits, weight = 5 * normal(rows, classes), normal(rows, 1, seed=2).abs()
    logits[0] += 1000  # nothing overflows
    target = torch.arange(rows)[:, None] % classes
    wanted = (logits.softmax(dim=1) - torch.zeros_like(logits).scatter(1, target, 1.0)) * weight
    there = logits.to(DEVICE, copy=True)
    total = log_totals(there)
    assert_close(total.cpu(), logits.logsumexp(dim=1, keepdim=True))
    assert_close(
        become_gradients(there, total, target.to(DEVICE), weight.to(DEVICE)).cpu(), wanted, rtol=1e-3, atol=1e-6
    )

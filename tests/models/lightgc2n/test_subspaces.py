"""Affinity, refinement, contrast, alignment and the start of the bases, by hand."""

import math

import pytest
import torch
from torch import Tensor, tensor
from torch.testing import assert_close

from lightgc2n.models.lightgc2n.subspaces import (
    NoAlignment,
    SubspaceAlignment,
    bases_by_clusters,
    contrast,
    refine,
    subspace_affinity,
)


def test_affinity_by_hand() -> None:
    strength = [1.0**2 + 0.5 * 2, 0.0**2 + 0.5 * 2]  # ‖eᵀd‖² + λ·d₂ for both bases, λ = 0.5
    actual = subspace_affinity(tensor([[1.0, 0.0]]), torch.eye(2), smoothing=0.5)
    assert_close(actual, tensor([strength]) / sum(strength))


def test_affinity_of_an_item_in_no_subspace_is_even() -> None:
    result = subspace_affinity(torch.zeros(1, 3), torch.randn(4, 3), smoothing=1e-12)
    assert_close(result, torch.full((1, 4), 0.25))


def test_refinement_by_hand() -> None:
    # Bases (2, 0) and (0, 1). Projections of (3, 5): (3, 0) and (0, 5), mixed by 0.25 and 0.75.
    result = refine(tensor([[3.0, 5.0]]), tensor([[2.0, 0.0], [0.0, 1.0]]), tensor([[0.25, 0.75]]))
    assert_close(result, tensor([[0.25 * 3, 0.75 * 5]]))


def test_refinement_projects() -> None:
    """What lies in no subspace is lost, and the length of a base does not matter."""
    item, base = tensor([[3.0, 5.0]]), tensor([[0.1, 0.0]])
    whole = torch.ones(1, 1)
    assert_close(refine(item, base, whole), tensor([[3.0, 0.0]]))
    assert_close(refine(item, 70 * base, whole), tensor([[3.0, 0.0]]))
    assert_close(refine(item, torch.zeros(1, 2), whole), torch.zeros(1, 2))


def contrast_slowly(refined: Tensor, originals: Tensor, same: list[int], temperature: float) -> list[float]:
    losses = []
    for original, place in zip(originals.tolist(), same, strict=True):
        length = math.sqrt(sum(x * x for x in original))
        match = [sum(x / length * z for x, z in zip(original, row, strict=True)) for row in refined.tolist()]
        powers = [math.exp(x / temperature) for x in match]
        losses.append(-math.log(powers[place] / sum(powers)))
    return losses


@pytest.mark.parametrize("temperature", [0.1, 0.8, 1.0])
def test_contrast_is_that_of_a_slow_loop(temperature: float) -> None:
    torch.manual_seed(0)
    refined, originals, same = torch.randn(6, 3), torch.randn(4, 3), [5, 0, 2, 2]
    slow = contrast_slowly(refined, originals, same, temperature)
    weights = tensor([0.1, 0.2, 0.3, 0.4])
    wanted = (tensor(slow) * weights).sum()
    assert_close(contrast(refined, originals, tensor(same), temperature, weights), wanted, rtol=1e-4, atol=1e-5)


def test_contrast_by_hand() -> None:
    # ê = (1, 0) matches its own z = (2, 0) by 2 and the other, (0, 1), by 0; β = 1
    result = contrast(tensor([[2.0, 0.0], [0.0, 1.0]]), tensor([[9.0, 0.0]]), tensor([0]), 1.0, tensor([1.0]))
    assert_close(result, tensor(-math.log(math.exp(2) / (math.exp(2) + 1))))


def test_padding_among_the_refined_takes_no_part_in_the_contrast() -> None:
    refined, original = tensor([[2.0, 0.0], [0.0, 1.0], [7.0, 7.0]]), tensor([[9.0, 0.0]])
    result = contrast(refined, original, tensor([0]), 1.0, tensor([1.0]), tensor([False, False, True]))
    assert_close(result, contrast(refined[:2], original, tensor([0]), 1.0, tensor([1.0])))


def test_alignment_by_hand() -> None:
    alignment = SubspaceAlignment(2, 2, smoothing=1e-4)
    with torch.no_grad():
        alignment.mix.weight.copy_(tensor([[0.0, 1.0], [1.0, 0.0]]))  # swaps the two features
        alignment.bases.copy_(tensor([[0.0, 2.0], [1.0, 0.0]]))
    # Strengths (8² and 3², smoothing aside) share the item 64 : 9, so that its refinement is (3 · 9/73, 4 · 64/73).
    refined, rows = alignment(tensor([[3.0, 4.0]]))
    assert_close(refined, tensor([[3 * 9 / 73, 4 * 64 / 73]]), rtol=1e-4, atol=0)
    # (0.6, 0.8) + (3.51, 0.37) = (4.11, 1.17); LayerNorm over two features gives ±1
    assert_close(rows, tensor([[1.0, -1.0]]), rtol=0, atol=1e-3)


def test_alignment_refines_by_its_own_bases() -> None:
    alignment, items = SubspaceAlignment(3, 4, smoothing=0.2), torch.randn(5, 4)
    affinity = subspace_affinity(items, alignment.bases, 0.2)
    assert_close(alignment(items)[0], refine(items, alignment.bases, affinity))


def test_no_alignment_leaves_items_alone() -> None:
    none, items = NoAlignment(), torch.randn(3, 2)
    none.start_from(items)
    assert all(result is items for result in none(items))


def up_to_sign(result: Tensor) -> list[list[float]]:
    return sorted([round(abs(x), 4) for x in row] for row in result.tolist())


@pytest.mark.parametrize("seed", range(20))
def test_bases_are_the_directions_of_the_clusters(seed: int) -> None:
    """Half of the starts draw two equal items, so that one cluster is empty and must be seeded again."""
    items = tensor([[3.0, 0.0]] * 3 + [[0.0, 5.0]] * 3)
    result = bases_by_clusters(items, 2, torch.Generator().manual_seed(seed))
    assert up_to_sign(result) == [[0.0, 1.0], [1.0, 0.0]]


def test_a_base_is_the_first_right_singular_vector() -> None:
    items = tensor([[1.0, 0.1], [2.0, -0.1], [3.0, 0.0]])
    expected = torch.linalg.svd(items).Vh[0]
    result = bases_by_clusters(items, 1, torch.Generator().manual_seed(0))
    assert up_to_sign(result) == up_to_sign(expected[None])


@pytest.mark.parametrize(
    "items",
    [torch.ones(1, 3), torch.ones(9, 3), torch.zeros(9, 3), torch.eye(3)[:2]],
    ids=["one item", "all equal", "all nothing", "fewer items than clusters"],
)
def test_bases_are_finite_whatever_the_items(items: Tensor) -> None:
    result = bases_by_clusters(items, 5, torch.Generator().manual_seed(0))
    assert result.shape == (5, 3)
    assert torch.isfinite(result).all()
    assert (result.norm(dim=1) <= 1 + 1e-5).all()


def test_alignment_starts_from_the_clusters() -> None:
    alignment = SubspaceAlignment(2, 2, smoothing=1e-4)
    alignment.start_from(tensor([[3.0, 0.0]] * 3 + [[0.0, 5.0]] * 3))
    assert up_to_sign(alignment.bases.detach()) == [[0.0, 1.0], [1.0, 0.0]]

"""Repeat and new: no earlier item falls far behind a place, and the shortcut to gains ranks as all items do."""

from itertools import product

import pytest
import torch
from torch import tensor
from torch.testing import assert_close

from lightgc2n.models.plus.repeat_calibration import LEAK, RankInputs, raise_earlier_items


@pytest.mark.parametrize("cutoff", [1, 3, 20])
def test_gains_are_those_of_ranking_all_items_again(cutoff: int) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(50, 30, generator=generator)
    earlier = torch.stack([torch.randperm(30, generator=generator)[:5] for _ in range(50)])
    bonus, known = torch.randn(50, 5, generator=generator), torch.rand(50, 5, generator=generator) < 0.7
    target = torch.randint(30, (50,), generator=generator)
    target[:20] = earlier[:20, 0]
    shown = RankInputs.of(scores, earlier, bonus, known, target, cutoff)
    for (added, times), place in product([(0.0, 1.0), (0.5, 0.5), (2.0, 0.0), (-1.0, 2.0)], [0, 1, 3, 8]):
        if place <= cutoff:
            lifted = scores.scatter_add(1, earlier, torch.where(known, added + times * bonus, 0.0))
            lifted = raise_earlier_items(lifted, earlier, known, place)
            rank = 1 + (lifted > lifted.gather(1, target[:, None])).sum(dim=1)
            wanted = torch.where(rank <= cutoff, 1 / torch.log2(1.0 + rank), 0.0).double().sum()
            assert shown.gain(added, times, place) == pytest.approx(float(wanted))


def test_batches_joined_gain_what_they_gain_apart() -> None:
    generator = torch.Generator().manual_seed(0)
    parts = []
    for rows, items, places in ((4, 9, 3), (7, 30, 6), (2, 5, 1)):
        earlier = torch.stack([torch.randperm(items, generator=generator)[:places] for _ in range(rows)])
        target = torch.randint(items, (rows,), generator=generator)
        target[0] = earlier[0, 0]
        scores, bonus = (torch.randn(rows, width, generator=generator) for width in (items, places))
        known = torch.ones(rows, places, dtype=torch.bool)
        parts.append(RankInputs.of(scores, earlier, bonus, known, target, 4))
    for balance in product([0.0, 1.0], [0.5, 2.0], [0, 2, 4]):
        apart = sum(float(part.gain(*balance)) for part in parts)
        assert float(RankInputs.joined(parts).gain(*balance)) == pytest.approx(apart)


def test_earlier_items_stand_just_behind_the_place_and_keep_their_order() -> None:
    scores = tensor([[9.0, 5.0, 4.0, 3.0, 1.0, -7.0, 8.0]])
    earlier, known = tensor([[4, 5, 6, 4, 0]]), tensor([[True, True, True, False, False]])
    # The others are 9, 5, 4, 3; the third of them is 4. 8 is above it, 1 is 3 below it and -7 11 below it.
    wanted = tensor([[9.0, 5.0, 4.0, 3.0, 4 - 3 * LEAK, 4 - 11 * LEAK, 8.0]])
    assert_close(raise_earlier_items(scores, earlier, known, 3), wanted)
    assert_close(raise_earlier_items(scores, earlier, known, 0), scores)


def test_a_place_that_a_small_catalogue_does_not_have_changes_nothing() -> None:
    scores, earlier = tensor([[3.0, 2.0, 1.0]]), tensor([[0, 2]])
    assert_close(raise_earlier_items(scores, earlier, tensor([[True, True]]), 3), scores)

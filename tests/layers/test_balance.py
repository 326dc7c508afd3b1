"""The shortcut to the gains of a balance ranks as a whole catalogue does."""

import pytest
import torch
from torch import tensor
from torch.testing import assert_close

from lightgc2n.layers.balance import balanced_gains


@pytest.mark.parametrize("cutoff", [1, 3, 20])
def test_gains_are_those_of_ranking_all_items_again(cutoff: int) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(50, 12, generator=generator)
    earlier = torch.stack([torch.randperm(12, generator=generator)[:5] for _ in range(50)])
    bonus, known = torch.randn(50, 5, generator=generator), torch.rand(50, 5, generator=generator) < 0.7
    target = torch.randint(12, (50,), generator=generator)
    tried = tensor([[0.0, 1.0], [0.5, 0.5], [2.0, 0.0], [-1.0, 2.0]])
    wanted = []
    for added, times in tried:
        lifted = scores.scatter_add(1, earlier, torch.where(known, added + times * bonus, 0.0))
        rank = 1 + (lifted > lifted.gather(1, target[:, None])).sum(dim=1)
        wanted.append(torch.where(rank <= cutoff, 1 / torch.log2(1.0 + rank), 0.0).sum().double())
    assert_close(balanced_gains(scores, earlier, bonus, known, target, tried, cutoff), torch.stack(wanted))

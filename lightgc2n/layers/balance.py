"""How a bonus on earlier items would change the rank of targets, without ranking the catalogue again for every bonus.

Shapes: B questions, M items, T earlier items, G bonuses tried, C cutoff.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def balanced_gains(
    scores: Float[Tensor, "B M"],
    earlier: Int[Tensor, "B T"],
    bonus: Float[Tensor, "B T"],
    known: Bool[Tensor, "B T"],
    target: Int[Tensor, "B"],
    tried: Float[Tensor, "G 2"],
    cutoff: int,
) -> Float[Tensor, "G"]:
    """The sum of 1 / log2(1 + rank) of the targets within the cutoff, for each pair: added + times · bonus.

    Args:
        scores: without any bonus.
        known: which places hold an earlier item, each of which stands once.
    """
    own = scores.gather(1, target[:, None])
    before = torch.where(known, scores.gather(1, earlier), -torch.inf)
    # Of all other items only the best can push a target beyond the cutoff.
    others = scores.scatter_reduce(1, earlier, torch.where(known, -torch.inf, torch.inf), "amin")
    best = others.topk(min(cutoff, others.shape[1]), dim=1).values
    is_target = known & (earlier == target[:, None])
    gains = []
    for added, times in tried:
        lifted = before + added + times * bonus
        wanted = torch.where(is_target.any(dim=1), torch.where(is_target, lifted, 0.0).sum(dim=1), own[:, 0])[:, None]
        rank = 1 + (best > wanted).sum(dim=1) + (lifted > wanted).sum(dim=1)
        gains.append(torch.where(rank <= cutoff, 1 / torch.log2(1.0 + rank), 0.0).sum())
    return torch.stack(gains).double()

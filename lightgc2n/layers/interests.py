"""Interest capsules: the events of one history are shared out among a few vectors by dynamic routing.

Shapes: P events of all histories, I histories, K interests, D width.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightgc2n.layers.capsules import squash


def route_interests(
    votes: Float[Tensor, "P K D"], owner: Int[Tensor, "P"], histories: int, steps: int
) -> Float[Tensor, "I K D"]:
    """The interests of each history; an event counts most for those that its votes agree with.

    Only the last step carries gradients: those before it decide what belongs where.

    Args:
        owner: the history that each event belongs to.
    """
    logits = votes.new_zeros(votes.shape[:2])  # b
    fixed = votes.detach()
    for _ in range(steps - 1):
        interests = squash(_shared_out(logits, fixed, owner, histories))
        logits = logits + (fixed * interests[owner]).sum(dim=2)
    return squash(_shared_out(logits, votes, owner, histories))  # o


def _shared_out(
    logits: Float[Tensor, "P K"], votes: Float[Tensor, "P K D"], owner: Int[Tensor, "P"], histories: int
) -> Float[Tensor, "I K D"]:
    """v: the votes of each history's events, summed; every event is divided among the interests."""
    shares = torch.softmax(logits, dim=1)  # c
    return votes.new_zeros(histories, *votes.shape[1:]).index_add(0, owner, shares[:, :, None] * votes)

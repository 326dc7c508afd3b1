"""Capsules of items and latent users, and the routing of latent users to their account.

Shapes: M items, N accounts, A latent users, D capsule width, W embedding width (d1 in the paper).
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lightgc2n.devices import has_matrix_kernels
from lightgc2n.layers.squash import SMALLEST_SQUARE, squash


class LinearAttention(nn.Module):
    """Items to capsules by linear attention: the map is W x W, so the cost is linear in the number of items."""

    def __init__(self, width: int, capsule_width: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, capsule_width)

    def forward(self, embeddings: Float[Tensor, "M W"]) -> Float[Tensor, "M D"]:
        return self.project(embeddings @ attention_map(embeddings))  # Eq. 3


def attention_map(embeddings: Float[Tensor, "M W"]) -> Float[Tensor, "W W"]:
    """softmax(KᵀV / √d1) over the last axis."""
    return torch.softmax(embeddings.T @ embeddings / embeddings.shape[-1] ** 0.5, dim=-1)


class PointwiseConvolution(nn.Module):
    """Embeddings to capsules, one linear map for each of A capsules: a Conv1D with kernel and stride 1."""

    def __init__(self, width: int, capsules: int, capsule_width: int) -> None:
        super().__init__()
        self.capsules = capsules
        self.project = nn.Linear(width, capsules * capsule_width)

    def forward(self, embeddings: Float[Tensor, "N W"]) -> Float[Tensor, "N A D"]:
        return self.project(embeddings).unflatten(-1, (self.capsules, -1))  # Eq. 4


class OneCapsule(nn.Module):
    """Ablation of linear attention (w/o LA): a point-wise Conv1D, as for accounts."""

    def __init__(self, width: int, capsule_width: int) -> None:
        super().__init__()
        self.convolve = PointwiseConvolution(width, 1, capsule_width)

    def forward(self, embeddings: Float[Tensor, "M W"]) -> Float[Tensor, "M D"]:
        return self.convolve(embeddings)[:, 0]


class DynamicRouting(nn.Module):
    """Dynamic routing of latent users to their account: users that agree with the account get more weight."""

    start: Float[Tensor, "A D"]

    def __init__(self, users: int, capsule_width: int, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.agree = nn.Linear(capsule_width, capsule_width, bias=False)
        # Drawn once and saved with the weights, so that routing is deterministic.
        self.register_buffer("start", torch.empty(users, capsule_width))
        nn.init.xavier_uniform_(self.start)

    def forward(self, users: Float[Tensor, "N A D"]) -> Float[Tensor, "N D"]:
        if has_matrix_kernels(users):
            from lightgc2n.layers.kernels.dynamic_routing import route

            return route(users, self.start, self.agree.weight, self.steps)
        return self.terms(users).sum(dim=1)

    def terms(self, users: Float[Tensor, "N A D"]) -> Float[Tensor, "N A D"]:
        """The summand of each latent user in the last iteration."""
        coupling = self.start.expand_as(users)
        for _ in range(self.steps - 1):
            account = squash(coupling * users).sum(dim=1, keepdim=True)  # Eq. 12
            coupling = coupling + self.agree(users * account)  # Eq. 13
        return squash(coupling * users)  # Eq. 12


class SumOfUsers(nn.Module):
    """Ablation of routing (w/o DR): all latent users have equal weight."""

    def forward(self, users: Float[Tensor, "N A D"]) -> Float[Tensor, "N D"]:
        return users.sum(dim=1)

    def terms(self, users: Float[Tensor, "N A D"]) -> Float[Tensor, "N A D"]:
        return users


def routing_weights(terms: Float[Tensor, "N A D"]) -> Float[Tensor, "N A"]:
    """The share of each latent user in the account: the length of its summand, normalised over the users."""
    lengths = (terms.square().sum(dim=-1) + SMALLEST_SQUARE).sqrt()
    return lengths / lengths.sum(dim=-1, keepdim=True)

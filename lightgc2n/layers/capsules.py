"""Capsules: vectors whose length says how sure they are.

Shapes: M items, N accounts, A latent users, D capsule width, W embedding width (d1 in the paper).
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lightgc2n.layers.gpu import has_kernels, has_matrix_kernels

SMALLEST_NORM = 1e-12


def squash(vectors: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch D"]:
    """The same directions with lengths |v|² / (1 + |v|²), below one."""
    if has_kernels(vectors):
        from lightgc2n.layers.kernels import squashing

        return squashing.squash(vectors)
    square = vectors.square().sum(dim=-1, keepdim=True)
    # v·|v| / (1 + |v|²), so that nothing is divided by |v|, which may be 0.
    return vectors * ((square + SMALLEST_NORM).sqrt() / (1 + square))


class LinearAttention(nn.Module):
    """Items to capsules: the attention map is width x width, so the cost grows linearly with the items."""

    def __init__(self, width: int, capsule_width: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, capsule_width)

    def forward(self, embeddings: Float[Tensor, "M W"]) -> Float[Tensor, "M D"]:
        return self.project(embeddings @ attention_map(embeddings))  # Eq. 3


def attention_map(embeddings: Float[Tensor, "M W"]) -> Float[Tensor, "W W"]:
    """softmax(KᵀV / √d1) over the last axis."""
    return torch.softmax(embeddings.T @ embeddings / embeddings.shape[-1] ** 0.5, dim=-1)


class PointwiseConvolution(nn.Module):
    """Embeddings to capsules, one linear map for each kind of capsule: a Conv1D with kernel and stride 1."""

    def __init__(self, width: int, capsules: int, capsule_width: int) -> None:
        super().__init__()
        self.capsules = capsules
        self.project = nn.Linear(width, capsules * capsule_width)

    def forward(self, embeddings: Float[Tensor, "N W"]) -> Float[Tensor, "N A D"]:
        return self.project(embeddings).unflatten(-1, (self.capsules, -1))  # Eq. 4


class OneCapsule(nn.Module):
    """In place of linear attention (w/o LA): a point-wise Conv1D, as accounts have it."""

    def __init__(self, width: int, capsule_width: int) -> None:
        super().__init__()
        self.convolve = PointwiseConvolution(width, 1, capsule_width)

    def forward(self, embeddings: Float[Tensor, "M W"]) -> Float[Tensor, "M D"]:
        return self.convolve(embeddings)[:, 0]


class DynamicRouting(nn.Module):
    """Latent users to their account: the more a user agrees with the account, the more of it counts."""

    start: Float[Tensor, "A D"]

    def __init__(self, users: int, capsule_width: int, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.agree = nn.Linear(capsule_width, capsule_width, bias=False)
        # Drawn once and saved with the weights, so that an account is routed alike every time.
        self.register_buffer("start", torch.empty(users, capsule_width))
        nn.init.xavier_uniform_(self.start)

    def forward(self, users: Float[Tensor, "N A D"]) -> Float[Tensor, "N D"]:
        if has_matrix_kernels(users):
            from lightgc2n.layers.kernels import routing

            return routing.route(users, self.start, self.agree.weight, self.steps)
        return self.terms(users).sum(dim=1)

    def terms(self, users: Float[Tensor, "N A D"]) -> Float[Tensor, "N A D"]:
        """What each latent user adds to the account in the last iteration."""
        coupling = self.start.expand_as(users)
        for _ in range(self.steps - 1):
            account = squash(coupling * users).sum(dim=1, keepdim=True)  # Eq. 12
            coupling = coupling + self.agree(users * account)  # Eq. 13
        return squash(coupling * users)  # Eq. 12


class SumOfUsers(nn.Module):
    """In place of routing (w/o DR): every latent user counts alike."""

    def forward(self, users: Float[Tensor, "N A D"]) -> Float[Tensor, "N D"]:
        return users.sum(dim=1)

    def terms(self, users: Float[Tensor, "N A D"]) -> Float[Tensor, "N A D"]:
        return users


def routing_weights(terms: Float[Tensor, "N A D"]) -> Float[Tensor, "N A"]:
    """How much of the account each latent user is: the length of its term, normalised over the users."""
    lengths = (terms.square().sum(dim=-1) + SMALLEST_NORM).sqrt()
    return lengths / lengths.sum(dim=-1, keepdim=True)

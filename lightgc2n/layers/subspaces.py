"""Subspace alignment: items as mixtures of a few directions, one for each latent user.

Shapes: A latent users, D capsule width, I items at hand, J items to tell them from.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import normalize

from lightgc2n.layers.crossentropy import linear_cross_entropy
from lightgc2n.layers.gpu import has_matrix_kernels

SMALLEST_SQUARE = 1e-12
IMPOSSIBLE = -1e9  # a logit that takes no part in a softmax


def subspace_affinity(
    items: Float[Tensor, "*batch D"], bases: Float[Tensor, "A D"], smoothing: float
) -> Float[Tensor, "*batch A"]:
    """How far each item belongs to each latent user's subspace; the last axis sums to one."""
    strength = (items @ bases.T).square() + smoothing * bases.shape[-1]  # Eq. 15, numerator
    return strength / strength.sum(dim=-1, keepdim=True)  # Eq. 15


def refine(
    items: Float[Tensor, "*batch D"], bases: Float[Tensor, "A D"], affinity: Float[Tensor, "*batch A"]
) -> Float[Tensor, "*batch D"]:
    """Each item projected onto every subspace, and the projections mixed by affinity."""
    length = (items @ bases.T) / (bases.square().sum(dim=-1) + SMALLEST_SQUARE)
    return (affinity * length) @ bases  # Eq. 16


def contrast(
    refined: Float[Tensor, "J D"],
    originals: Float[Tensor, "I D"],
    same: Int[Tensor, "I"],
    temperature: float,
    weights: Float[Tensor, "I"],
    left_out: Bool[Tensor, "J"] | None = None,
) -> Float[Tensor, ""]:
    """InfoNCE, summed with weights: how hard it is to tell which refined item an original belongs to.

    Args:
        same: for each original the place of its own refined vector.
        left_out: refined vectors that are padding.
    """
    questions = normalize(originals, dim=-1) / temperature
    handicap = None if left_out is None else left_out * IMPOSSIBLE
    return linear_cross_entropy(questions, refined, same, weights, handicap)  # Eq. 17


class SubspaceAlignment(nn.Module):
    """Items to rows of a sequence: the original direction and what its subspaces say of it."""

    def __init__(self, users: int, capsule_width: int, smoothing: float) -> None:
        super().__init__()
        self.smoothing = smoothing
        self.bases = nn.Parameter(torch.empty(users, capsule_width))
        nn.init.xavier_uniform_(self.bases)
        self.mix = nn.Linear(capsule_width, capsule_width, bias=False)
        self.norm = nn.LayerNorm(capsule_width)

    @torch.no_grad()
    def start_from(self, items: Float[Tensor, "I D"]) -> None:
        """Bases from the clusters of the items."""
        generator = torch.Generator().manual_seed(0)
        self.bases.copy_(bases_by_clusters(items, len(self.bases), generator))

    def forward(self, items: Float[Tensor, "I D"]) -> tuple[Float[Tensor, "I D"], Float[Tensor, "I D"]]:
        """The part of each item that lies in the subspaces, and the item's row in a sequence."""
        if has_matrix_kernels(items):
            from lightgc2n.layers.kernels import aligning

            return aligning.align(items, self.bases, self.mix.weight, self.norm, self.smoothing)
        refined = refine(items, self.bases, subspace_affinity(items, self.bases, self.smoothing))  # Eq. 15, 16
        return refined, self.norm(normalize(items, dim=-1) + self.mix(refined))  # Eq. 19


class NoAlignment(nn.Module):
    """In place of subspace alignment (w/o S): item vectors go into the sequence as they are."""

    def start_from(self, items: Float[Tensor, "I D"]) -> None:
        """No bases to start."""

    def forward(self, items: Float[Tensor, "I D"]) -> tuple[Float[Tensor, "I D"], Float[Tensor, "I D"]]:
        return items, items


@torch.no_grad()
def bases_by_clusters(
    items: Float[Tensor, "I D"], users: int, generator: torch.Generator, rounds: int = 20
) -> Float[Tensor, "A D"]:
    """The first right-singular vector of each k-means cluster of the items; an empty cluster takes a random item."""
    start = torch.randperm(len(items), generator=generator)[:users].to(items.device)
    centres = items[start.repeat(-(-users // max(1, len(start))))[:users]]
    for _ in range(rounds):
        cluster = torch.cdist(items, centres).argmin(dim=1)
        sums = torch.zeros_like(centres).index_add_(0, cluster, items)
        counts = torch.bincount(cluster, minlength=users)
        empty = torch.nonzero(counts == 0)[:, 0].tolist()
        centres = sums / counts.clamp(min=1)[:, None]
        for place in empty:
            centres[place] = items[int(torch.randint(len(items), (1,), generator=generator))]
    cluster = torch.cdist(items, centres).argmin(dim=1)
    bases = [_direction(items[cluster == place], centres[place]) for place in range(users)]
    return torch.stack(bases)


def _direction(members: Float[Tensor, "I D"], centre: Float[Tensor, "D"]) -> Float[Tensor, "D"]:
    if len(members) == 0:
        return normalize(centre, dim=0)
    return torch.linalg.svd(members.double(), full_matrices=False).Vh[0].to(members.dtype)

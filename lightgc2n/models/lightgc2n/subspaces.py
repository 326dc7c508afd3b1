"""Subspace alignment: items projected onto learned directions, one for each latent user.

Shapes: A latent users, D capsule width, I items, J items to contrast with.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import normalize

from lightgc2n.devices import has_matrix_kernels
from lightgc2n.layers.crossentropy import linear_cross_entropy

SMALLEST_SQUARE = 1e-12
MASKED = -1e9  # a logit whose softmax is 0


def subspace_affinity(
    items: Float[Tensor, "*batch D"], bases: Float[Tensor, "A D"], smoothing: float
) -> Float[Tensor, "*batch A"]:
    """The affinity of each item to each latent user's subspace; the last axis sums to one."""
    strength = (items @ bases.T).square() + smoothing * bases.shape[-1]  # Eq. 15, numerator
    return strength / strength.sum(dim=-1, keepdim=True)  # Eq. 15


def refine(
    items: Float[Tensor, "*batch D"], bases: Float[Tensor, "A D"], affinity: Float[Tensor, "*batch A"]
) -> Float[Tensor, "*batch D"]:
    """The projections of each item onto the subspaces, summed with the affinities as weights."""
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
    """InfoNCE between original and refined items, as a weighted sum.

    Args:
        same: the row of `refined` that belongs to each original.
        left_out: rows of `refined` that are padding.
    """
    queries = normalize(originals, dim=-1) / temperature
    mask = None if left_out is None else left_out.to(refined.dtype) * MASKED
    return linear_cross_entropy(queries, refined, same, weights, mask)  # Eq. 17


class SubspaceAlignment(nn.Module):
    """Items to rows of a sequence: the normalised item plus a map of its refined vector."""

    def __init__(self, users: int, capsule_width: int, smoothing: float) -> None:
        super().__init__()
        self.smoothing = smoothing
        self.bases = nn.Parameter(torch.empty(users, capsule_width))
        nn.init.xavier_uniform_(self.bases)
        self.mix = nn.Linear(capsule_width, capsule_width, bias=False)
        self.norm = nn.LayerNorm(capsule_width)

    @torch.no_grad()
    def start_from(self, items: Float[Tensor, "I D"]) -> None:
        """Initialise the bases from clusters of the items."""
        generator = torch.Generator().manual_seed(0)
        self.bases.copy_(bases_by_clusters(items, len(self.bases), generator))

    def forward(self, items: Float[Tensor, "I D"]) -> tuple[Float[Tensor, "I D"], Float[Tensor, "I D"]]:
        """The refined items, and their rows in a sequence."""
        if has_matrix_kernels(items):
            from lightgc2n.layers.kernels.subspace_alignment import align

            return align(items, self.bases, self.mix.weight, self.norm, self.smoothing)
        refined = refine(items, self.bases, subspace_affinity(items, self.bases, self.smoothing))  # Eq. 15, 16
        return refined, self.norm(normalize(items, dim=-1) + self.mix(refined))  # Eq. 19


class NoAlignment(nn.Module):
    """Ablation of subspace alignment (w/o S): item vectors are the rows of a sequence."""

    def start_from(self, items: Float[Tensor, "I D"]) -> None:
        """There are no bases."""

    def forward(self, items: Float[Tensor, "I D"]) -> tuple[Float[Tensor, "I D"], Float[Tensor, "I D"]]:
        return items, items


@torch.no_grad()
def bases_by_clusters(
    items: Float[Tensor, "I D"], users: int, generator: torch.Generator, rounds: int = 20
) -> Float[Tensor, "A D"]:
    """The first right-singular vector of each k-means cluster; an empty cluster restarts at a random item."""
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

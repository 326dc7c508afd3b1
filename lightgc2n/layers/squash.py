"""The squash function of capsule networks."""

from jaxtyping import Float
from torch import Tensor

from lightgc2n.devices import has_kernels

SMALLEST_SQUARE = 1e-12  # keeps the gradient of the root finite at 0


def squash(vectors: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch D"]:
    """The vectors scaled to lengths |v|² / (1 + |v|²), below one."""
    if has_kernels(vectors):
        from lightgc2n.layers.kernels.squash import squash as squash_kernel

        return squash_kernel(vectors)
    square = vectors.square().sum(dim=-1, keepdim=True)
    # v·|v| / (1 + |v|²), so that nothing is divided by |v|, which may be 0.
    return vectors * ((square + SMALLEST_SQUARE).sqrt() / (1 + square))

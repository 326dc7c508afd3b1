"""Whether the Triton kernels can take a tensor; without them the plain layers run, on a GPU too."""

import os
from functools import cache
from importlib.util import find_spec

from torch import Tensor

WIDEST = 32  # a matrix of 64 takes 40 s to compile, one of 32 takes 5 s; wider ones leave products to cuBLAS


def has_kernels(tensor: Tensor) -> bool:
    """Whether `layers/kernels.py` can be used: a GPU, float32 and an installed Triton."""
    return tensor.is_cuda and tensor.element_size() == 4 and _wanted()


def has_matrix_kernels(vectors: Tensor) -> bool:
    """The same for kernels that hold a square matrix: those of wide vectors take minutes to compile."""
    return has_kernels(vectors) and vectors.shape[-1] <= WIDEST


@cache
def _wanted() -> bool:
    return find_spec("triton") is not None and os.environ.get("LIGHTGC2N_KERNELS", "triton") != "plain"

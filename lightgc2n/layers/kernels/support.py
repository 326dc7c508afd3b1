"""Whether the Triton kernels can be used for a tensor; otherwise the plain layers run, also on a GPU."""

import os
from functools import cache
from importlib.util import find_spec

from torch import Tensor

from lightgc2n.devices import device_of

WIDEST = 32  # a 64 x 64 matrix takes 40 s to compile, 32 x 32 takes 5 s; wider ones use cuBLAS


def has_kernels(tensor: Tensor) -> bool:
    """Whether the kernels can be used: a GPU, float32 and an installed Triton."""
    return device_of(tensor).runs_triton and tensor.element_size() == 4 and _wanted()


def has_matrix_kernels(vectors: Tensor) -> bool:
    """The same for kernels that hold a square matrix, which take minutes to compile for wide vectors."""
    return has_kernels(vectors) and vectors.shape[-1] <= WIDEST


@cache
def _wanted() -> bool:
    return find_spec("triton") is not None and os.environ.get("LIGHTGC2N_KERNELS", "triton") != "plain"

"""Whether the Triton kernels can take a tensor; without them the plain layers run, on a GPU too."""

import os
from functools import cache
from importlib.util import find_spec

from torch import Tensor


def has_kernels(tensor: Tensor) -> bool:
    """Whether `layers/kernels.py` can be used: a GPU, float32 and an installed Triton."""
    return tensor.is_cuda and tensor.element_size() == 4 and _wanted()


@cache
def _wanted() -> bool:
    return find_spec("triton") is not None and os.environ.get("LIGHTGC2N_KERNELS", "triton") != "plain"

"""Where tensors live."""

from lightgc2n.errors import SettingError


def choose_device(name: str) -> str:
    """`cpu` or `cuda`; `auto` takes the GPU where there is one."""
    import torch

    if name not in ("cpu", "cuda", "auto"):
        raise SettingError(f"--device: expected cpu, cuda or auto, found {name!r}.")
    if name == "cuda" and not torch.cuda.is_available():
        raise SettingError("--device cuda: no usable GPU was found. Use --device cpu, or see lightgc2n doctor.")
    return "cuda" if name != "cpu" and torch.cuda.is_available() else "cpu"

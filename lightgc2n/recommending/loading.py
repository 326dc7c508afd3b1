"""Loads a recommender from a run folder, which needs torch, or from a bundle, which does not."""

from pathlib import Path

from lightgc2n.devices import CPU
from lightgc2n.errors import DATA, SettingError, option
from lightgc2n.recommending.bundle_files import is_bundle
from lightgc2n.recommending.recommender import Recommender

DEVICE = option("--device", "device=")


def load(path: str | Path, data: str | Path | None = None, device: str = "cpu") -> Recommender:
    """The recommender over the run or the bundle at `path`.

    Args:
        data: the run's dataset, if it has moved.
        device: of a run: cpu, cuda or auto; a bundle runs on the CPU.
    """
    if not is_bundle(Path(path)):
        from lightgc2n.devices import choose_device
        from lightgc2n.recommending.load_run import load_run

        return load_run(path, data, choose_device(device))
    if data is not None:
        raise SettingError(f"{path} is a bundle, which has its histories in itself: leave out {DATA}.")
    if device not in (CPU.name, "auto"):
        raise SettingError(f"{path} is a bundle, and bundles run on the CPU: leave out {DEVICE}.")
    from lightgc2n.recommending.load_bundle import load_bundle

    return load_bundle(Path(path))

"""Loading a run or a bundle from disk."""

from pathlib import Path
from typing import TYPE_CHECKING

from lightgc2n.api.calls import api_call

if TYPE_CHECKING:
    from lightgc2n.api.dataset import Dataset
    from lightgc2n.api.recommending import Bundle
    from lightgc2n.api.run import Run


def load(
    path: str | Path, data: "Dataset | str | Path | None" = None, device: str = "cpu", *, progress: bool = True
) -> "Run | Bundle":
    """Load the run or the bundle at `path`; a bundle needs no torch.

    Args:
        path: a folder that `train` or `export` wrote.
        data: the run's dataset, if it has moved since training.
        device: cpu, cuda or auto, for a run; a bundle runs on the CPU.
        progress: show progress.

    Example:
        >>> lg.load("bundle").recommend(history=["a", "b"])
        >>> lg.load("runs/first", data="shop").evaluate()
    """
    with api_call(progress):
        from lightgc2n.api.dataset import Dataset
        from lightgc2n.recommending.bundle_files import is_bundle
        from lightgc2n.recommending.loading import load as load_recommender

        path, place = Path(path), data.folder if isinstance(data, Dataset) else data
        recommender = load_recommender(path, place, device)
        if is_bundle(path):
            from lightgc2n.api.recommending import Bundle

            return Bundle(path, recommender, progress)
        from lightgc2n.api.run import Run
        from lightgc2n.devices import choose_device
        from lightgc2n.training.runs import plan_of

        if not isinstance(data, Dataset):
            data = Dataset.load(plan_of(path).data if place is None else place)
        run = Run(path, data, device=choose_device(device), progress=progress)
        run.recommender = recommender
        return run

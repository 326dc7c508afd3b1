"""Training a model, using the trained run, and loading a run or a bundle from disk."""

import math
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightgc2n.api.calls import api_call, given_arguments
from lightgc2n.api.dataset import Dataset, as_dataset, read_title_map
from lightgc2n.api.recommending import Bundle, Recommending
from lightgc2n.api.storage import OwnedFolder, copy_folder
from lightgc2n.progress import number_of, say

if TYPE_CHECKING:
    from lightgc2n.api.comparison import Evaluation
    from lightgc2n.api.results import Presenter
    from lightgc2n.recommending.recommender import Recommender
    from lightgc2n.training.checkpoints import Progress


Settings = Mapping[str, Any]


class Run(Recommending):
    """A trained model with its data, to recommend, find people, evaluate and export.

    Example:
        >>> run = lg.train(data, model="lightgc2n-plus", epochs=20)
        >>> run.recommend("user42", k=10).to_frame()
        >>> run.evaluate()
        >>> run.export("bundle")

    Attributes:
        folder: the folder of the run; a temporary one, which is removed with this object, unless `out` was given.
        data: the training dataset.
        model: the name of the model.
    """

    def __init__(
        self,
        folder: Path,
        data: Dataset,
        *,
        device: str = "cpu",
        owned: OwnedFolder | None = None,
        progress: bool = True,
    ) -> None:
        from lightgc2n.training.runs import plan_of

        self.folder, self.data, self.device = folder, data, device
        self._owned, self._progress = owned, progress
        self.model = plan_of(folder).model

    @cached_property
    def recommender(self) -> "Recommender":
        """The recommender, loaded when it is first used."""
        from lightgc2n.recommending.loading import load

        return load(self.folder, self.data.folder, self.device)

    @property
    def _presenter(self) -> "Presenter":
        from lightgc2n.api.results import Presenter

        return Presenter(self.data.titles, self.data.library)

    @property
    def history(self) -> Any:
        """The losses, the seconds and the validation MRR@20 of each epoch, as a data frame."""
        from lightgc2n.api.frames import make_frame
        from lightgc2n.training.checkpoints import read_rows

        rows = read_rows(self.folder)
        names = dict.fromkeys(name for row in rows for name in row)
        return make_frame({name: [row.get(name) for row in rows] for name in names}, preferred=self.data.library)

    @property
    def state(self) -> "Progress":
        """The progress of training: `epochs`, `best_epoch`, `best_value` (validation MRR@20), `ended_by`."""
        from lightgc2n.training.runs import load_run

        return load_run(self.folder)[2]

    def evaluate(self, *, fold_in: bool = False) -> "Evaluation":
        """Rank the test targets, which were never used for training or for selecting a checkpoint.

        Args:
            fold_in: also evaluate with accounts folded in from their histories, with and without their ids.

        Example:
            >>> run.evaluate()["MRR@20"]
        """
        from lightgc2n.api.comparison import Evaluation

        with api_call(self._progress):
            from lightgc2n.experiments.compare import measured
            from lightgc2n.training.run import evaluate_run

            tested = evaluate_run(self.folder, self.data.folder, self.device, fold_in)
            result = measured(tested.dataset, tested.split, tested.ranks, tested.facts).result
            return Evaluation(result, self.data.library)

    def export(
        self,
        out: str | Path,
        *,
        int8: bool = False,
        histories: bool = True,
        people: bool = True,
        titles: Mapping[str, str] | None = None,
        force: bool = False,
    ) -> Path:
        """Write the run as a bundle, which needs no torch, and return its folder.

        Args:
            out: the folder to write.
            int8: quantise item tables to 8 bits: a third of the size.
            histories: include the histories of the accounts.
            people: include the model that finds the people behind a history.
            titles: titles of items by item id; by default those of the data.
            force: replace an existing bundle.

        Example:
            >>> run.export("bundle")
            >>> lg.load("bundle").recommend(history=["a", "b"])
        """
        with api_call(self._progress):
            from lightgc2n.export.write_bundle import ExportOptions, export_run

            titles = self.data.titles if titles is None else read_title_map(titles)
            options = ExportOptions(int8, histories, people, titles or None)
            export_run(self.folder, Path(out), options, self.data.folder, force)
            return Path(out)

    def refresh(self, data: Dataset | str | Path, *, out: str | Path | None = None, force: bool = False) -> "Run":
        """Return this run with its counts brought up to the newest event of `data`, without training.

        Followers, neighbours and trends are counted over all events of `data`; learned weights do not change. New
        accounts and items can be queried at once. This run stays as it is.

        Args:
            data: a dataset, or the path of a log or a prepared dataset, with the newer events.
            out: the folder of the refreshed run; without it a temporary one, which is removed with the new `Run`.
            force: replace an existing run.

        Raises:
            SettingError: the model has no counted sources.

        Example:
            >>> run.refresh("log-of-today.csv").recommend("user42", k=10)
        """
        with api_call(self._progress):
            from lightgc2n.training.refresh_run import refresh_run
            from lightgc2n.training.runs import RUN_FOLDER

            newer = as_dataset(data)
            owned = OwnedFolder(RUN_FOLDER, "run") if out is None else None
            folder = owned.path if owned is not None else Path(out or "")
            refresh_run(self.folder, newer.folder, folder, force)
            return Run(folder, newer, device=self.device, owned=owned, progress=self._progress)

    def save(self, out: str | Path, *, force: bool = False) -> "Run":
        """Copy the run to the folder `out`, and use it from there. Save its data too, with `run.data.save`.

        Args:
            force: replace an existing run.
        """
        from lightgc2n.training.runs import RUN_FOLDER, sole_trainer

        with api_call(self._progress), sole_trainer(self.folder):  # its files would be of different epochs
            copy_folder(self.folder, Path(out), RUN_FOLDER, force)
        self.folder = Path(out)
        return self

    def __repr__(self) -> str:
        state = self.state
        best = f", best validation MRR@20 {100 * state.best_value:.2f} %" if state.best_value >= 0 else ""
        ended = f", ended by {state.ended_by}" if state.ended_by else ", not ended"
        return f"<Run of {self.model} on {self.data.name!r}: {state.epochs} epochs{best}{ended}, at {self.folder}>"


def train(
    data: Dataset | str | Path,
    model: str | None = None,
    *,
    epochs: int | None = None,
    out: str | Path | None = None,
    protocol: str | None = None,
    domain: str | None = None,
    settings: Settings | None = None,
    split: Settings | None = None,
    training: Settings | None = None,
    seed: int | None = None,
    from_run: "Run | str | Path | None" = None,
    seconds: float | None = None,
    device: str = "auto",
    progress: bool = True,
) -> Run:
    """Train a model and return its run.

    Args:
        data: a dataset, or the path of a log or a prepared dataset.
        model: a name of `list_models()`; by default `lightgc2n-plus`.
        epochs: maximum number of epochs; training ends earlier when validation no longer improves.
        out: the folder of the run; an unfinished run in it resumes. Without it the run is in a temporary folder,
            which is removed with the `Run`.
        protocol: how data is split: last, time, cold-accounts or windows.
        domain: use only the events of this domain.
        settings: settings of the model, such as `{"width": 32}`.
        split: further settings of the split, such as `{"validation": False}`.
        training: further settings of the training, such as `{"learning_rate": 0.01}`.
        seed: seed of all random numbers; by default 0.
        from_run: start from the weights and settings of this run, on newer data.
        seconds: time budget; training pauses at the end of the epoch that exceeds it, and resumes with `out`.
        device: cpu, cuda or auto.
        progress: show progress.

    Raises:
        SettingError: a model or a setting is unknown, or a value out of its bounds.

    Example:
        >>> run = lg.train(data, model="lightgc2n-plus", epochs=20)
        >>> run.history
    """
    with api_call(progress):
        from lightgc2n.data.leak_audit import warn_of_leaks
        from lightgc2n.devices import choose_device
        from lightgc2n.training.loop import was_still_improving
        from lightgc2n.training.run import open_data, train_run
        from lightgc2n.training.runs import RUN_FOLDER, plan_to_train

        data, device = as_dataset(data), choose_device(device)
        start = from_run.folder if isinstance(from_run, Run) else Path(from_run) if from_run is not None else None
        plan = plan_to_train(data.folder, model, start).changed(
            domain=domain,
            settings=settings or {},
            split=given_arguments(protocol=protocol, seed=seed) | dict(split or {}),
            training=given_arguments(epochs=epochs, seed=seed) | dict(training or {}),
        )
        opened = open_data(plan)
        warn_of_leaks(*opened)
        if out is not None and data.is_temporary:
            say(f"the data is in a temporary folder: data.save(FOLDER) keeps it for a later load({str(out)!r})")
        owned = OwnedFolder(RUN_FOLDER, "run") if out is None else None
        folder = owned.path if owned is not None else Path(out or "")
        progressed = train_run(plan, folder, device, math.inf if seconds is None else seconds, data=opened)
        if was_still_improving(progressed):
            last = f"the last of {number_of(progressed.epochs, 'epoch')}"
            say(f"stopped too early: validation was still improving at {last}")
        return Run(folder, data, device=device, owned=owned, progress=progress)


def load(
    path: str | Path, data: Dataset | str | Path | None = None, device: str = "cpu", *, progress: bool = True
) -> Run | Bundle:
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
        from lightgc2n.recommending.bundle_files import is_bundle
        from lightgc2n.recommending.loading import load as load_recommender

        path, place = Path(path), data.folder if isinstance(data, Dataset) else data
        recommender = load_recommender(path, place, device)
        if is_bundle(path):
            return Bundle(path, recommender, progress)
        from lightgc2n.devices import choose_device
        from lightgc2n.training.runs import plan_of

        if not isinstance(data, Dataset):
            data = Dataset.load(plan_of(path).data if place is None else place)
        run = Run(path, data, device=choose_device(device), progress=progress)
        run.recommender = recommender
        return run

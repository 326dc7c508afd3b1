"""The folder of a run: what was trained, on which data, and its progress.

run.json            model, settings, split, training, seed, data and its checksum, versions, git commit, --from;
                    of a refreshed run also how many events it counts
accounts.txt        the ids of all accounts (items.txt: of all items), in the order of the rows of the weights
metrics.jsonl       one line per epoch
tensorboard/        the same for TensorBoard, if it is installed
last.safetensors    the newest checkpoint, to resume from
best.safetensors    the weights with the best validation value
results.json        test metrics and the cost of training, for the runs of a plan
ranks.npz           the rank, account and domain of each test target, for the runs of a plan
people/             the model that finds the people behind accounts, written when it is first used
"""

import fcntl
import json
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightgc2n import __version__, zoo
from lightgc2n.config import read_settings
from lightgc2n.data.dataset import Dataset
from lightgc2n.data.splits import SplitConfig
from lightgc2n.errors import DATA, OUT, DataError, OutputError, SettingError, option
from lightgc2n.files.atomic_writes import new_file, remove_leftovers
from lightgc2n.files.folder_kinds import FolderKind, is_temporary, kind_found, refuse_linked
from lightgc2n.files.writer_lock import make_folders, recover
from lightgc2n.models.contract import Model
from lightgc2n.training.checkpoints import (
    BEST,
    BOARD,
    EVENTS,
    LAST,
    METRICS,
    Progress,
    epochs_of,
    load_checkpoint,
    vocabulary_files,
    write_vocabularies,
)
from lightgc2n.training.loop import TrainingConfig

RUN, TESTED = "run.json", "results.json"
REFRESHED = "refreshed"  # key in run.json: the counts of the run include all events of its data
DEFAULT_MODEL = "lightgc2n-plus"
FROM = option("--from", "from_run=")
TRAIN = option("lightgc2n train DIR --out RUN", "lightgc2n.train(data, out=RUN)")
RUN_FOLDER = FolderKind(
    "run",
    RUN,
    (
        *vocabulary_files(),
        METRICS,
        f"{BOARD}/{EVENTS}",
        LAST,
        BEST,
        TESTED,
        "ranks.npz",
        "people/finder.json",
        "people/finder.safetensors",
    ),
)
COMMIT_VARIABLE = "LIGHTGC2N_COMMIT"


@dataclass(frozen=True)
class RunPlan:
    """The model to train, its settings and its data."""

    data: Path
    model: str
    domain: str = ""
    settings: dict[str, Any] = field(default_factory=dict)  # settings of the model that differ from its defaults
    split: SplitConfig = field(default_factory=SplitConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    from_run: Path | None = None  # the run whose weights it starts from
    label: str = ""  # the name of these settings in a plan; by default the model

    def changed(
        self,
        *,
        domain: str | None = None,
        settings: Mapping[str, Any],
        split: Mapping[str, Any],
        training: Mapping[str, Any],
    ) -> "RunPlan":
        """Return the plan with these settings changed; the others stay the same."""
        return replace(
            self,
            domain=self.domain if domain is None else domain,
            settings=self.settings | dict(settings),
            split=read_settings(SplitConfig, asdict(self.split) | dict(split), where="split"),
            training=read_settings(TrainingConfig, asdict(self.training) | dict(training), where="training"),
        )

    def parts(self) -> dict[str, Any]:
        """Return the model and all settings, including defaults, as JSON values."""
        return {
            "model": self.model,
            "settings": asdict(zoo.model_config(self.model, self.settings)),
            "split": asdict(self.split),
            "training": asdict(self.training),
        }

    def describe(self, dataset: Dataset) -> dict[str, Any]:
        """Return the parts and everything else that the result depends on."""
        return {
            "made_by": f"lightgc2n {__version__}",
            **self.parts(),
            "label": self.label or self.model,
            "data": {
                "folder": str(self.data.resolve()),
                "domain": self.domain,
                "checksum": dataset.checksum,
                "name": dataset.name,
            },
            "from": _origin(self.from_run) if self.from_run is not None else None,
            "versions": versions(),
            "threads": torch.get_num_threads(),
            "commit": source_commit(),
        }


def plan_to_train(data: Path, model: str | None = None, from_run: Path | None = None) -> RunPlan:
    """The plan of a run on `data` with the default settings, or with those of the run that it starts from."""
    base = plan_of(from_run) if from_run is not None else RunPlan(data, model or DEFAULT_MODEL)
    if model is not None and model != base.model:
        raise SettingError(f"{from_run}: a run of {base.model}. Its weights cannot start {model}.")
    if from_run is not None and zoo.entry_of(base.model).is_simple:
        raise SettingError(f"{base.model} is a simple baseline: it has no weights. Count it anew, without {FROM}.")
    return replace(base, data=data, from_run=from_run)


def start_run(folder: Path, plan: RunPlan, dataset: Dataset) -> None:
    """Create the folder of a run, or check that the existing one holds the same run, or one with fewer epochs."""
    refuse_foreign_run(folder)
    if not _holds_epochs(folder):
        description = plan.describe(dataset)  # before anything is written: this raises errors about wrong settings
        make_folders(folder)
        with sole_trainer(folder):  # so that a run in its first epoch is not replaced
            refuse_foreign_run(folder)
            for name in vocabulary_files():
                (folder / name).unlink(missing_ok=True)
            write_run(folder, description)
    elif _is_given_more_epochs(folder, plan):
        refuse_another_run(folder, replace(plan, training=plan_of(folder).training), dataset)
        _refuse_to_replace_weights(folder, more=True)
        with sole_trainer(folder):
            write_run(folder, read_run(folder) | {"training": asdict(plan.training)})
    else:
        refuse_another_run(folder, plan, dataset)
        _refuse_to_replace_weights(folder)
    write_vocabularies(folder, dataset)


def refuse_foreign_run(folder: Path) -> None:
    """Raise an error at a folder that is neither empty nor a run: training would write among a user's files."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file. Choose another {OUT}.")
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    names = sorted(name for name in names if not is_temporary(name))
    if names and not RUN_FOLDER.is_marked(folder):
        raise OutputError(f"{folder} holds {names[0]} and is not a run (no {RUN}). Choose another {OUT}.")
    refuse_linked(folder, RUN_FOLDER)


def _refuse_to_replace_weights(folder: Path, more: bool = False) -> None:
    """Raise an error when training would start again and replace weights: `forget`, or a user, removed the checkpoint.

    A run killed in its first epoch may have such weights too; it starts again.

    Args:
        more: whether the run is to be trained for more epochs than before.
    """
    if (folder / LAST).is_file() or not (folder / BEST).is_file():
        return
    progress = load_checkpoint(folder / BEST)[2]
    if more if progress.ended_by else max(progress.epochs, epochs_of(folder)) > 1:
        raise OutputError(
            f"{folder} has trained weights but no {LAST}, so it cannot resume, and its weights are not replaced "
            f"(forget removes {LAST}, which holds the accounts). "
            f"Start a new run from them with {FROM} {folder} and another {OUT}."
        )


def _is_given_more_epochs(folder: Path, plan: RunPlan) -> bool:
    """Return whether the plan only raises the number of epochs of a run that was not tested yet."""
    present = plan_of(folder).training
    more = plan.training.epochs > present.epochs and replace(present, epochs=plan.training.epochs) == plan.training
    return more and not (folder / TESTED).exists()


def write_run(folder: Path, description: dict[str, Any]) -> None:
    """Write the description of a run."""
    with new_file(folder / RUN, force=True) as temporary:
        temporary.write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")


def refuse_another_run(folder: Path, plan: RunPlan, dataset: Dataset) -> None:
    """Raise an error when the run in `folder` is not the planned one."""
    # plan_of fills in the defaults of settings that were added after the run was written
    description, present = read_run(folder), plan_of(folder).parts()
    if REFRESHED in description:
        raise OutputError(f"{folder} holds a refreshed run, which is not trained further. Choose another {OUT}.")
    for part, wanted in plan.parts().items():
        if present[part] != wanted:
            raise OutputError(
                f"{folder} holds another run ({_difference(part, present[part], wanted)}). "
                f"Choose another {OUT}, or the same settings."
            )
    data = description["data"]
    if (data["checksum"], data["domain"]) != (dataset.checksum, plan.domain):
        raise OutputError(f"{folder} holds a run on other data. Choose another {OUT}.")
    start = str(plan.from_run.resolve()) if plan.from_run is not None else None
    if (description.get("from") or {}).get("run") != start:
        raise OutputError(f"{folder} holds a run with another warm start ({FROM} differs). Choose another {OUT}.")


@contextmanager
def sole_trainer(folder: Path, wait: bool = False) -> Iterator[None]:
    """Lock the run for one process; the system releases the lock when the process ends.

    Temporary files of a killed process are removed.

    Args:
        wait: wait for another process instead of raising an error.
    """
    handle = _locked(folder, wait)
    try:
        remove_leftovers(folder)
        yield
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)  # closing is not enough: a process forked meanwhile has the handle too
        os.close(handle)


def _locked(folder: Path, wait: bool) -> int:
    """Return the locked handle of a folder; `forget` may replace the folder while this waits."""
    while True:
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if os.path.samestat(os.fstat(handle), os.stat(folder)):
                return handle
        except BlockingIOError:
            os.close(handle)
            raise OutputError(f"{folder} is being trained by another process. Wait for it, or stop it.") from None
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def read_run(folder: Path) -> dict[str, Any]:
    """Return the description of the run in `folder`."""
    recover(folder)
    try:
        return dict(json.loads((folder / RUN).read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        advice = f"{kind_found(folder)}Make a run with: {TRAIN}"
        raise DataError(f"{folder}: not a run (no {RUN}). {advice}") from None
    except (OSError, ValueError, TypeError) as problem:
        raise DataError(f"{folder / RUN}: not the description of a run: {problem}. Train it again.") from None


def plan_of(folder: Path) -> RunPlan:
    """Return the plan of the run in `folder`."""
    description = read_run(folder)
    where = str(folder / RUN)
    try:
        return RunPlan(
            data=Path(description["data"]["folder"]),
            model=description["model"],
            domain=description["data"]["domain"],
            settings=description["settings"],
            split=read_settings(SplitConfig, description["split"], where),
            training=read_settings(TrainingConfig, description["training"], where),
        )
    except (KeyError, TypeError, AttributeError) as problem:
        raise DataError(f"{where}: not the description of a run: {problem}. Give a run of `train`.") from None


def epochs_before(folder: Path) -> int:
    """Return the number of epochs behind the weights that a run started from."""
    return int((read_run(folder).get("from") or {}).get("epochs", 0))


def load_run(folder: Path) -> tuple[str, Model, Progress]:
    """Return the name of the model, the model with its best weights, and the progress of the run."""
    description = read_run(folder)
    tensors, _, progress = load_checkpoint(folder / BEST)
    if (folder / LAST).is_file():
        progress = load_checkpoint(folder / LAST)[2]
    config = zoo.model_config(description["model"], description["settings"])
    model = zoo.entry_of(description["model"]).restore(config, tensors)
    model.eval()
    return description["model"], model, progress


def refuse_other_data(folder: Path, dataset: Dataset) -> None:
    """Raise an error when a run was not trained on this dataset."""
    wanted = read_run(folder)["data"]["checksum"]
    if dataset.checksum != wanted:
        checksums = f"found checksum {dataset.checksum[:12]}…, expected {wanted[:12]}…"
        raise DataError(f"{folder}: trained on other data ({checksums}). Give the folder of its data with {DATA}.")


def versions() -> dict[str, str]:
    """Return the versions of the packages that a result depends on."""
    return {
        "lightgc2n": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def _origin(run: Path) -> dict[str, Any]:
    """Return the facts about the run of a warm start, which are stored because that run may be removed."""
    description = read_run(run)
    epochs = epochs_before(run) + load_checkpoint(run / BEST)[2].epochs
    return {"run": str(run.resolve()), "data": description["data"], "epochs": epochs}


def is_refreshed(folder: Path) -> bool:
    """Return whether the counts of a run include all events of its data, also those after its split."""
    return REFRESHED in read_run(folder)


def _holds_epochs(folder: Path) -> bool:
    """Return whether a run has files beyond those that exist before the end of its first epoch."""
    first = {RUN, *vocabulary_files(), METRICS, BOARD}
    names = (path.name for path in folder.iterdir()) if folder.is_dir() else ()
    return any(name not in first and not is_temporary(name) for name in names)


def _difference(part: str, present: Any, wanted: Any) -> str:
    """Return the first setting of a part that differs, with both values."""
    if not isinstance(present, dict) or not isinstance(wanted, dict):
        return f"{part} is {present!r} there, expected {wanted!r}"
    name = next(name for name in {**present, **wanted} if present.get(name) != wanted.get(name))
    return f"{part}.{name} is {present.get(name)!r} there, expected {wanted.get(name)!r}"


def source_commit() -> str | None:
    """Return the commit of the source if it is a checkout of this project, else None.

    `-dirty` marks a package with changes that are not committed. The environment variable LIGHTGC2N_COMMIT names the
    commit of a copy without its repository.
    """
    if named := os.environ.get(COMMIT_VARIABLE):
        return named
    package = Path(__file__).resolve().parents[1]
    commands = (
        ["ls-files", "--error-unmatch", "--", f"{package.name}/__init__.py"],
        ["rev-parse", "--show-prefix"],  # empty in the top folder of a repository
        ["rev-parse", "HEAD"],
        ["diff", "--quiet", "HEAD", "--", package.name],  # 1: there are changes
    )
    try:
        *done, changes = [
            subprocess.run(["git", *words], cwd=package.parent, capture_output=True, text=True, check=False)
            for words in commands
        ]
    except OSError:  # a bare machine may have no git
        return None
    if any(one.returncode for one in done) or done[1].stdout.strip() or not done[2].stdout.strip():
        return None
    return done[2].stdout.strip() + ("-dirty" if changes.returncode else "")

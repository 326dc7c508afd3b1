"""The folder of a run: everything needed to know what was trained, on what, and how far.

run.json            model, settings, split, training, seed, data and its checksum, versions, git commit
metrics.jsonl       one line an epoch
last.safetensors    to go on from
best.safetensors    the weights with the best validation value
"""

import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightgc2n import __version__, zoo
from lightgc2n.config import read_settings
from lightgc2n.data.dataset import Dataset
from lightgc2n.data.splits import SplitConfig
from lightgc2n.errors import DataError, OutputError
from lightgc2n.models.contract import Model
from lightgc2n.training.checkpoints import Progress, load_checkpoint
from lightgc2n.training.loop import BEST, LAST, TrainingConfig

RUN = "run.json"


@dataclass(frozen=True)
class RunPlan:
    """What to train, on what."""

    data: Path
    model: str
    domain: str = ""
    settings: dict[str, Any] = field(default_factory=dict)  # of the model, where they differ from its defaults
    split: SplitConfig = field(default_factory=SplitConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def describe(self, dataset: Dataset) -> dict[str, Any]:
        """The plan with every setting spelled out, ready for JSON."""
        return {
            "made_by": f"lightgc2n {__version__}",
            "model": self.model,
            "settings": asdict(zoo.model_config(self.model, self.settings)),
            "split": asdict(self.split),
            "training": asdict(self.training),
            "data": {"folder": str(self.data.resolve()), "domain": self.domain, "checksum": dataset.checksum},
            "versions": versions(),
            "commit": _commit(),
        }


def start_run(folder: Path, plan: RunPlan, dataset: Dataset) -> None:
    """Makes the folder of a run, or checks that the one that is there holds the same run."""
    wanted = plan.describe(dataset)
    if not folder.exists():
        folder.mkdir(parents=True)
        temporary = folder / f".{RUN}"
        temporary.write_text(json.dumps(wanted, indent=1) + "\n", encoding="utf-8")
        os.replace(temporary, folder / RUN)
        return
    found = read_run(folder)
    for part in ("model", "settings", "split", "training"):
        if found[part] != wanted[part]:
            raise OutputError(
                f"{folder} holds another run ({part} differs). Choose another --out, or the same settings."
            )
    if found["data"]["checksum"] != wanted["data"]["checksum"]:
        raise OutputError(f"{folder} holds a run on other data. Choose another --out.")


def read_run(folder: Path) -> dict[str, Any]:
    """The description of the run in `folder`."""
    try:
        return dict(json.loads((folder / RUN).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        raise DataError(f"{folder}: not a run (no {RUN}). Make one with: lightgc2n train DIR --out {folder}") from None


def plan_of(folder: Path) -> RunPlan:
    """The plan of the run in `folder`."""
    found = read_run(folder)
    where = str(folder / RUN)
    return RunPlan(
        data=Path(found["data"]["folder"]),
        model=found["model"],
        domain=found["data"]["domain"],
        settings=found["settings"],
        split=read_settings(SplitConfig, found["split"], where),
        training=read_settings(TrainingConfig, found["training"], where),
    )


def load_run(folder: Path) -> tuple[str, Model, Progress]:
    """The name of the model, the model with its best weights, and how far the run has come."""
    found = read_run(folder)
    tensors, _, progress = load_checkpoint(folder / BEST)
    if (folder / LAST).is_file():
        progress = load_checkpoint(folder / LAST)[2]
    config = zoo.model_config(found["model"], found["settings"])
    model = zoo.entry_of(found["model"]).restore(config, tensors)
    model.eval()
    return found["model"], model, progress


def refuse_other_data(folder: Path, dataset: Dataset) -> None:
    """Stops when a run was not trained on this dataset."""
    wanted = read_run(folder)["data"]["checksum"]
    if dataset.checksum != wanted:
        found = f"{dataset.checksum[:12]}…, expected {wanted[:12]}…"
        raise DataError(f"{folder}: trained on other data (checksum {found}). Say where its data is with --data.")


def versions() -> dict[str, str]:
    """What a result depends on besides data and settings."""
    return {
        "lightgc2n": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def _commit() -> str | None:
    """The commit of the source, where it is a checkout."""
    here = Path(__file__).parent
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None

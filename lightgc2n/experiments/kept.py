"""What a comparison has finished, kept model by model in a folder, so that one that was stopped goes on.

runs/MODEL/          the run of a trained model, finished or not
ranks/MODEL.npy      the rank of each test target
finished/MODEL.json  how the model was asked, and what a table says of it; written last
"""

import json
import shutil
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lightgc2n import zoo
from lightgc2n.data.files import new_file
from lightgc2n.errors import OutputError
from lightgc2n.evaluation.metrics import Floats
from lightgc2n.experiments.contestants import Conditions
from lightgc2n.training.runs import RUN, RunPlan, read_run

RUNS, RANKS, FINISHED = "runs", "ranks", "finished"


@dataclass(frozen=True)
class Kept:
    """The folder of an unfinished comparison.

    Args:
        force: what was made otherwise is made again; without it, it is refused.
    """

    folder: Path
    force: bool = False

    def run(self, model: str) -> Path:
        return self.folder / RUNS / model

    def find(self, plan: RunPlan, conditions: Conditions) -> tuple[Floats, dict[str, Any]] | None:
        """Ranks and facts of a model that is finished; nothing where it is not."""
        path = self.folder / FINISHED / f"{plan.model}.json"
        if not path.is_file():
            self._look_at_run(plan, conditions)
            return None
        found = json.loads(path.read_text(encoding="utf-8"))
        if other := _difference(found["asked"], asked(plan, conditions)):
            self._discard(plan.model, other)
            return None
        return np.load(self._ranks(plan.model), allow_pickle=False), found["facts"]

    def keep(self, plan: RunPlan, conditions: Conditions, ranks: Floats, facts: dict[str, Any]) -> None:
        """Stores a finished model."""
        with new_file(self._ranks(plan.model), force=True) as temporary:
            np.save(temporary, ranks, allow_pickle=False)
        with new_file(self.folder / FINISHED / f"{plan.model}.json", force=True) as temporary:
            text = json.dumps({"asked": asked(plan, conditions), "facts": facts}, indent=1)
            temporary.write_text(text + "\n", encoding="utf-8")

    def refuse_others(self, models: Collection[str]) -> None:
        """Stops when the folder holds a model that is not asked for now; with `force` it is thrown away."""
        held = {path.stem for path in (self.folder / FINISHED).glob("*.json")}
        held |= {path.name for path in (self.folder / RUNS).glob("*")}
        for model in sorted(held - set(models)):
            self._discard(model, "it is not asked for now")

    def clear(self) -> None:
        """Takes away what only an unfinished comparison needs, and ranks that were kept without being finished."""
        finished = {path.stem for path in (self.folder / FINISHED).glob("*.json")}
        for path in (self.folder / RANKS).glob("*.npy"):
            if path.stem not in finished:
                path.unlink()
        shutil.rmtree(self.folder / FINISHED, ignore_errors=True)
        if (self.folder / RUNS).is_dir() and not any((self.folder / RUNS).iterdir()):
            (self.folder / RUNS).rmdir()

    def _ranks(self, model: str) -> Path:
        return self.folder / RANKS / f"{model}.npy"

    def _look_at_run(self, plan: RunPlan, conditions: Conditions) -> None:
        if (self.run(plan.model) / RUN).is_file():
            found, wanted = read_run(self.run(plan.model)), asked(plan, conditions)
            if other := _difference({name: found[name] for name in ("settings", "training", "split")}, wanted):
                self._discard(plan.model, other)

    def _discard(self, model: str, why: str) -> None:
        if not self.force:
            raise OutputError(
                f"{self.folder} holds {model} of another comparison: {why}. "
                f"Choose another --out, or start it again with --force."
            )
        (self.folder / FINISHED / f"{model}.json").unlink(missing_ok=True)
        self._ranks(model).unlink(missing_ok=True)
        shutil.rmtree(self.run(model), ignore_errors=True)


def asked(plan: RunPlan, conditions: Conditions) -> dict[str, Any]:
    """All that a model's ranks depend on, as JSON gives it back."""
    is_floor = zoo.entry_of(plan.model).is_floor
    described = {
        "data": {"checksum": conditions.dataset.checksum, "domain": plan.domain},
        "split": asdict(plan.split),
        "settings": asdict(zoo.model_config(plan.model, plan.settings)),
        "training": None if is_floor else asdict(plan.training),
        "exclude_seen": conditions.exclude_seen,
    }
    return dict(json.loads(json.dumps(described)))


def _difference(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    return next((f"{name} differs" for name in found if found[name] != wanted.get(name)), "")

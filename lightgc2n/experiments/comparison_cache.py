"""The finished models of a comparison, stored in a folder so that an interrupted comparison resumes.

runs/MODEL/          the run of a trained model, finished or not
ranks/MODEL.npy      the rank of each test target
finished/MODEL.json  the conditions of the test and the facts that a table shows; written last
"""

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lightgc2n import zoo
from lightgc2n.errors import FORCE, OUT, OutputError, option
from lightgc2n.experiments.rank_model import Conditions
from lightgc2n.files.atomic_writes import new_file
from lightgc2n.metrics.ranking import Floats
from lightgc2n.training.runs import RUN, RUN_FOLDER, RunPlan, read_run

RUNS, RANKS, FINISHED = "runs", "ranks", "finished"


@dataclass(frozen=True)
class ComparisonCache:
    """The folder of an unfinished comparison.

    Args:
        force: discard models with other settings; without it they are an error.
    """

    folder: Path
    force: bool = False

    def run(self, model: str) -> Path:
        return self.folder / RUNS / model

    def find(self, plan: RunPlan, conditions: Conditions) -> tuple[Floats, dict[str, Any]] | None:
        """Return the ranks and facts of a finished model; None if it is not finished."""
        path = self.folder / FINISHED / f"{plan.model}.json"
        if not path.is_file():
            self._check_run(plan, conditions)
            return None
        stored = json.loads(path.read_text(encoding="utf-8"))
        if other := _difference(stored["asked"], conditions_of(plan, conditions)):
            self._discard(plan.model, other)
            return None
        if conditions.around is not None and "beyond" not in stored["facts"]:
            return None  # an earlier comparison did not measure it; a trained run is used as it is
        if not {str(row) for row in conditions.examples} <= stored["facts"].get("examples", {}).keys():
            return None  # likewise
        return np.load(self._ranks(plan.model), allow_pickle=False), stored["facts"]

    def keep(self, plan: RunPlan, conditions: Conditions, ranks: Floats, facts: dict[str, Any]) -> None:
        """Store a finished model."""
        with new_file(self._ranks(plan.model), force=True) as temporary:
            np.save(temporary, ranks, allow_pickle=False)
        with new_file(self.folder / FINISHED / f"{plan.model}.json", force=True) as temporary:
            text = json.dumps({"asked": conditions_of(plan, conditions), "facts": facts}, indent=1)
            temporary.write_text(text + "\n", encoding="utf-8")

    def refuse_others(self, models: Collection[str]) -> None:
        """Raise an error if the folder holds a model that is not compared now; with `force`, discard it."""
        held = {path.stem for path in (self.folder / FINISHED).glob("*.json")}
        held |= {path.name for path in (self.folder / RUNS).glob("*")}
        for model in sorted(held - set(models)):
            self._discard(model, f"it is not one of {option('--models', 'models=')} now")

    def clear(self) -> None:
        """Remove the files that only an unfinished comparison needs, and the ranks of unfinished models."""
        finished = {path.stem for path in (self.folder / FINISHED).glob("*.json")}
        for path in (self.folder / RANKS).glob("*.npy"):
            if path.stem not in finished:
                path.unlink()
        for path in (self.folder / FINISHED).glob("*.json"):
            path.unlink()
        if (self.folder / FINISHED).is_dir() and not any((self.folder / FINISHED).iterdir()):
            (self.folder / FINISHED).rmdir()
        if (self.folder / RUNS).is_dir() and not any((self.folder / RUNS).iterdir()):
            (self.folder / RUNS).rmdir()

    def _ranks(self, model: str) -> Path:
        return self.folder / RANKS / f"{model}.npy"

    def _check_run(self, plan: RunPlan, conditions: Conditions) -> None:
        """Discard a started run with other settings."""
        if (self.run(plan.model) / RUN).is_file():
            stored, wanted = read_run(self.run(plan.model)), conditions_of(plan, conditions)
            kept = {name: stored[name] for name in ("settings", "training", "split")}
            kept["data"] = {name: stored["data"][name] for name in ("checksum", "domain")}
            if other := _difference(kept, wanted):
                self._discard(plan.model, other)

    def _discard(self, model: str, why: str) -> None:
        if not self.force:
            raise OutputError(
                f"{self.folder} holds {model} of another comparison: {why}. "
                f"Choose another {OUT}, or start it again with {FORCE}."
            )
        (self.folder / FINISHED / f"{model}.json").unlink(missing_ok=True)
        self._ranks(model).unlink(missing_ok=True)
        RUN_FOLDER.remove(self.run(model))


def conditions_of(plan: RunPlan, conditions: Conditions) -> dict[str, Any]:
    """Return everything that the ranks of a model depend on, as JSON returns it."""
    is_simple = zoo.entry_of(plan.model).is_simple
    described = {
        "data": {"checksum": conditions.dataset.checksum, "domain": plan.domain},
        "split": asdict(plan.split),
        "settings": asdict(zoo.model_config(plan.model, plan.settings)),
        "training": None if is_simple else asdict(plan.training),
        "exclude_seen": conditions.exclude_seen,
    }
    return dict(json.loads(json.dumps(described)))


def _difference(stored: dict[str, Any], wanted: dict[str, Any]) -> str:
    return next((f"{name} differs" for name in stored if stored[name] != wanted.get(name)), "")

"""An experiment from what is asked to finished runs: OUT/NAME holds its plan, its runs and what was asked."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightgc2n import __version__
from lightgc2n.data.files import new_file
from lightgc2n.errors import DataError, OutputError, SettingError
from lightgc2n.experiments.children import Slice
from lightgc2n.experiments.plans import read_plan
from lightgc2n.experiments.side_by_side import train_plan
from lightgc2n.progress import say
from lightgc2n.studies.catalogue import QUICK_EPOCHS, STUDIES
from lightgc2n.studies.found import EXPERIMENT, read_experiment
from lightgc2n.studies.people import FOLDER as PEOPLE
from lightgc2n.studies.setup import Setup, plan_lines, settings_file

PLAN, DATA = "plan.toml", "data"


@dataclass(frozen=True)
class Pace:
    """Where and how fast runs are made, which changes no number but seconds."""

    device: str = "cpu"
    at_once: int = 1
    seconds: float = math.inf  # after this no run starts, and each stops for now at the end of its epoch
    together: int = 1  # how many runs one process takes, one after the other


@dataclass
class State:
    """How far experiments have come: experiment/run."""

    left: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)  # experiment -> why it does not fit the data


def prepare(names: list[str], setup: Setup, out: Path, command: str, data: Mapping[str, str] | None = None) -> State:
    """Writes plan and description of each experiment to OUT/NAME; one of several that does not fit the data is skipped.

    Args:
        data: where each dataset lies, seen from a plan; without it where it lies now.
    """
    state = State()
    _refuse_foreign(out)
    for name in names:
        try:
            _write_plan(name, setup, out / name, data or _places(setup))
            _describe(name, setup, out / name, command)
        except DataError as problem:
            if len(names) == 1:
                raise
            state.skipped[name] = str(problem)
            say(f"{name} is skipped: {problem}")
    return state


def carry_out(names: list[str], setup: Setup, out: Path, command: str, pace: Pace) -> State:
    """Runs experiments in OUT; what is finished is left as it is, what was stopped goes on."""
    state = prepare(names, setup, out, command)
    fitting = [name for name in names if name not in state.skipped]
    for name in fitting:
        STUDIES[name].measure(setup, out / name)
    run_plans(fitting, out, state, pace)
    return state


def run_plans(names: list[str], out: Path, state: State, pace: Pace) -> None:
    """Trains and tests the runs of experiments whose plans are written."""
    time_slice = Slice(pace.seconds)
    for name in names:
        plan = out / name / PLAN
        if plan.is_file() and plan.read_text(encoding="utf-8").strip():
            say(f"runs of {name}")
            done = train_plan(plan, out / name, pace.device, pace.at_once, time_slice.left(), pace.together)
            state.left += [f"{name}/{run}" for run in done.left]
            state.failed += [f"{name}/{run}" for run in done.failed]


def _places(setup: Setup) -> dict[str, str]:
    return {source.name: str(source.folder.resolve()) for source in setup.sources}


def _write_plan(name: str, setup: Setup, folder: Path, data: Mapping[str, str]) -> None:
    study = STUDIES[name]
    epochs = QUICK_EPOCHS if setup.quick else study.epochs
    seeds = 1 if setup.quick else study.seeds
    lines = list(plan_lines(setup, study.runs(setup), seeds, epochs, data))
    with new_file(folder / PLAN, force=True) as temporary:
        temporary.write_text("\n".join(lines), encoding="utf-8")
    if lines:
        read_plan(folder / PLAN)  # what is wrong in it is said before anything starts


def _describe(name: str, setup: Setup, folder: Path, command: str) -> None:
    """Notes what is asked of each dataset, and with which settings."""
    study = STUDIES[name]
    pairs, entries = study.beside(setup), list(study.runs(setup))
    asked = {
        source.name: {
            "commands": [command],
            "beside": pairs.get(source.name, ""),
            "runs": {
                entry.name: str(settings_file(setup.config, entry) or "") for entry in entries if entry.source == source
            },
        }
        for source in setup.sources
    }
    merge_asked(folder, name, {"quick": setup.quick, "asked": asked})


def merge_asked(folder: Path, name: str, more: Mapping[str, Any]) -> None:
    """Adds what is asked to what was asked before in this folder, dataset by dataset."""
    path = folder / EXPERIMENT
    before: dict[str, Any] = read_experiment(folder) if path.is_file() else {"asked": {}, "quick": False}
    asked = before["asked"]
    for source, found in more["asked"].items():
        known = asked.get(source, {"runs": {}, "commands": []})
        commands = list(dict.fromkeys([*known["commands"], *found["commands"]]))
        beside = found.get("beside") or known.get("beside", "")
        asked[source] = found | {"beside": beside, "runs": known["runs"] | found["runs"], "commands": commands}
    quick = before.get("quick", False) or more["quick"]
    described = {"made_by": f"lightgc2n {__version__}", "experiment": name, "quick": quick, "asked": asked}
    with new_file(path, force=True) as temporary:
        temporary.write_text(json.dumps(described, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _refuse_foreign(out: Path) -> None:
    """Stops at a folder that holds other things: a report would overwrite them."""
    if out.is_file():
        raise OutputError(f"{out} is a file. Choose another --out.")
    held = {path.name for path in out.iterdir() if not path.name.startswith(".")} if out.is_dir() else set()
    if held - {*STUDIES, DATA, PEOPLE} and not any((out / name / EXPERIMENT).is_file() for name in STUDIES):
        raise OutputError(f"{out} holds other files and no experiment. Choose another --out.")


def require_data(setup: Setup) -> None:
    """Stops where nothing was given to run on."""
    if not setup.sources:
        raise SettingError("no data: give --data DIR, a prepared dataset, or --quick for generated households.")

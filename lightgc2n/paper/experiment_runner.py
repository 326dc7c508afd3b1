"""An experiment from its options to finished runs: OUT/NAME holds its plan, its runs and the requests."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightgc2n import __version__
from lightgc2n.data.dataset import MANIFEST
from lightgc2n.errors import DataError, SettingError
from lightgc2n.experiments.plan_runner import train_plan
from lightgc2n.experiments.plans import read_plan
from lightgc2n.experiments.subprocesses import Runner, TimeBudget
from lightgc2n.files.atomic_writes import claim_folder, new_file
from lightgc2n.files.folder_kinds import FolderKind, is_made_by_us, refuse_linked
from lightgc2n.paper.catalogue import EXPERIMENTS, QUICK_EPOCHS
from lightgc2n.paper.experiment_plan import Setup, plan_lines, settings_file
from lightgc2n.paper.experiment_results import EXPERIMENT, read_experiment
from lightgc2n.paper.quick_data import HOMES
from lightgc2n.progress import say

PLAN, DATA = "plan.toml", "data"


@dataclass(frozen=True)
class Pace:
    """The device and the parallelism of runs; they change only the measured times."""

    device: str = "cpu"
    at_once: int = 1
    seconds: float = math.inf  # time budget: after it no run starts, and each pauses at the end of its epoch
    per_process: int = 1  # runs that one subprocess trains in turn
    runner: Runner | None = None  # runs them elsewhere


@dataclass
class State:
    """The progress of experiments: names as experiment/run."""

    left: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)  # experiment -> why it does not fit the data


def prepare(names: list[str], setup: Setup, out: Path, command: str, data: Mapping[str, str] | None = None) -> State:
    """Write the plan and the description of each experiment to OUT/NAME.

    One of several experiments that does not fit the data is skipped.

    Args:
        data: the folder of each dataset relative to a plan, if it will differ from the present one.
    """
    state = State()
    claim_experiments(out, names)
    for name in names:
        try:
            _write_plan(name, setup, out / name, data or _places(setup))
            _describe(name, setup, out / name, command)
        except DataError as problem:
            if len(names) == 1:
                raise
            state.skipped[name] = problem.command_line
            say(f"{name} is skipped: {problem.command_line}")
    return state


def run_experiments(names: list[str], setup: Setup, out: Path, command: str, pace: Pace) -> State:
    """Run experiments in OUT; finished runs are kept, interrupted ones resume."""
    state = prepare(names, setup, out, command)
    fitting = [name for name in names if name not in state.skipped]
    for name in fitting:
        EXPERIMENTS[name].measure(setup, out / name)
    run_plans(fitting, out, state, pace)
    return state


def run_plans(names: list[str], out: Path, state: State, pace: Pace) -> None:
    """Train and test the runs of experiments whose plans are written."""
    budget = TimeBudget(pace.seconds)
    for name in names:
        plan = out / name / PLAN
        if plan.is_file() and plan.read_text(encoding="utf-8").strip():
            say(f"runs of {name}")
            done = train_plan(plan, out / name, pace.device, pace.at_once, budget.left(), pace.per_process, pace.runner)
            state.left += [f"{name}/{run}" for run in done.left]
            state.failed += [f"{name}/{run}" for run in done.failed]


def _places(setup: Setup) -> dict[str, str]:
    return {source.name: str(source.folder.resolve()) for source in setup.sources}


def _write_plan(name: str, setup: Setup, folder: Path, data: Mapping[str, str]) -> None:
    experiment = EXPERIMENTS[name]
    epochs = QUICK_EPOCHS if setup.quick else experiment.epochs
    seeds = 1 if setup.quick else experiment.seeds
    lines = list(plan_lines(setup, experiment.runs(setup), seeds, epochs, data))
    with new_file(folder / PLAN, force=True) as temporary:
        temporary.write_text("\n".join(lines), encoding="utf-8")
    if lines:
        read_plan(folder / PLAN)  # report a wrong setting before anything starts


def _describe(name: str, setup: Setup, folder: Path, command: str) -> None:
    """Record the command, the runs and their settings files for each dataset."""
    experiment = EXPERIMENTS[name]
    pairs, entries = experiment.beside(setup), list(experiment.runs(setup))
    requests = {
        source.name: {
            "commands": [command],
            "beside": pairs.get(source.name, ""),
            "runs": {
                entry.name: str(settings_file(setup.config, entry) or "") for entry in entries if entry.source == source
            },
        }
        for source in setup.sources
    }
    merge_requests(folder, name, {"quick": setup.quick, "asked": requests})


def merge_requests(folder: Path, name: str, more: Mapping[str, Any]) -> None:
    """Add requests to those in the experiment.json of this folder, dataset by dataset."""
    path = folder / EXPERIMENT
    before: dict[str, Any] = read_experiment(folder) if path.is_file() else {"asked": {}, "quick": False}
    requests = before["asked"]
    for source, request in more["asked"].items():
        known = requests.get(source, {"runs": {}, "commands": []})
        commands = list(dict.fromkeys([*known["commands"], *request["commands"]]))
        beside = request.get("beside") or known.get("beside", "")
        requests[source] = request | {"beside": beside, "runs": known["runs"] | request["runs"], "commands": commands}
    quick = before.get("quick", False) or more["quick"]
    described = {"made_by": f"lightgc2n {__version__}", "experiment": name, "quick": quick, "asked": requests}
    with new_file(path, force=True) as temporary:
        temporary.write_text(json.dumps(described, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def claim_experiments(out: Path, names: Iterable[str]) -> None:
    """Create the folders of experiments, or raise an error for folders that hold other files."""
    ours = any(is_made_by_us(out / name / EXPERIMENT) for name in EXPERIMENTS)
    claim_folder(out, "experiments", ours=ours or _holds_only_data(out))
    for name in names:
        claim_folder(out / name, "an experiment", ours=is_made_by_us(out / name / EXPERIMENT))
        refuse_linked(out / name, FolderKind("experiment", EXPERIMENT, (PLAN,)))


def _holds_only_data(out: Path) -> bool:
    """Return whether a folder holds the generated data of a quick run of an earlier version and nothing else."""
    if not out.is_dir() or {path.name for path in out.iterdir()} != {DATA}:
        return False
    return is_made_by_us(out / DATA / HOMES / MANIFEST)


def require_data(setup: Setup) -> None:
    """Raise an error if no dataset is given."""
    if not setup.sources:
        raise SettingError("no data: give --data DIR, a prepared dataset, or --quick for generated households.")

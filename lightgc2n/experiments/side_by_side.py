"""The runs of a plan, several at once, each in a process of its own.

`python -m lightgc2n.experiments.side_by_side PLAN OUT NAME DEVICE AT_ONCE SECONDS` trains one run; a plan starts this
itself. Floors are counted by the plan's own process, since starting another would take longer.
"""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from lightgc2n import zoo
from lightgc2n.data.dataset import load_dataset
from lightgc2n.errors import LightGC2NError
from lightgc2n.experiments.children import Child, Slice, as_child, run_children
from lightgc2n.experiments.plans import choose_run, read_plan
from lightgc2n.experiments.results import RESULTS, read_results, save_floor, save_results
from lightgc2n.experiments.single import train_run
from lightgc2n.progress import say
from lightgc2n.training.record import epochs_of
from lightgc2n.training.runs import RUN, RunPlan, refuse_another_run

LOGS = "logs"


@dataclass(frozen=True)
class PlanState:
    """How far a plan has come: the names of its runs."""

    finished: list[str]
    left: list[str]
    failed: list[str]


def train_plan(plan: Path, out: Path, device: str = "cpu", at_once: int = 1, seconds: float = math.inf) -> PlanState:
    """Trains and tests every run of a plan in out/NAME; what is finished is left as it is, what was stopped goes on.

    Args:
        at_once: how many runs go side by side; if more than one, they share the cores.
        seconds: after this no run starts, and each stops for now at the end of its epoch.
    """
    runs = read_plan(plan)
    _refuse_other_runs(runs, out)
    unfinished = [name for name in runs if not (out / name / RESULTS).exists()]
    say(f"{len(runs)} runs, {len(runs) - len(unfinished)} of them finished; Ctrl-C stops, the same command goes on")
    failed: list[str] = []

    def ended(child: Child, code: int) -> None:
        if code:
            failed.append(child.name)
        say(_ending(child, code))

    time_slice = Slice(seconds)
    floors = [name for name in unfinished if zoo.ZOO[runs[name].model].is_floor]
    for name in floors:
        if time_slice.left() > 0 and (problem := _count(runs[name], out, name, device)):
            failed.append(name)
            say(problem)
    children = [_child(plan, out, name, device, at_once) for name in unfinished if name not in floors]
    run_children(children, at_once, time_slice, ended)
    finished = [name for name in runs if (out / name / RESULTS).exists()]
    return PlanState(finished, [name for name in runs if name not in {*finished, *failed}], failed)


def train_one(
    plan: Path, out: Path, name: str, device: str = "cpu", seconds: float = math.inf, at_once: int = 1
) -> bool:
    """Trains one run of a plan in out/NAME, and tests it if it has ended; says whether it is finished."""
    run = choose_run(read_plan(plan), name, plan)
    if zoo.ZOO[run.model].is_floor:
        save_floor(run, out / name, device)
        return True
    progress = train_run(run, out / name, device, seconds)
    if progress.ended_by and read_results(out / name) is None:
        save_results(out / name, device, at_once)
    return bool(progress.ended_by)


def _count(run: RunPlan, out: Path, name: str, device: str) -> str:
    """Counts and tests a floor; what went wrong, if something did."""
    try:
        save_floor(run, out / name, device)
    except LightGC2NError as problem:
        said = f"error: {problem}"
        (out / LOGS).mkdir(parents=True, exist_ok=True)
        (out / LOGS / f"{name}.txt").write_text(said + "\n", encoding="utf-8")
        return f"{name} failed: {problem}"
    return ""


def _refuse_other_runs(runs: Mapping[str, RunPlan], out: Path) -> None:
    """Stops before anything is trained when a dataset is missing or a folder holds something else."""
    dataset = cache(load_dataset)
    for name, run in runs.items():
        found = dataset(run.data)
        if run.domain:
            found.domain(run.domain)
        if (out / name / RUN).exists():
            refuse_another_run(out / name, run, found)


def _child(plan: Path, out: Path, name: str, device: str, at_once: int) -> Child:
    words = (plan, out, name, device, at_once)
    return Child(name, out / name, out / LOGS / f"{name}.txt", "lightgc2n.experiments.side_by_side", words)


def _ending(child: Child, code: int) -> str:
    if code != 0:
        return f"{child.name} failed (exit code {code}): {child.last_word()}"
    results = read_results(child.run)
    if results is None:
        return f"{child.name}: stopped for now after {epochs_of(child.run)} epochs"
    values = [f"{what} MRR@20 {100 * value:.2f} %" for what, value in _values(results)]
    return f"{child.name}: {', '.join(values)}; {results['epochs']} epochs in {results['training_seconds']:.0f} s"


def _values(results: dict[str, Any]) -> list[tuple[str, float]]:
    found = [("validation", results["validation"]), ("test", results["metrics"]["MRR@20"])]
    return [(what, value) for what, value in found if value is not None]  # a run may hold no validation targets out


if __name__ == "__main__":
    plan, out, name, device, at_once, seconds = sys.argv[1:]
    as_child(lambda: train_one(Path(plan), Path(out), name, device, float(seconds), int(at_once)))

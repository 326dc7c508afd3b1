"""The runs of a plan, several at once, each in a process of its own.

`python -m lightgc2n.experiments.side_by_side PLAN OUT DEVICE AT_ONCE NAME... SECONDS` trains one run or several, one
after the other; a plan starts this itself. Floors are counted by the plan's own process.
"""

import math
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from lightgc2n import zoo
from lightgc2n.data.dataset import load_dataset
from lightgc2n.devices import forget_peak
from lightgc2n.errors import LightGC2NError
from lightgc2n.experiments.children import Child, Slice, as_child, run_children
from lightgc2n.experiments.plans import choose_run, read_plan
from lightgc2n.experiments.results import RESULTS, read_results, save_floor, save_results
from lightgc2n.experiments.single import train_run
from lightgc2n.progress import say
from lightgc2n.training.record import epochs_of
from lightgc2n.training.runs import RUN, RunPlan, refuse_another_run

LOGS = "logs"
ERROR = "error: "  # how the last line of a run begins that failed


@dataclass(frozen=True)
class PlanState:
    """How far a plan has come: the names of its runs."""

    finished: list[str]
    left: list[str]
    failed: list[str]


def train_plan(
    plan: Path, out: Path, device: str = "cpu", at_once: int = 1, seconds: float = math.inf, together: int = 1
) -> PlanState:
    """Trains and tests every run of a plan in out/NAME; what is finished is left as it is, what was stopped goes on.

    Args:
        at_once: how many runs go side by side; if more than one, they share the cores.
        seconds: after this no run starts, and each stops for now at the end of its epoch.
        together: how many runs one process takes, one after the other: where they are short, starting one takes longer.
    """
    runs = read_plan(plan)
    _refuse_other_runs(runs, out)
    unfinished = [name for name in runs if not (out / name / RESULTS).exists()]
    say(f"{len(runs)} runs, {len(runs) - len(unfinished)} of them finished; Ctrl-C stops, the same command goes on")
    time_slice = Slice(seconds)
    floors = [name for name in unfinished if zoo.ZOO[runs[name].model].is_floor]
    failed = [name for name in floors if time_slice.left() > 0 and not _count(runs[name], out, name, device)]
    trained = [name for name in unfinished if name not in floors]
    crews = [trained[first : first + together] for first in range(0, len(trained), together)]
    children = {_child(plan, out, names, device, at_once): names for names in crews}

    def ended(child: Child, code: int) -> None:
        for name in children[child]:
            say(_ending(out, name, code))
        failed.extend(_failures(out, children[child]) if code else [])

    run_children(children, at_once, time_slice, ended)
    finished = [name for name in runs if (out / name / RESULTS).exists()]
    return PlanState(finished, [name for name in runs if name not in {*finished, *failed}], failed)


def train_several(plan: Path, out: Path, names: Sequence[str], device: str, at_once: int, seconds: float) -> int:
    """Trains runs one after the other while time is left; the exit code of the last that failed."""
    time_slice, code = Slice(seconds), 0
    for name in names:
        left = time_slice.left()
        if left <= 0 and name != names[0]:
            break
        forget_peak(device)
        with _log(out, name).open("a", encoding="utf-8") as log, redirect_stderr(log), redirect_stdout(log):
            try:
                train_one(plan, out, name, device, left, at_once)
            except LightGC2NError as problem:
                say(f"{ERROR}{problem}")
                code = problem.exit_code
            except Exception as problem:  # a mistake of ours: all of it is told, and it stops no other run
                traceback.print_exc()
                say(f"{ERROR}{type(problem).__name__}: {problem}")
                code = 1
    return code


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


def _count(run: RunPlan, out: Path, name: str, device: str) -> bool:
    """Counts and tests a floor; whether that went well."""
    try:
        save_floor(run, out / name, device)
    except LightGC2NError as problem:
        _log(out, name).write_text(f"{ERROR}{problem}\n", encoding="utf-8")
        say(f"{name} failed: {problem}")
        return False
    return True


def _log(out: Path, name: str) -> Path:
    """Where all goes that a run says."""
    (out / LOGS).mkdir(parents=True, exist_ok=True)
    return out / LOGS / f"{name}.txt"


def last_word(out: Path, name: str) -> str:
    """The last line that a run has said."""
    log = out / LOGS / f"{name}.txt"
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.is_file() else []
    return lines[-1] if lines else "it said nothing"


def _failures(out: Path, names: Sequence[str]) -> list[str]:
    """Which runs of a process that failed did: those that say so, or the one at which it was killed."""
    unfinished = [name for name in names if not (out / name / RESULTS).exists()]
    return [name for name in unfinished if last_word(out, name).startswith(ERROR)] or unfinished[:1]


def _refuse_other_runs(runs: Mapping[str, RunPlan], out: Path) -> None:
    """Stops before anything is trained when a dataset is missing or a folder holds something else."""
    dataset = cache(load_dataset)
    for name, run in runs.items():
        found = dataset(run.data)
        if run.domain:
            found.domain(run.domain)
        if (out / name / RUN).exists():
            refuse_another_run(out / name, run, found)


def _child(plan: Path, out: Path, names: Sequence[str], device: str, at_once: int) -> Child:
    words: tuple[str | Path | int, ...] = (plan, out, device, at_once, *names)
    module = "lightgc2n.experiments.side_by_side"
    return Child(names[0], out / names[0], _log(out, names[0]), module, words)


def _ending(out: Path, name: str, code: int) -> str:
    results = read_results(out / name)
    if results is None and code != 0:
        return f"{name} failed (exit code {code}): {last_word(out, name)}"
    if results is None:
        return f"{name}: stopped for now after {epochs_of(out / name)} epochs"
    values = [f"{what} MRR@20 {100 * value:.2f} %" for what, value in _values(results)]
    return f"{name}: {', '.join(values)}; {results['epochs']} epochs in {results['training_seconds']:.0f} s"


def _values(results: dict[str, Any]) -> list[tuple[str, float]]:
    found = [("validation", results["validation"]), ("test", results["metrics"]["MRR@20"])]
    return [(what, value) for what, value in found if value is not None]  # a run may hold no validation targets out


if __name__ == "__main__":
    plan, out, device, at_once, *names, seconds = sys.argv[1:]
    as_child(lambda: sys.exit(train_several(Path(plan), Path(out), names, device, int(at_once), float(seconds))))

"""Train the runs of a plan, several at once, each in a subprocess.

`python -m lightgc2n.experiments.plan_runner PLAN OUT DEVICE AT_ONCE NAME... SECONDS` trains the named runs one after
the other; the plan runner starts this itself. The main process builds the simple baselines.
"""

import math
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightgc2n import zoo
from lightgc2n.devices import reset_peak
from lightgc2n.errors import LightGC2NError
from lightgc2n.experiments.one_run import TEST
from lightgc2n.experiments.plans import choose_run, read_plan
from lightgc2n.experiments.save_results import RESULTS, read_results, save_baseline, save_results
from lightgc2n.experiments.subprocesses import Child, Runner, TimeBudget, as_child, last_line, run_children
from lightgc2n.experiments.summary_files import FIRST_LINES, is_summary, refuse_other_summary
from lightgc2n.files.atomic_writes import claim_folder
from lightgc2n.files.folder_kinds import CLAIM, FolderKind, is_made_by_us, refuse_linked
from lightgc2n.progress import say
from lightgc2n.training.checkpoints import epochs_of
from lightgc2n.training.run import DataCache, train_run
from lightgc2n.training.runs import RUN, RunPlan, refuse_another_run, start_run

LOGS = "logs"
PLAN_LOGS = FolderKind("folder of runs", CLAIM, (f"{LOGS}/*.txt",))
ERROR = "error: "  # prefix of the last log line of a failed run


@dataclass(frozen=True)
class PlanState:
    """The progress of a plan: the names of its runs."""

    finished: list[str]
    left: list[str]
    failed: list[str]


def train_plan(
    plan: Path,
    out: Path,
    device: str = "cpu",
    at_once: int = 1,
    seconds: float = math.inf,
    per_process: int = 1,
    runner: Runner | None = None,
) -> PlanState:
    """Train and test every run of a plan in out/NAME; finished runs are kept, interrupted ones resume.

    Args:
        at_once: how many runs are trained at the same time; they share the cores.
        seconds: time budget; after it no run starts, and running ones pause at the end of their epoch.
        per_process: how many runs one subprocess trains in turn, which saves start-up time where runs are short.
        runner: runs the children elsewhere, one for each run; none: on this machine.
    """
    runs, data = read_plan(plan), DataCache()
    claim_folder(out, "runs of a plan", ours=_holds_only_runs(out))
    refuse_linked(out, PLAN_LOGS)
    refuse_other_summary(out)
    _refuse_other_runs(runs, out, data)
    unfinished = [name for name in runs if not (out / name / RESULTS).exists()]
    say(f"{len(runs)} runs, {len(runs) - len(unfinished)} of them finished; Ctrl-C stops, rerun the command to resume")
    budget = TimeBudget(seconds)
    baselines = [name for name in unfinished if zoo.ZOO[runs[name].model].is_simple and runner is None]
    failed = [name for name in baselines if budget.left() > 0 and not _build(runs[name], out, name, device, data)]
    trained = [name for name in unfinished if name not in baselines]
    batches = [trained[first : first + per_process] for first in range(0, len(trained), per_process)]
    if runner is None:
        children = {_child(plan, out, names, device, at_once): names for names in batches}
    else:
        children = {_child_of_run(runs[name], out, name, device, data): [name] for name in trained}

    def ended(child: Child, code: int) -> None:
        for name in children[child]:
            say(_ending(out, name, code))
        failed.extend(_failures(out, children[child]) if code else [])

    (runner or run_children)(children, at_once, budget, ended)
    finished = [name for name in runs if (out / name / RESULTS).exists()]
    return PlanState(finished, [name for name in runs if name not in {*finished, *failed}], failed)


def train_several(plan: Path, out: Path, names: Sequence[str], device: str, at_once: int, seconds: float) -> int:
    """Train runs one after the other within the time budget; return the exit code of the last that failed."""
    budget, data, code = TimeBudget(seconds), DataCache(), 0
    for name in names:
        left = budget.left()
        if left <= 0 and name != names[0]:
            break
        reset_peak(device)
        with _log(out, name).open("a", encoding="utf-8") as log, redirect_stderr(log), redirect_stdout(log):
            try:
                train_one(plan, out, name, device, left, at_once, data)
            except LightGC2NError as problem:
                say(f"{ERROR}{problem.command_line}")
                code = problem.exit_code
            except Exception as problem:  # a bug: log the traceback, and continue with the other runs
                traceback.print_exc()
                say(f"{ERROR}{type(problem).__name__}: {problem}")
                code = 1
    return code


def train_one(
    plan: Path,
    out: Path,
    name: str,
    device: str = "cpu",
    seconds: float = math.inf,
    at_once: int = 1,
    data: DataCache | None = None,
) -> bool:
    """Train one run of a plan in out/NAME and test it when training has ended; return whether it is finished."""
    run = choose_run(read_plan(plan), name, plan)
    opened = (data or DataCache()).open(run)
    if zoo.ZOO[run.model].is_simple:
        save_baseline(run, out / name, device, opened)
        return True
    progress = train_run(run, out / name, device, seconds, data=opened)
    if progress.ended_by and read_results(out / name) is None:
        save_results(out / name, device, at_once, opened)
    return bool(progress.ended_by)


def _build(run: RunPlan, out: Path, name: str, device: str, data: DataCache) -> bool:
    """Build and test a simple baseline; return whether that succeeded."""
    try:
        save_baseline(run, out / name, device, data.open(run))
    except LightGC2NError as problem:
        _log(out, name).write_text(f"{ERROR}{problem.command_line}\n", encoding="utf-8")
        say(f"{name} failed: {problem.command_line}")
        return False
    return True


def _log(out: Path, name: str) -> Path:
    """The log file of a run."""
    (out / LOGS).mkdir(parents=True, exist_ok=True)
    return out / LOGS / f"{name}.txt"


def last_log_line(out: Path, name: str) -> str:
    """The last line in the log of a run."""
    return last_line(out / LOGS / f"{name}.txt")


def _failures(out: Path, names: Sequence[str]) -> list[str]:
    """Return the failed runs of a failed subprocess: those with an error in their log, or the one it was killed at."""
    unfinished = [name for name in names if not (out / name / RESULTS).exists()]
    return [name for name in unfinished if last_log_line(out, name).startswith(ERROR)] or unfinished[:1]


def _holds_only_runs(out: Path) -> bool:
    """Return whether a folder holds what an earlier version left there, which wrote no claim, and nothing else."""
    held = list(out.iterdir()) if out.is_dir() else []
    if [path.name for path in held] == [LOGS]:  # logs alone may be anybody's
        return False
    return all(
        is_summary(path) if path.name in FIRST_LINES else path.name == LOGS or is_made_by_us(path / RUN)
        for path in held
    )


def _refuse_other_runs(runs: Mapping[str, RunPlan], out: Path, data: DataCache) -> None:
    """Raise an error before training if a dataset is missing or a folder holds another run."""
    for name, run in runs.items():
        dataset = data.load(run.data)
        if run.domain:
            dataset.domain(run.domain)
        if (out / name / RUN).exists():
            refuse_another_run(out / name, run, dataset)


def _child(plan: Path, out: Path, names: Sequence[str], device: str, at_once: int) -> Child:
    arguments: tuple[str | Path | int, ...] = (plan, out, device, at_once, *names)
    module = "lightgc2n.experiments.plan_runner"
    return Child(names[0], out / names[0], _log(out, names[0]), module, arguments)


def _child_of_run(run: RunPlan, out: Path, name: str, device: str, data: DataCache) -> Child:
    """Start the run in its folder, and return the child that trains it: it needs no more than that folder."""
    dataset = data.load(run.data)
    start_run(out / name, run, dataset.only(run.domain) if run.domain else dataset)
    module = "lightgc2n.experiments.one_run"
    return Child(name, out / name, _log(out, name), module, (out / name, TEST, device, 1))


def _ending(out: Path, name: str, code: int) -> str:
    results = read_results(out / name)
    if results is None and code != 0:
        return f"{name} failed (exit code {code}): {last_log_line(out, name)}"
    if results is None:
        return f"{name}: paused after {epochs_of(out / name)} epochs"
    values = [f"{what} MRR@20 {100 * value:.2f} %" for what, value in _values(results)]
    return f"{name}: {', '.join(values)}; {results['epochs']} epochs in {results['training_seconds']:.0f} s"


def _values(results: dict[str, Any]) -> list[tuple[str, float]]:
    values = [("validation", results["validation"]), ("test", results["metrics"]["MRR@20"])]
    return [(what, value) for what, value in values if value is not None]  # there may be no validation targets


if __name__ == "__main__":
    plan, out, device, at_once, *names, seconds = sys.argv[1:]
    as_child(lambda: sys.exit(train_several(Path(plan), Path(out), names, device, int(at_once), float(seconds))))

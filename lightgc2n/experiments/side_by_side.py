"""The runs of a plan, several at once, each in a process of its own."""

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from lightgc2n.data.dataset import load_dataset
from lightgc2n.experiments.plans import choose_run, read_plan
from lightgc2n.experiments.results import RESULTS, read_results, save_results
from lightgc2n.experiments.single import train_run
from lightgc2n.experiments.summary import epochs_of
from lightgc2n.progress import say
from lightgc2n.training.runs import RUN, RunPlan, refuse_another_run

LOGS = "logs"
SECONDS_TO_STOP = 20  # what a child asked to stop may take before it is killed
SECONDS_BETWEEN_NEWS = 30


@dataclass(frozen=True)
class PlanState:
    """How far a plan has come: the names of its runs."""

    finished: list[str]
    left: list[str]
    failed: list[str]


def train_plan(plan: Path, out: Path, device: str = "cpu", at_once: int = 1, seconds: float = math.inf) -> PlanState:
    """Trains and tests every run of a plan in out/NAME; what is finished is left as it is, what was stopped goes on.

    Args:
        at_once: how many runs go side by side; if more than one, each has one thread.
        seconds: after this no run starts, and each stops for now at the end of its epoch.
    """
    until = time.monotonic() + seconds
    runs = read_plan(plan)
    _refuse_other_runs(runs, out)
    unfinished = [name for name in runs if not (out / name / RESULTS).exists()]
    say(f"{len(runs)} runs, {len(runs) - len(unfinished)} of them finished; Ctrl-C stops, the same command goes on")

    def command(name: str) -> list[str]:
        words = ["-m", "lightgc2n", "train", "--plan", plan, "--out", out, "--only", name, "--device", device]
        slice_words = [] if math.isinf(until) else ["--slice", max(1, round(until - time.monotonic()))]
        return [sys.executable, *map(str, [*words, *slice_words])]

    codes = _run_all(unfinished, command, at_once, until, out)
    finished = [name for name in runs if (out / name / RESULTS).exists()]
    failed = [name for name, code in codes.items() if code != 0]
    return PlanState(finished, [name for name in runs if name not in {*finished, *failed}], failed)


def train_one(plan: Path, out: Path, name: str, device: str = "cpu", seconds: float = math.inf) -> bool:
    """Trains one run of a plan in out/NAME, and tests it if it has ended; says whether it is finished."""
    run = choose_run(read_plan(plan), name, plan)
    progress = train_run(run, out / name, device, seconds)
    if progress.ended_by and read_results(out / name) is None:
        save_results(out / name, device)
    return bool(progress.ended_by)


def _refuse_other_runs(runs: Mapping[str, RunPlan], out: Path) -> None:
    """Stops before anything is trained when a dataset is missing or a folder holds something else."""
    dataset = cache(load_dataset)
    for name, run in runs.items():
        found = dataset(run.data)
        if run.domain:
            found.domain(run.domain)
        if (out / name / RUN).exists():
            refuse_another_run(out / name, run, found)


def _run_all(
    names: Iterable[str], command: Callable[[str], list[str]], at_once: int, until: float, out: Path
) -> dict[str, int]:
    """Starts runs as places fall free, and gives the exit code of each that was started."""
    waiting = list(names)
    running: dict[str, subprocess.Popen[bytes]] = {}
    codes: dict[str, int] = {}
    spoke = time.monotonic()
    try:
        while running or (waiting and time.monotonic() < until):
            while waiting and len(running) < at_once and time.monotonic() < until:
                name = waiting.pop(0)
                running[name] = _start(command(name), out / LOGS / f"{name}.txt", alone=at_once == 1)
            for name in [name for name, child in running.items() if child.poll() is not None]:
                codes[name] = running.pop(name).returncode
                say(_ending(name, codes[name], out))
            if running and time.monotonic() - spoke > SECONDS_BETWEEN_NEWS:
                spoke = time.monotonic()
                now = ", ".join(f"{name} (epoch {epochs_of(out / name) + 1})" for name in running)
                say(f"{len(waiting)} runs wait; now {now}")
            time.sleep(0.1)
    finally:
        _stop(running.values())
    return codes


def _start(command: list[str], log: Path, alone: bool) -> "subprocess.Popen[bytes]":
    log.parent.mkdir(parents=True, exist_ok=True)
    # Side by side, threads of one run would only take the cores of another.
    threads = {} if alone else {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with log.open("ab") as file:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=os.environ | threads
        )


def _stop(children: Iterable["subprocess.Popen[bytes]"]) -> None:
    """Asks all to stop, then waits; a run that does not listen is killed, and loses its epoch alone."""
    children = list(children)
    for child in children:
        child.send_signal(signal.SIGTERM)
    for child in children:
        try:
            child.wait(SECONDS_TO_STOP)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _ending(name: str, code: int, out: Path) -> str:
    if code != 0:
        lines = (out / LOGS / f"{name}.txt").read_text(encoding="utf-8", errors="replace").splitlines()
        return f"{name} failed (exit code {code}): {lines[-1] if lines else 'it said nothing'}"
    results = read_results(out / name)
    if results is None:
        return f"{name}: stopped for now after {epochs_of(out / name)} epochs"
    values = [f"{what} MRR@20 {100 * value:.2f} %" for what, value in _values(results)]
    return f"{name}: {', '.join(values)}; {results['epochs']} epochs in {results['training_seconds']:.0f} s"


def _values(results: dict[str, Any]) -> list[tuple[str, float]]:
    found = [("validation", results["validation"]), ("test", results["metrics"]["MRR@20"])]
    return [(what, value) for what, value in found if value is not None]  # a run may hold no validation targets out

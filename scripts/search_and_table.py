"""Search settings for every model with one budget, choose them by validation, then run Table 1 with them.

    python scripts/search_and_table.py SEARCHED --tested DATA... --out OUT [--seconds 540] [--device cuda]

For each model: (1) a search on SEARCHED whose first trial has the published settings; (2) one run until patience with
what the search found, and one with the published settings; (3) the better of the two on validation goes to
OUT/settings/MODEL.toml; (4) the seeds of Table 1 with it, first on SEARCHED. Several models are at work at once; those
named first go first. Rerun to resume, also in slices of --seconds on a borrowed machine. OUT/DATA/MODEL.tgz has the
runs: lightgc2n experiment --unpack OUT/DATA/MODEL.tgz --out RUNS. On a GPU start NVIDIA's MPS first, which lets the
small steps of many processes overlap.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

COMMAND = [sys.executable, "-m", "lightgc2n"]
BY_PAPER = "lightgc2n pi-net psjnet-2 da-gcn tida-gcn nais tgsrec hrnn neumf lightgcn"
OTHERS = "sasrec gru4rec lightgc2n-plus comirec sasrec-gbce disenreason-style gmf-ce gmf mlp"
# Trials of a search that run at the same time; the other models train in turn, in one process.
TRIALS_AT_ONCE = {"tgsrec": 4, "nais": 3, "disenreason-style": 3, "psjnet-2": 3, "hrnn": 2, "pi-net": 2, "tida-gcn": 2}
TO_END, LAST_START = 12, 25  # seconds that a process needs to pause, and in which none is started
FOUND, PUBLISHED, SETTINGS, CHOICES = "found", "published", "settings", "choices"
MOST_FAILURES = 2


@dataclass
class Job:
    """What a model needs next: commands that run one after the other, and how many processes they start."""

    stage: int
    commands: list[list[str]]
    processes: int = 1
    running: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)


@dataclass(frozen=True)
class Plan:
    """Searches and runs of one call."""

    given: argparse.Namespace

    @property
    def experiment(self) -> str:
        return "table1-16" if self.given.width == "fixed" else "table1"

    def next_job(self, model: str) -> Job | None:
        """Return what is still to be done for a model, in the order of the stages; None if nothing is."""
        out = self.given.out
        best = out / "search" / model / "best.toml"
        if not best.is_file():
            return self._search(model)
        _copy(best, out / FOUND / best.with_name(f"{model}.toml").name)
        alike = holds(read(best), read(self.published(model)))
        candidates = {FOUND: out / FOUND} | ({} if alike else {PUBLISHED: self.given.first})
        for stage, (name, settings) in enumerate(candidates.items(), 1):
            if self.finished(out / f"{name}-runs", model) < 1:
                return self._table(stage, out / f"{name}-runs", settings, self.given.searched, model, 1)
        if not (out / CHOICES / f"{model}.json").is_file():
            self._choose(model, list(candidates))
        for stage, data in enumerate([self.given.searched, *self.given.tested], 3):
            wanted = data in self.given.tested
            if wanted and self.finished(out / data.name, model) < self.given.seeds:
                return self._table(stage, out / data.name, out / SETTINGS, data, model, self.given.seeds)
        return None

    def published(self, model: str) -> Path:
        path: Path = self.given.first / f"{model}.toml"
        return path

    def _search(self, model: str) -> Job:
        at_once = TRIALS_AT_ONCE.get(model, 1)
        words = ["--first", str(self.published(model)), "--trials", str(self.given.trials)]
        words += ["--epochs", str(self.given.epochs), "--side-by-side", str(at_once)]
        if self.given.width == "fixed":
            widths = {k: v for k, v in read(self.published(model)).get(model, {}).items() if k.endswith("width")}
            words += [word for name, value in widths.items() for word in ("--set", f"{model}.{name}={value}")]
        folder = self.given.out / "search" / model
        command = [*COMMAND, "tune", str(self.given.searched), "--model", model, *words, "--out", str(folder)]
        return Job(0, [self._timed(command)], at_once)

    def _table(self, stage: int, folder: Path, settings: Path, data: Path, model: str, seeds: int) -> Job:
        pack, results = folder / f"{model}-pack.tgz", folder / f"{model}.tgz"
        folder.mkdir(parents=True, exist_ok=True)
        words = ["--models", model, "--config", str(settings), "--seeds", str(seeds), "--budget", "200"]
        packing = [*COMMAND, "experiment", self.experiment, "--data", str(data), *words, "--pack", str(pack)]
        running = [*COMMAND, "experiment", "--run", str(pack), "--out", str(results), "--side-by-side", str(seeds)]
        return Job(stage, [*([] if pack.is_file() else [packing]), self._timed(running)], seeds)

    def _timed(self, command: list[str]) -> list[str]:
        return [*command, "--device", self.given.device, "--slice"]  # the seconds follow when it starts

    def runs(self, folder: Path, model: str) -> list[Path]:
        """Return the results of the finished runs of a model."""
        return sorted((folder / f"{model}.tgz.work" / self.experiment).glob("*/results.json"))

    def finished(self, folder: Path, model: str) -> int:
        return len(self.runs(folder, model))

    def _choose(self, model: str, candidates: list[str]) -> None:
        """Write the settings with the better validation score, and what was compared."""
        out = self.given.out
        values = {name: _validation(self.runs(out / f"{name}-runs", model)[0]) for name in candidates}
        chosen = max(values, key=lambda name: values[name])
        source = out / FOUND / f"{model}.toml" if chosen == FOUND else self.published(model)
        _copy(source, out / SETTINGS / f"{model}.toml")
        (out / CHOICES).mkdir(exist_ok=True)
        (out / CHOICES / f"{model}.json").write_text(json.dumps({"chosen": chosen, "validation": values}) + "\n")
        if self.given.searched in self.given.tested:  # its first seed is there already
            _copy(out / f"{chosen}-runs" / f"{model}.tgz", out / self.given.searched.name / f"{model}.tgz")


def read(path: Path) -> dict[str, dict[str, object]]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def holds(settings: dict[str, dict[str, object]], others: dict[str, dict[str, object]]) -> bool:
    """Return whether settings have every value of the others."""
    return all(
        settings.get(table, {}).get(name) == value for table, row in others.items() for name, value in row.items()
    )


def _validation(results: Path) -> float:
    return float(json.loads(results.read_text(encoding="utf-8"))["validation"])


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        shutil.copyfile(source, target)


class Workers:
    """The processes of one call, at most so many at a time."""

    def __init__(self, plan: Plan, most: int, seconds: float) -> None:
        self.plan, self.most, self.began, self.until = plan, most, time.monotonic(), time.monotonic() + seconds
        self.jobs: dict[str, Job] = {}
        self.failures: dict[str, int] = {}

    def left(self) -> float:
        return self.until - time.monotonic()

    def run(self, models: list[str]) -> list[str]:
        """Work until everything is done or the time is up; return the models that are not done."""
        while self.left() > 0:
            for model, job in list(self.jobs.items()):
                self._look_after(model, job)
            waiting = self._start(models) if self.left() > LAST_START else []
            if not self.jobs and not waiting:
                break
            time.sleep(0.5)
        self._end()
        return [model for model in models if self.plan.next_job(model) is not None]

    def _start(self, models: list[str]) -> list[str]:
        ready = [(model, self.plan.next_job(model)) for model in models if model not in self.jobs]
        waiting = [(model, job) for model, job in ready if job and self.failures.get(model, 0) < MOST_FAILURES]
        waiting.sort(key=lambda pair: (max(pair[1].stage, 1), -pair[1].processes if pair[1].stage == 0 else 0))
        for model, job in waiting:
            processes = sum(other.processes for other in self.jobs.values())
            if processes + job.processes <= self.most or not self.jobs:
                self.jobs[model] = job
                self._next_command(model, job)
        return [model for model, _ in waiting]

    def _next_command(self, model: str, job: Job) -> None:
        words = job.commands.pop(0)
        words = [*words, str(max(5, int(self.left() - TO_END)))] if words[-1] == "--slice" else words
        log = self.plan.given.out / "logs" / f"{model}-{job.stage}.txt"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
            job.running = subprocess.Popen(words, stdout=file, stderr=file, env=environment, start_new_session=True)

    def _look_after(self, model: str, job: Job) -> None:
        code = job.running.poll() if job.running is not None else 0
        if code is None:
            return
        if code == 0 and job.commands and self.left() > LAST_START:
            self._next_command(model, job)
            return
        del self.jobs[model]
        self.failures[model] = self.failures.get(model, 0) + bool(code)
        passed = time.monotonic() - self.began
        print(f"{passed:6.0f} s  {model}: stage {job.stage} {'done' if code == 0 else 'failed'}", flush=True)

    def _end(self) -> None:
        for job in self.jobs.values():
            if job.running is not None and job.running.poll() is None:
                os.killpg(job.running.pid, signal.SIGTERM)
                job.running.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("searched", type=Path)
    parser.add_argument("--tested", type=Path, nargs="+", default=[])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--first", type=Path, default=Path("configs/published-16"), help="published settings")
    parser.add_argument("--width", choices=["fixed", "free"], default="fixed", help="of the published settings")
    parser.add_argument("--models", nargs="+", default=[*BY_PAPER.split(), *OTHERS.split()])
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=27)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--processes", type=int, default=13, help="at a time")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    left = Workers(Plan(given), given.processes, min(given.seconds, 10**8)).run(given.models)
    print(f"not done: {', '.join(left)}; rerun the command to resume" if left else f"done: see {given.out}")
    if left:
        raise SystemExit(1)


if __name__ == "__main__":
    main()

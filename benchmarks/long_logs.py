"""Memory and time of training on long logs, this code beside another checkout of it.

    python benchmarks/long_logs.py [--against CHECKOUT] [--lengths 85 170 340 680] [--epochs 3] [--threads 1]

The log is generated: 430 accounts with about as many events each as `--lengths` says, most of them repeats, like
check-ins. Every measurement is `lightgc2n train --model lightgc2n-plus` in a process of its own. Given are the wall
seconds of the first epoch and the mean of the later ones, without evaluation (metrics.jsonl); the mean CPU seconds of
the later epochs with evaluation (/proc, so on Linux alone), which other load on the machine disturbs least; the peak
memory of the process; and the validation MRR@20 at its end. The first epoch also pays for the memory that the system
hands out. CHECKOUT is a folder with another version of this repository, for example made by `git worktree add CHECKOUT
COMMIT`. The two versions take turns.
"""

import argparse
import csv
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

ACCOUNTS, ITEMS = 430, 4_000
HABIT, REPEAT = 0.2, 0.4  # chances that an event is what followed last time, or any earlier event; otherwise it is new
START, HOUR = 1_600_000_000, 3_600  # seconds
HERE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Cost:
    """What one training cost."""

    first_epoch: float  # wall seconds
    later_epochs: float  # wall seconds of one
    cpu_seconds: float  # of a later epoch with its evaluation
    peak_mb: float
    validation: float

    def cells(self, other: "Cost | None") -> list[str]:
        """The numbers of a row; behind each time how many times that of the other code is."""
        times = [self.first_epoch, self.later_epochs, self.cpu_seconds]
        shown = [f"{seconds:.1f}" for seconds in times]
        if other is not None:
            theirs = (other.first_epoch, other.later_epochs, other.cpu_seconds)
            shown = [f"{mine:.1f} ({their / mine:.1f} times)" for mine, their in zip(times, theirs, strict=True)]
        return [*shown, f"{self.peak_mb:.0f}", f"{100 * self.validation:.2f}"]


def generated_log(length: int, random: np.random.Generator) -> list[int]:
    """One account's events: habits, repeats of earlier events, and now and then an item by its popularity."""
    popularity = 1 / np.arange(10, ITEMS + 10)
    fresh = random.choice(ITEMS, size=length, p=popularity / popularity.sum())
    # Half of the popularity is local: the popular items of an account's region.
    fresh = np.where(random.random(length) < 0.5, fresh, (fresh + random.integers(ITEMS)) % ITEMS)
    log: list[int] = []
    followed: dict[int, int] = {}  # what came after each item the last time
    for item, lot in zip(fresh.tolist(), random.random(length), strict=True):
        chosen = item
        if log and lot < HABIT and log[-1] in followed:
            chosen = followed[log[-1]]
        elif log and lot < HABIT + REPEAT:
            chosen = log[int(random.integers(len(log)))]
        if log:
            followed[log[-1]] = chosen
        log.append(chosen)
    return log


def write_logs(path: Path, length: int) -> None:
    """A table of events of all accounts; the lengths of their logs vary by a third around `length`."""
    random = np.random.default_rng(0)
    lengths: npt.NDArray[np.int64] = random.integers(round(length * 2 / 3), round(length * 4 / 3) + 1, size=ACCOUNTS)
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(("account", "item", "time"))
        for account, events in enumerate(lengths.tolist()):
            times = START + HOUR * np.cumsum(random.integers(1, 12, size=events))
            for item, moment in zip(generated_log(events, random), times.tolist(), strict=True):
                table.writerow((f"a{account}", f"i{item}", moment))


def command(checkout: Path, threads: int, *words: str) -> subprocess.Popen[bytes]:
    """Start a command of the package in a checkout."""
    environment = os.environ | {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": str(threads)}
    called = [sys.executable, "-m", "lightgc2n", *words]
    return subprocess.Popen(called, env=environment, cwd=checkout, stdout=subprocess.DEVNULL)


def cpu_seconds_of(process: int) -> float:
    """User and system time of a running process so far."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def watch(process: subprocess.Popen[bytes], metrics: Path) -> tuple[list[float], float]:
    """Wait for a training; return its CPU seconds when each epoch was logged, and its peak memory in MB."""
    logged: list[float] = []
    while True:
        rows = metrics.read_text(encoding="utf-8").count("\n") if metrics.exists() else 0
        logged += [cpu_seconds_of(process.pid)] * (rows - len(logged))
        ended, status, used = os.wait4(process.pid, os.WNOHANG)
        if ended:
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                raise SystemExit(f"{process.args!r} ended with {process.returncode}.")
            return logged, used.ru_maxrss * 1024 / 1e6
        time.sleep(0.02)


def measure(checkout: Path, log: Path, epochs: int, threads: int) -> Cost:
    """Import the log and train on it."""
    with tempfile.TemporaryDirectory() as folder:
        data, run = f"{folder}/data", f"{folder}/run"
        if command(checkout, threads, "import", str(log), "--out", data).wait():
            raise SystemExit(f"the import of {log} failed.")
        words = ("train", data, "--out", run, "--model", "lightgc2n-plus", "--device", "cpu", "--epochs", str(epochs))
        metrics = Path(run, "metrics.jsonl")
        logged, peak_mb = watch(command(checkout, threads, *words), metrics)
        rows = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    seconds = [row["seconds"] for row in rows]
    cpu_seconds = statistics.mean(after - before for before, after in itertools.pairwise(logged))
    return Cost(seconds[0], statistics.mean(seconds[1:]), cpu_seconds, peak_mb, rows[-1]["validation"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--against", type=Path, help="another checkout, measured beside this one")
    parser.add_argument("--lengths", type=int, nargs="+", default=[85, 170, 340, 680])
    parser.add_argument("--epochs", type=int, default=3, help="at least 2")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    titles = "events an account | code | s, first epoch | s, later | CPU s, later | peak MB | validation MRR@20"
    print(f"| {titles} |\n|---:|---|---:|---:|---:|---:|---:|", flush=True)
    for length in given.lengths:
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder, "log.csv")
            write_logs(log, length)
            other = measure(given.against.resolve(), log, given.epochs, given.threads) if given.against else None
            mine = measure(HERE, log, given.epochs, given.threads)
        if other is not None:
            print(f"| {length} | the other checkout | {' | '.join(other.cells(None))} |")
        print(f"| {length} | this code | {' | '.join(mine.cells(other))} |", flush=True)


if __name__ == "__main__":
    main()

"""Importing a large log beside reading it with polars alone: seconds and peak memory, as Markdown.

python benchmarks/importing.py
python benchmarks/importing.py --log FILE.csv

Every measurement is a process of its own. The bar: at most 10 times the time of `polars.read_csv`, under 1.5 GiB.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

MOST_TIMES, MOST_GIB = 10.0, 1.5
EVENTS_PER_ACCOUNT = 100

MAKE = """
from pathlib import Path
from lightgc2n.synthetic.households import HouseholdConfig, generate
config = HouseholdConfig(
    accounts={accounts}, events_per_account={per_account}, video_items=40_000, learn_items=10_000, weeks=52
)
generate(config, seed=1, out=Path({path!r}))
"""
SORT = """
import polars as pl
pl.read_csv({path!r}, infer_schema=False).sort("timestamp", maintain_order=True).write_csv({sorted!r})
"""
READ = "import polars as pl; pl.read_csv({path!r})"


@dataclass(frozen=True)
class Cost:
    seconds: float
    gib: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=Path, help="an event table in CSV to measure, instead of a generated one")
    parser.add_argument("--events", type=int, default=10_000_000, help="size of the generated log")
    parser.add_argument("--repeat", type=int, default=3, help="measurements of each kind; the fastest counts")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        logs = {arguments.log.name: arguments.log} if arguments.log else make_logs(Path(scratch), arguments.events)
        print(
            "| log | MB | way | seconds | times polars | peak GiB | within the bar |\n|---|---:|---|---:|---:|---:|---|"
        )
        for name, path in logs.items():
            compare(name, path, Path(scratch) / "prepared", arguments.repeat)


def make_logs(folder: Path, events: int) -> dict[str, Path]:
    """The same log twice: account after account, and in order of time, so that accounts interleave."""
    by_account, by_time = folder / "by_account.csv", folder / "by_time.csv"
    accounts = max(50, events // EVENTS_PER_ACCOUNT)
    measure(MAKE.format(path=str(by_account), accounts=accounts, per_account=EVENTS_PER_ACCOUNT))
    measure(SORT.format(path=str(by_account), sorted=str(by_time)))
    return {"account by account": by_account, "ordered by time": by_time}


def compare(name: str, path: Path, out: Path, repeat: int) -> None:
    importing = f"from lightgc2n.cli.main import app; app(['import', {str(path)!r}, '--out', {str(out)!r}, '--force'])"
    ways = {"polars.read_csv": READ.format(path=str(path)), "lightgc2n import": importing}
    # Side by side: both ways take turns, so that whatever else the machine does slows both.
    costs: dict[str, list[Cost]] = {way: [] for way in ways}
    for _ in range(repeat):
        for way, code in ways.items():
            costs[way].append(measure(code))
    fastest = {way: min(cost.seconds for cost in all_costs) for way, all_costs in costs.items()}
    for way, all_costs in costs.items():
        gib = max(cost.gib for cost in all_costs)
        times = fastest[way] / fastest["polars.read_csv"]
        verdict = "" if way == "polars.read_csv" else "yes" if times <= MOST_TIMES and gib < MOST_GIB else "NO"
        size = path.stat().st_size / 1e6
        print(f"| {name} | {size:.0f} | {way} | {fastest[way]:.2f} | {times:.1f} | {gib:.2f} | {verdict} |", flush=True)


def measure(code: str) -> Cost:
    """What a Python process that runs `code` costs, from its start to its end."""
    start = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert child.stderr is not None
    said = child.stderr.read().decode()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(said)
    return Cost(time.perf_counter() - start, usage.ru_maxrss / 2**20)


if __name__ == "__main__":
    main()

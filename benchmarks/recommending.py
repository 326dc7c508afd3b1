"""How long lists for all accounts take, start-up included, and how much memory: python benchmarks/recommending.py RUN

Each format is written by a process of its own, beside a process that only imports what it needs. The median of several.
With `--against CHECKOUT` another checkout of the project writes each file as well, in turn, and CSV and JSON Lines are
compared byte for byte.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

IMPORT_ONLY = [sys.executable, "-c", "import lightgc2n.recommending.load_run"]
HERE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Cost:
    seconds: float
    cpu: float
    peak: float  # MiB

    def cells(self) -> str:
        return f"{self.seconds:.1f} | {self.cpu:.1f} | {self.peak:.0f}"


def measure(command: list[str], times: int, code: Path = HERE) -> Cost:
    """Seconds, CPU seconds and peak memory of a command with the package of this checkout."""
    # The peak of all children so far only grows, so each measurement runs under a small parent of its own.
    parent = (
        "import resource, subprocess, sys, time\n"
        "started = time.perf_counter()\n"
        "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(time.perf_counter() - started, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)"
    )
    environment = os.environ | {"PYTHONPATH": str(code)}
    found = []
    for _ in range(times):
        done = subprocess.run(
            [sys.executable, "-c", parent, *command],
            check=True,
            capture_output=True,
            text=True,
            env=environment,
            cwd=code,
        )
        found.append([float(number) for number in done.stdout.split()])
    return Cost(*map(statistics.median, zip(*found, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--formats", nargs="+", default=["csv", "parquet", "jsonl"])
    parser.add_argument("--against", type=Path, help="another checkout, measured beside this one")
    given = parser.parse_args()
    print("| what | code | seconds | CPU s | peak MiB | file, MB |\n|---|---|---:|---:|---:|---:|")
    print(f"| imports alone | this | {measure(IMPORT_ONLY, given.times).cells()} | |")
    recommend = [sys.executable, "-m", "lightgc2n", "recommend", str(given.run.resolve()), "--device", "cpu"]
    checkouts = {"this": HERE} | ({"the other checkout": given.against.resolve()} if given.against else {})
    compared: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for ending in given.formats:
            files = {}
            for name, code in checkouts.items():
                files[name] = out = Path(folder) / f"{len(files)}.{ending}"
                cost = measure([*recommend, "--all", "--out", str(out), "--force"], given.times, code)
                print(f"| all accounts to {ending} | {name} | {cost.cells()} | {out.stat().st_size / 1e6:.1f} |")
            if len(files) > 1 and ending != "parquet":
                equal = len({path.read_bytes() for path in files.values()}) == 1
                compared.append(f"{ending}: {'equal bytes' if equal else 'the files DIFFER'}")
    print(f"| one list | this | {measure([*recommend, '--history', '', '--json'], given.times).cells()} | |")
    print("\n".join(compared))


if __name__ == "__main__":
    main()

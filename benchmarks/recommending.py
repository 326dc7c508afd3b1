"""How long lists for all accounts take, start-up included, and how much memory: python benchmarks/recommending.py RUN

Each format is written by a process of its own, beside a process that only imports what it needs. The median of several.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

IMPORT_ONLY = [sys.executable, "-c", "import lightgc2n.recommending.load_run"]


def measure(command: list[str], times: int) -> tuple[float, float]:
    """Seconds and peak memory in MiB of a command."""
    # The peak of all children so far only grows, so each measurement runs under a small parent of its own.
    code = (
        "import resource, subprocess, sys, time\n"
        "started = time.perf_counter()\n"
        "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        "print(time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)"
    )
    found = []
    for _ in range(times):
        done = subprocess.run([sys.executable, "-c", code, *command], check=True, capture_output=True, text=True)
        found.append([float(number) for number in done.stdout.split()])
    seconds, peak = map(statistics.median, zip(*found, strict=True))
    return seconds, peak


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--times", type=int, default=3)
    given = parser.parse_args()
    print("| what | seconds | peak MiB | file, MB |\n|---|---|---|---|")
    seconds, peak = measure(IMPORT_ONLY, given.times)
    print(f"| imports alone | {seconds:.1f} | {peak:.0f} | |")
    recommend = [sys.executable, "-m", "lightgc2n", "recommend", str(given.run), "--device", "cpu"]
    with tempfile.TemporaryDirectory() as folder:
        for ending in ("csv", "parquet", "jsonl"):
            out = Path(folder) / f"recs.{ending}"
            seconds, peak = measure([*recommend, "--all", "--out", str(out), "--force"], given.times)
            print(f"| all accounts to {ending} | {seconds:.1f} | {peak:.0f} | {out.stat().st_size / 1e6:.1f} |")
    seconds, peak = measure([*recommend, "--history", "", "--json"], given.times)
    print(f"| one list | {seconds:.1f} | {peak:.0f} | |")


if __name__ == "__main__":
    main()

"""How long a comparison of all floors takes, and how much memory: python benchmarks/comparing.py DIR [DIR ...]

Each prepared dataset is compared in a process of its own, beside a process that only imports what it needs.
"""

import subprocess
import sys

IMPORT_ONLY = [sys.executable, "-c", "import lightgc2n.experiments.compare"]


def measure(command: list[str]) -> tuple[float, float]:
    """Seconds and peak memory in MiB of a command."""
    # The peak of all children so far only grows, so each measurement runs under a small parent of its own.
    code = (
        "import resource, subprocess, sys, time\n"
        "started = time.perf_counter()\n"
        "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        "print(time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)"
    )
    done = subprocess.run([sys.executable, "-c", code, *command], check=True, capture_output=True, text=True)
    seconds, peak = done.stdout.split()
    return float(seconds), float(peak)


def main() -> None:
    base, base_peak = measure(IMPORT_ONLY)
    print("| what | seconds | peak MiB |\n|---|---|---|")
    print(f"| imports alone | {base:.1f} | {base_peak:.0f} |")
    for folder in sys.argv[1:]:
        seconds, peak = measure([sys.executable, "-m", "lightgc2n", "compare", folder, "--models", "floors"])
        print(f"| all floors on {folder.rstrip('/').rsplit('/', 1)[-1]} | {seconds:.1f} | {peak:.0f} |")


if __name__ == "__main__":
    main()

"""Importing hard files at a size and at twice that size: seconds of the processor and peak memory, as Markdown.

python benchmarks/import_growth.py
python benchmarks/import_growth.py --scale 0.1

Every measurement is a process of its own. The bar: at most 2.5 times the time for twice the file (the start of the
process, measured with a file of one row, is taken off), and under 0.5 GiB.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

MOST_TIMES, MOST_GIB = 2.5, 0.5
LEAST_SECONDS = 0.2  # less is the noise of starting a process


@dataclass(frozen=True)
class Cost:
    seconds: float
    gib: float


@dataclass(frozen=True)
class Hard:
    """A kind of hard file; `write` makes its content for a size."""

    name: str
    file: str
    size: int
    write: Callable[[int], str]


def log(rows: int, title: Callable[[int], str], time: Callable[[int], str] = str) -> str:
    lines = (f"u{n % 991},i{n % 997},{title(n)},{time(n)}\n" for n in range(rows))
    return "user,item,title,timestamp\n" + "".join(lines)


def every(n: int, rows: int, odd: str, usual: str) -> str:
    return odd if n % rows == rows // 2 else usual


def columns(count: int) -> str:
    return ",".join(["user", "item", *(f"{n:x}" for n in range(count))]) + "\n" + ("u,i" + "," * count + "\n") * 10


def keys(count: int) -> str:
    lines = (range(first, min(first + 100, count)) for first in range(0, count, 100))
    return "".join('{"user":"u","item":"i",' + ",".join(f'"k{n}":1' for n in line) + "}\n" for line in lines)


HARD = [
    Hard("empty lines (bytes)", "log.csv", 9_000_000, lambda n: "user,item\nu,i\n" + "\n" * n + "u,j\n"),
    Hard("empty lines, logs (bytes)", "log.tsv", 9_000_000, lambda n: "u\ti j\n" + "\n" * n + "u\tj\n"),
    Hard("columns", "log.csv", 60_000, columns),
    Hard("JSON keys", "log.jsonl", 50_000, keys),
    Hard(
        "rows, four in a million bad",
        "log.csv",
        500_000,
        lambda n: log(n, lambda _: "plain", lambda k: every(k, 250_000, "soon", str(k))),
    ),
    Hard("rows, all bad", "log.csv", 100_000, lambda n: log(n, lambda _: "plain", lambda k: "" if k else "0")),
    Hard(
        "rows, four stray quotes in a million",
        "log.csv",
        500_000,
        lambda n: log(n, lambda k: every(k, 250_000, '"5" disk"', "plain")),
    ),
    Hard("rows, all with a stray quote", "log.csv", 100_000, lambda n: log(n, lambda k: '"5 disk' if k else "plain")),
    Hard("rows, all with a line break", "log.csv", 250_000, lambda n: log(n, lambda _: '"one\ntwo"')),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the usual size")
    parser.add_argument("--repeat", type=int, default=5, help="measurements of each kind; the fastest counts")
    arguments = parser.parse_args()
    print("| file | n | seconds at n | at 2n | times | peak GiB at 2n | within the bar |")
    print("|---|---:|---:|---:|---:|---:|---|")
    with tempfile.TemporaryDirectory() as scratch:
        folders = [Path(scratch) / name for name in ("start", "once", "twice")]
        for folder in folders:
            folder.mkdir()
        (folders[0] / "log.csv").write_text("user,item\nu,i\n")
        for hard in HARD:
            compare(hard, int(hard.size * arguments.scale), folders, arguments.repeat)


def compare(hard: Hard, size: int, folders: Sequence[Path], repeat: int) -> None:
    """Prints the row of one kind of file."""
    (folders[1] / hard.file).write_text(hard.write(size))
    (folders[2] / hard.file).write_text(hard.write(2 * size))
    # Side by side: all take turns, so that whatever else the machine does slows all.
    files = [folders[0] / "log.csv", folders[1] / hard.file, folders[2] / hard.file]
    costs = [[measure(file) for file in files] for _ in range(repeat)]
    start, once, twice = (min(turn[which].seconds for turn in costs) for which in range(3))
    gib = max(turn[2].gib for turn in costs)
    seconds, more = once - start, twice - start
    times = max(more, LEAST_SECONDS) / max(seconds, LEAST_SECONDS)
    verdict = "yes" if times <= MOST_TIMES and gib < MOST_GIB else "NO"
    print(f"| {hard.name} | {size:,} | {seconds:.2f} | {more:.2f} | {times:.1f} | {gib:.2f} | {verdict} |", flush=True)


def measure(path: Path) -> Cost:
    """What a process that imports a file costs."""
    out, said = path.parent / "out", path.parent / "said"
    command = [sys.executable, "-m", "lightgc2n", "import", str(path), "--out", str(out), "--force", "--skip-bad"]
    with said.open("wb") as errors:
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(said.read_text())
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**20)


if __name__ == "__main__":
    main()

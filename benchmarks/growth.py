"""The cost of a training step as accounts grow: python benchmarks/growth.py [--plot docs/research/growth.png]

Catalogue, items an account and batch stay the same, accounts grow; a step passes over the whole graph once. Every size
is measured in a process of its own, on one thread, in CPU seconds, so that others on the machine disturb it little. The
sizes take turns, and the exponent is the slope of a line through the logarithms of all measurements.

Training tells the C library to keep what a step frees (`keep_memory`). Otherwise it hands arrays of 32 MB and more back
to the system, which clears them again at the next use: that time is spent inside the system, and given by itself.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import Training
from lightgc2n.devices import keep_memory

ITEMS, HELD, BATCH = 3_000, 15, 256
MOST = 1.15  # the exponent that still counts as linear
KEPT, GIVEN_BACK = "memory kept, as training does", "memory given back"
# Okabe and Ito's colours, told apart by colour-blind readers too; the markers repeat the distinction in grey.
STYLES = {KEPT: ("#0072B2", "s"), GIVEN_BACK: ("#D55E00", "o")}

Sizes = dict[int, list[dict[str, float]]]  # accounts -> a measurement for each repetition


def generated(accounts: int) -> Training:
    """Accounts of HELD different items each, all items equally likely."""
    random = np.random.default_rng(0)
    logs = random.integers(ITEMS, size=(accounts, HELD), dtype=np.int32)
    while len(again := np.flatnonzero((np.diff(np.sort(logs, axis=1), axis=1) == 0).any(axis=1))):
        logs[again] = random.integers(ITEMS, size=(len(again), HELD), dtype=np.int32)
    return Training(
        accounts=accounts,
        items=ITEMS,
        domains=(Domain("all", 0, ITEMS),),
        sequence_accounts=np.arange(accounts, dtype=np.int32),
        offsets=np.arange(accounts + 1, dtype=np.int64) * HELD,
        events=logs.ravel(),
        times=None,
        targets="all",
    )


def measure(accounts: int, steps: int, way: str) -> dict[str, float]:
    """The medians of some steps in this process; the first one warms up."""
    import torch

    from lightgc2n.data.batches import training_batches
    from lightgc2n.models.lightgc2n.ablations import build_variant
    from lightgc2n.models.lightgc2n.lightgc2n import LightGC2NConfig

    if way == KEPT:
        keep_memory()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    train = generated(accounts)
    model = build_variant("lightgc2n", LightGC2NConfig(), train)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    seconds, system = [], []
    for batch, _ in zip(training_batches(train, BATCH, np.random.default_rng(0)), range(steps + 1), strict=False):
        started, inside = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_stime
        optimizer.zero_grad(set_to_none=True)
        torch.stack(list(model.losses(model.encode(), batch).values())).sum().backward()
        optimizer.step()
        seconds.append(time.process_time() - started)
        system.append(resource.getrusage(resource.RUSAGE_SELF).ru_stime - inside)
    return {
        "seconds": statistics.median(seconds[1:]),
        "system": statistics.median(system[1:]),
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "edges": len(model.graph.held_items) + len(model.graph.step_items),
    }


def in_a_process_of_its_own(accounts: int, steps: int, way: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--only", str(accounts), way, "--steps", str(steps)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def line_through(accounts: npt.ArrayLike, seconds: npt.ArrayLike) -> tuple[float, float]:
    """The exponent p and the constant c of log(seconds) = p · log(accounts) + c, by least squares."""
    slope, constant = np.polyfit(np.log(accounts), np.log(seconds), 1)
    return float(slope), float(constant)


def line_of(found: Sizes) -> tuple[float, float]:
    """`line_through` all measurements."""
    accounts = [size for size, rows in found.items() for _ in rows]
    return line_through(accounts, [row["seconds"] for rows in found.values() for row in rows])


def report(ways: dict[str, Sizes]) -> str:
    lines = [
        "| | accounts | edges | CPU s a step | lowest - highest | of it in the system | µs an account | peak MiB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for way, found in ways.items():
        for accounts, rows in found.items():
            seconds = [row["seconds"] for row in rows]
            middle = statistics.median(seconds)
            cells = [way, f"{accounts:,}", f"{rows[0]['edges']:,}", f"{middle:.3f}"]
            cells += [f"{min(seconds):.3f} - {max(seconds):.3f}"]
            cells += [f"{statistics.median(row['system'] for row in rows):.3f}", f"{1e6 * middle / accounts:.1f}"]
            lines.append("| " + " | ".join([*cells, f"{max(row['peak'] for row in rows):.0f}"]) + " |")
    return "\n".join([*lines, "", *(verdict(way, found) for way, found in ways.items())])


def verdict(way: str, found: Sizes) -> str:
    """The exponent over all sizes, and over the largest two, where the fixed costs of a step weigh least."""
    slope, _ = line_of(found)
    last, _ = line_of({size: found[size] for size in sorted(found)[-2:]})
    words = "at most" if slope <= MOST else "MORE THAN"
    return f"{way}: CPU seconds grow as accounts^{slope:.2f}, {words} {MOST}; over the largest two sizes ^{last:.2f}"


def draw(ways: dict[str, Sizes], path: Path) -> None:
    """The measurements and the lines through them, beside what strictly linear growth would be."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

    figure = Figure(figsize=(7, 4.4), dpi=150, layout="constrained")
    axes: Any = figure.add_subplot()
    for way, found in ways.items():
        (colour, marker), sizes = STYLES[way], sorted(found)
        slope, constant = line_of(found)
        ends = np.array([sizes[0], sizes[-1]])
        label = f"{way}: accounts$^{{{slope:.2f}}}$"
        axes.plot(ends, np.exp(constant) * ends**slope, color=colour, marker=marker, markevery=[], label=label)
        for size, rows in found.items():
            axes.plot(
                [size] * len(rows), [row["seconds"] for row in rows], marker, color=colour, markersize=6, alpha=0.8
            )
    lowest = min(row["seconds"] for row in found[sizes[0]])
    axes.plot(ends, lowest * ends / ends[0], "--", color="#666666", linewidth=1.2, label="linear: accounts$^{1}$")
    axes.set(xscale="log", yscale="log", xlabel="accounts", ylabel="CPU seconds a training step")
    axes.xaxis.set_major_locator(FixedLocator(sizes))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(FixedLocator([0.1, 0.2, 0.5, 1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(f"LightGC²N: {ITEMS:,} items, {HELD} items an account, batch {BATCH}, one thread", fontsize=11)
    axes.legend(frameon=False)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--base", type=int, default=16_000, help="accounts of the smallest size")
    parser.add_argument("--times", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--only", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        print(json.dumps(measure(int(given.only[0]), given.steps, given.only[1])))
        return
    ways: dict[str, Sizes] = {way: {given.base * times: [] for times in given.times} for way in STYLES}
    for _ in range(given.repetitions):
        for accounts in ways[KEPT]:
            for way, found in ways.items():
                found[accounts].append(in_a_process_of_its_own(accounts, given.steps, way))
    print(report(ways))
    if given.plot:
        draw(ways, given.plot)


if __name__ == "__main__":
    main()

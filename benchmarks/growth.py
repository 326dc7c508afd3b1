"""The cost of an epoch as accounts grow: python benchmarks/growth.py [--plot docs/research/growth.png]

Catalogue and items an account stay the same, accounts grow. Every size is measured in a process of its own, on one
thread, in CPU seconds, so that other load on the machine disturbs it little: the median of some steps of the training
loop, after a first one that warms up, times the steps of an epoch. The exponent is the slope of a line through the
logarithms of all measurements.

`python benchmarks/growth.py --epoch 1000000` trains one whole epoch instead, on all cores or with `--device cuda` on a
GPU, and prints its seconds and the peak memory. The log is random: it measures costs, and teaches a model nothing.
"""

import argparse
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import Training
from lightgc2n.devices import device_name, device_of, peak_bytes

if TYPE_CHECKING:
    from lightgc2n.training.loop import Steps

ITEMS, HELD = 20_000, 15
MOST = 1.15  # the exponent that still counts as linear
MIB = 2**20


@dataclass(frozen=True)
class Way:
    """A model and its training settings."""

    model: str
    training: dict[str, Any]
    colour: str  # Okabe and Ito's, told apart by colour-blind readers too; the markers repeat the distinction in grey
    marker: str


WAYS = {
    "lightgc2n": Way("lightgc2n", {}, "#0072B2", "s"),
    "lightgc2n, 256 sequences a step": Way("lightgc2n", {"batch_share": 0.0}, "#D55E00", "o"),
    "lightgc2n-plus": Way("lightgc2n-plus", {}, "#009E73", "^"),
}

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


def prepare(accounts: int, way: str, threads: int, device: str) -> "Steps":
    """The steps of a model on the generated log."""
    import torch

    from lightgc2n import zoo
    from lightgc2n.training.loop import Steps, TrainingConfig

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    train = generated(accounts)
    model = zoo.build(WAYS[way].model, train, {}).train().to(device)
    return Steps(model, train, TrainingConfig(**WAYS[way].training), device)


def measure(accounts: int, steps: int | None, way: str, threads: int = 1, device: str = "cpu") -> dict[str, float]:
    """The cost of an epoch in this process, from so many of its steps; None: the whole epoch is trained."""
    started = time.perf_counter()
    training = prepare(accounts, way, threads, device)
    before = time.perf_counter() - started
    return timed(training, steps, device) | {"seconds before": before}


def timed(training: "Steps", steps: int | None, device: str) -> dict[str, float]:
    """The cost of an epoch, from so many steps after a first one that warms up; None: of the whole epoch."""
    unit = device_of(device)
    cpu: list[float] = []
    wall: list[float] = []
    system: list[float] = []
    for number, batch in enumerate(itertools.islice(training.batches(0), None if steps is None else steps + 1), 1):
        since, inside = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_stime
        moment = time.perf_counter()
        training(batch)
        unit.synchronize()
        wall.append(time.perf_counter() - moment)
        cpu.append(time.process_time() - since)
        system.append(resource.getrusage(resource.RUSAGE_SELF).ru_stime - inside)
        if steps is None and number % 8 == 0:
            print(f"{number} of {len(training)} steps, {sum(wall):.0f} s", file=sys.stderr, flush=True)
    measured = (lambda row: statistics.median(row[1:]) * len(training)) if steps is not None else sum
    found = {"steps": len(training), "rows": training.rows, "peak": peak_bytes(device) / MIB}
    return found | {"seconds": measured(cpu), "wall": measured(wall), "system": measured(system)}


def in_a_process_of_its_own(accounts: int, steps: int, way: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--only", str(accounts), way, "--steps", str(steps)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def whole_epoch(accounts: int, way: str, threads: int, device: str = "cpu") -> str:
    return describe(accounts, way, threads, device, measure(accounts, None, way, threads, device))


def describe(accounts: int, way: str, threads: int, device: str, found: dict[str, float]) -> str:
    place = f"{threads} threads" if device == "cpu" else device_name(device)
    return (
        f"{way}, {accounts:,} accounts, {HELD} events each, {ITEMS:,} items, {place}: one epoch of "
        f"{found['steps']:,} steps of {found['rows']:,} sequences took {found['wall']:.0f} s ({found['seconds']:.0f} "
        f"CPU s, {found['system']:.0f} of them in the system), after {found['seconds before']:.0f} s to build the "
        f"model; peak memory {found['peak'] * MIB / 1e9:.2f} GB"
    )


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
        "| | accounts | steps an epoch | sequences a step | CPU s a step | CPU s an epoch | of it in the system "
        "| ms an account | peak MiB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for way, found in ways.items():
        for accounts, rows in found.items():
            middle = statistics.median(row["seconds"] for row in rows)
            cells = [way, f"{accounts:,}", f"{rows[0]['steps']:,}", f"{rows[0]['rows']:,}"]
            cells += [f"{middle / rows[0]['steps']:.3f}", f"{middle:.0f}"]
            cells += [f"{statistics.median(row['system'] for row in rows):.0f}", f"{1e3 * middle / accounts:.2f}"]
            lines.append("| " + " | ".join([*cells, f"{max(row['peak'] for row in rows):.0f}"]) + " |")
    return "\n".join([*lines, "", *(verdict(way, found) for way, found in ways.items() if len(found) > 1)])


def verdict(way: str, found: Sizes) -> str:
    """The exponent over all sizes, and over the largest two, where the fixed costs of a step weigh least."""
    slope, _ = line_of(found)
    last, _ = line_of({size: found[size] for size in sorted(found)[-2:]})
    words = "at most" if slope <= MOST else "MORE THAN"
    return f"{way}: an epoch grows as accounts^{slope:.2f}, {words} {MOST}; over the largest two sizes ^{last:.2f}"


def draw(ways: dict[str, Sizes], path: Path) -> None:
    """The measurements and the lines through them, beside what strictly linear growth would be."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

    figure = Figure(figsize=(7, 4.4), dpi=150, layout="constrained")
    axes: Any = figure.add_subplot()
    for way, found in ways.items():
        (slope, constant), ends = line_of(found), np.array([min(found), max(found)])
        style = {"color": WAYS[way].colour, "marker": WAYS[way].marker}
        axes.plot(
            ends, np.exp(constant) * ends**slope, markevery=[], label=f"{way}: accounts$^{{{slope:.2f}}}$", **style
        )
        for size, rows in found.items():
            places = [size] * len(rows), [row["seconds"] for row in rows]
            axes.plot(*places, linestyle="none", markersize=6, alpha=0.8, **style)
    every = sorted({size for found in ways.values() for size in found})
    ends, lowest = np.array([every[0], every[-1]]), min(row["seconds"] for row in next(iter(ways.values()))[every[0]])
    axes.plot(ends, lowest * ends / ends[0], "--", color="#666666", linewidth=1.2, label="linear: accounts$^{1}$")
    axes.set(xscale="log", yscale="log", xlabel="accounts", ylabel="CPU seconds an epoch")
    axes.xaxis.set_major_locator(FixedLocator(every))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(f"One epoch: {ITEMS:,} items, {HELD} items an account, one thread", fontsize=11)
    axes.legend(frameon=False)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--accounts", type=int, nargs="+", default=[16_000, 64_000, 256_000, 1_000_000])
    parser.add_argument(
        "--most", type=int, default=256_000, help="accounts of the largest size at 256 sequences a step"
    )
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--epoch", type=int, metavar="ACCOUNTS", help="train one whole epoch")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of --epoch")
    parser.add_argument("--device", default="cpu", help="of --epoch")
    parser.add_argument("--save", type=Path, help="a JSON file that keeps what is measured, and is read first")
    parser.add_argument("--only", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        print(json.dumps(measure(int(given.only[0]), given.steps, given.only[1])))
        return
    if given.epoch:
        print("\n".join(whole_epoch(given.epoch, way, given.threads, given.device) for way in given.ways[:1]))
        return
    ways = measure_all(given.ways, given.accounts, given.most, given.steps, given.repetitions, given.save)
    print(report(ways))
    if given.plot:
        draw(ways, given.plot)


def measure_all(
    names: list[str], sizes: list[int], most: int, steps: int, repetitions: int, save: Path | None
) -> dict[str, Sizes]:
    """All measurements, small sizes first; those that `save` holds already are not repeated."""
    kept: dict[str, dict[str, float]] = json.loads(save.read_text()) if save is not None and save.exists() else {}
    ways: dict[str, Sizes] = {name: {} for name in names}
    for accounts, name, repetition in itertools.product(sorted(sizes), names, range(repetitions)):
        if "batch_share" in WAYS[name].training and accounts > most:
            continue
        key = f"{name}; {accounts}; {steps}; {repetition}"
        if key not in kept:
            kept[key] = in_a_process_of_its_own(accounts, steps, name)
            if save is not None:
                save.write_text(json.dumps(kept, indent=1))
        ways[name].setdefault(accounts, []).append(kept[key])
    return ways


if __name__ == "__main__":
    main()

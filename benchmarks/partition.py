"""One model on several workers, each with a part of the accounts: python benchmarks/partition.py

LightGC²N on generated accounts. Three ways take turns: one process on one thread, several workers on one thread each,
and one process on as many threads as there are workers. Every measurement has processes of its own, and each worker a
core of its own where the machine has so many. Seconds are medians over the steps after the first; of workers, the
slowest counts. Wall seconds need a machine without other work; CPU seconds of one worker are given beside them.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np

ITEMS, HELD = 3_000, 15
HOST = "127.0.0.1"
SECONDS = 600.0
Found = dict[str, float]


def split_of(accounts: int) -> Any:
    """Accounts of HELD events each, all items equally likely, without queries."""
    from lightgc2n.data.dataset import Domain
    from lightgc2n.data.splits import Queries, Split, SplitConfig, Training

    train = Training(
        accounts=accounts,
        items=ITEMS,
        domains=(Domain("all", 0, ITEMS),),
        sequence_accounts=np.arange(accounts, dtype=np.int32),
        offsets=np.arange(accounts + 1, dtype=np.int64) * HELD,
        events=np.random.default_rng(0).integers(ITEMS, size=accounts * HELD, dtype=np.int32),
        times=None,
        targets="all",
    )
    none, longs = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)
    nothing = Queries(none, none, longs, longs, none, longs, none, None)
    return Split(SplitConfig(), train, longs, nothing, nothing)


def measure(accounts: int, steps: int, number: int, count: int, port: int) -> Found:
    """The steps of one process, or of one worker of several."""
    import torch

    from lightgc2n import zoo
    from lightgc2n.data.account_parts import part_of_split
    from lightgc2n.layers.workers import Workers
    from lightgc2n.models.lightgc2n.account_parts import build_part
    from lightgc2n.training.loop import ALONE, TrainingConfig
    from lightgc2n.training.process_group import find_meeting, joined, open_meeting
    from lightgc2n.training.run import new_model
    from lightgc2n.training.worker_steps import PartOfAccounts

    config = TrainingConfig()
    split = split_of(accounts)
    if count == 1:
        return time_steps(new_model("lightgc2n", split, {}, 0), ALONE, split.train, config, steps)
    part = part_of_split(split, number, count)
    del split
    store = open_meeting(HOST, count, SECONDS) if number == 0 else find_meeting(HOST, port, count, SECONDS)
    if number == 0:
        print(store.port, flush=True)
    with joined(number, count, store, "cpu", SECONDS) as workers:
        assert isinstance(workers, Workers)
        torch.manual_seed(0)
        model = build_part("lightgc2n", zoo.model_config("lightgc2n"), part, workers)
        before = sum(workers.bytes.values())
        found = time_steps(model, PartOfAccounts(workers, part), part.train, config, steps)
        return found | {"bytes": (sum(workers.bytes.values()) - before) / (steps + 1)}


def time_steps(model: Any, process: Any, train: Any, config: Any, count: int) -> Found:
    """The medians of some steps; the first one warms up."""
    from lightgc2n.training.loop import Steps

    model.train()
    steps = Steps(model, train, config, "cpu", process)
    process.start_epoch(model, steps.optimizer, 0)
    wall, cpu = [], []
    moment = time.perf_counter(), time.process_time()
    for _, batch in zip(range(count + 1), steps.batches(0), strict=False):
        steps(batch)
        now = time.perf_counter(), time.process_time()
        wall.append(now[0] - moment[0])
        cpu.append(now[1] - moment[1])
        moment = now
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"rows": steps.rows, "wall": statistics.median(wall[1:]), "cpu": statistics.median(cpu[1:]), "peak": peak}


def started(number: int, count: int, threads: int, given: argparse.Namespace, port: int = 0) -> subprocess.Popen[str]:
    cores = sorted(os.sched_getaffinity(0))
    own = cores[number : number + 1] if threads == 1 and count <= len(cores) else cores
    one = [str(number), str(count), str(port)]
    command = [sys.executable, __file__, "--accounts", str(given.accounts), "--steps", str(given.steps), "--only", *one]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": str(threads)},
        preexec_fn=lambda: os.sched_setaffinity(0, own),
    )


def result_of(process: subprocess.Popen[str]) -> Found:
    text = process.communicate()[0]
    if process.returncode:
        raise SystemExit(f"a measurement ended with exit code {process.returncode}")
    found: Found = json.loads(text)
    return found


def of_one_process(threads: int, given: argparse.Namespace) -> list[Found]:
    return [result_of(started(0, 1, threads, given))]


def of_workers(given: argparse.Namespace) -> list[Found]:
    first = started(0, given.workers, 1, given)
    assert first.stdout is not None
    port = int(first.stdout.readline())
    others = [started(number, given.workers, 1, given, port) for number in range(1, given.workers)]
    return [result_of(process) for process in (first, *others)]


def report(ways: dict[str, list[list[Found]]]) -> str:
    lines = [
        "| | s a step | lowest - highest | times faster | CPU s a step of one worker | peak MiB of one worker |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    walls = {way: [max(one["wall"] for one in found) for found in rounds] for way, rounds in ways.items()}
    base = statistics.median(next(iter(walls.values())))
    for way, rounds in ways.items():
        wall = statistics.median(walls[way])
        cpu = statistics.median(max(one["cpu"] for one in found) for found in rounds)
        peak = max(one["peak"] for found in rounds for one in found)
        spread = f"{min(walls[way]):.3f} - {max(walls[way]):.3f}"
        lines.append(f"| {way} | {wall:.3f} | {spread} | {base / wall:.2f} | {cpu:.3f} | {peak:.0f} |")
    exchanged = [one["bytes"] for rounds in ways.values() for found in rounds for one in found if "bytes" in one]
    return "\n".join([*lines, "", f"bytes that a worker hands to all-reduces in a step: {exchanged[0]:,.0f}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accounts", type=int, default=220_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--only", nargs=3, type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        print(json.dumps(measure(given.accounts, given.steps, *given.only)))
        return
    names = (
        "one process, one thread",
        f"{given.workers} workers, one thread each",
        f"one process, {given.workers} threads",
    )
    ways: dict[str, list[list[Found]]] = {name: [] for name in names}
    for _ in range(given.repetitions):
        ways[names[0]].append(of_one_process(1, given))
        ways[names[1]].append(of_workers(given))
        ways[names[2]].append(of_one_process(given.workers, given))
    rows = ways[names[0]][0][0]["rows"]
    print(f"{given.accounts:,} accounts, {ITEMS:,} items, {rows:,} sequences in a step; {os.cpu_count()} cores\n")
    print(report(ways))


if __name__ == "__main__":
    main()

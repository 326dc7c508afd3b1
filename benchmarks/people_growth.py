"""The cost of finding people: python benchmarks/people_growth.py [--accounts 10000 | --data DIR] [--plot FILE.png]

Two questions, on one thread and in CPU seconds, so that others on the machine disturb them little:

- What does an account cost as its history grows? Every event is a session of its own, the most expensive case.
- What do many accounts cost? Households are generated, a finder is learned from them, and all of them are answered; the
  time and the memory for 100,000 are extrapolated from those that were measured, and measured with --accounts 100000.
  With --data DIR the accounts are those of a prepared dataset.
"""

import argparse
import json
import resource
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from lightgc2n.data.dataset import load_dataset
from lightgc2n.data.splits import SplitConfig, split_dataset
from lightgc2n.people.finder import NEW, PeopleFinder
from lightgc2n.people.sessions import HOUR, Logs
from lightgc2n.synthetic.households import HouseholdConfig, generate

LENGTHS = (75, 150, 300, 600, 1200, 2000)
REPEATS, AT_ONCE = 5, 4
WANTED = 100_000


def households(accounts: int) -> Logs:
    with tempfile.TemporaryDirectory() as folder:
        generate(HouseholdConfig(accounts=accounts), seed=0, out=Path(folder) / "homes")
        return training_of(Path(folder) / "homes")


def training_of(data: Path) -> Logs:
    return Logs.of_training(split_dataset(load_dataset(data), SplitConfig()).train)


def by_length(finder: PeopleFinder) -> dict[int, float]:
    """CPU seconds an account, the median of some repeats."""
    random, found = np.random.default_rng(0), {}
    for length in LENGTHS:
        items = random.integers(finder.catalogue, size=AT_ONCE * length, dtype=np.int32)
        times = np.tile(np.arange(length) * 7 * HOUR, AT_ONCE)
        none = np.zeros((finder.catalogue, 0), dtype=np.float32)
        logs = Logs(np.arange(AT_ONCE + 1) * length, items, times, none, finder.gap)
        seconds = []
        for _ in range(REPEATS):
            started = time.process_time()
            list(finder.find_all(logs, np.full(AT_ONCE, NEW)))
            seconds.append((time.process_time() - started) / AT_ONCE)
        found[length] = statistics.median(seconds)
    return found


def by_accounts(training: Logs) -> dict[str, float]:
    """CPU and wall seconds of learning and of all answers, and the peak memory of this process in MB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    begun, started = time.perf_counter(), time.process_time()
    finder = PeopleFinder.learn(training, np.random.default_rng(0))
    learned = time.process_time()
    rows = np.flatnonzero(np.diff(training.offsets) > 0)
    counts = np.bincount([one.count for one in finder.find_all(training.of_accounts(rows), rows)], minlength=6)
    answered = time.process_time()
    return {
        "accounts": len(rows),
        "shared": float(1 - counts[1] / counts.sum()),
        "learning": learned - started,
        "answers": answered - learned,
        "learning and answers, wall s": time.perf_counter() - begun,
        "each, ms": 1000 * (answered - learned) / len(rows),
        "extrapolated to 100,000, s": learned - started + (answered - learned) / len(rows) * WANTED,
        "memory before, MB": before,
        "peak memory, MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def plot(found: dict[int, float], path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5, 3.2), layout="constrained")
    axes.plot(list(found), [1000 * seconds for seconds in found.values()], "o-", color="#0072B2")
    axes.set(xlabel="events of an account, each a session", ylabel="CPU ms an account", xlim=0, ylim=0)
    figure.savefig(path, dpi=120)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--accounts", type=int, default=10_000)
    arguments.add_argument("--data", type=Path, help="accounts of this dataset in place of generated ones")
    arguments.add_argument("--plot", type=Path)
    given = arguments.parse_args()
    many = by_accounts(training_of(given.data) if given.data else households(given.accounts))
    lengths = by_length(PeopleFinder.learn(households(500), np.random.default_rng(0)))
    ratio = lengths[2000] / lengths[300]
    print(json.dumps({"accounts": many, "seconds by events": lengths, "2,000 events to 300": ratio}, indent=1))
    if given.plot:
        plot(lengths, given.plot)


if __name__ == "__main__":
    main()

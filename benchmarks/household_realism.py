"""Generated households beside real logs: the tables of docs/households.md, as Markdown.

python benchmarks/household_realism.py --hvideo FOLDER
"""

import argparse
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from household_people import Array, build_town, describe_people, sitting_purity, sittings, split_by

from lightgc2n.synthetic.households import HouseholdConfig

TOP = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hvideo", type=Path, help="folder with E.tsv, V.tsv and mixed.tsv")
    parser.add_argument("--accounts", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sample", type=int, default=500, help="accounts of two or more people to tell apart")
    options = parser.parse_args()
    town = build_town(HouseholdConfig(accounts=options.accounts), options.seed)
    columns = {"video": describe_logs(town.logs(0)), "learn": describe_logs(town.logs(1))}
    mixed = {"generated": describe_runs(split_by(town.home, town.domain))}
    pure = {"sittings of one person": sitting_purity(town)} | describe_sittings(split_by(town.home, town.time))
    if options.hvideo:
        real = {f"HVIDEO {name}": describe_logs(read_logs(options.hvideo / f"{name}.tsv")) for name in "EV"}
        columns = real | columns
        mixed = {
            "HVIDEO": describe_runs(read_logs(options.hvideo / "mixed.tsv", lambda item: "EV".index(item[0])))
        } | mixed
    print_table("one domain", columns)
    print_table("both domains", mixed)
    print_table("sittings", {"generated": pure})
    print_table("adjusted Rand index over", describe_people(town, options.sample))


def describe_logs(logs: Sequence[Array]) -> dict[str, float]:
    """The figures of one domain."""
    counts = np.unique(np.concatenate(logs), return_counts=True)[1]
    lengths = np.array([len(log) for log in logs])
    neighbours = (lengths - 1).sum()
    recalls = {name: recall(logs, rank) for name, rank in rankers(logs).items()}
    return {
        "accounts": len(logs),
        "items seen": len(counts),
        "events": int(counts.sum()),
        "Gini of item popularity": gini(counts),
        "events of the top 1 % of items": top_share(counts, 0.01),
        "events of the top 10 % of items": top_share(counts, 0.1),
        "repeat rate": 1 - sum(len(np.unique(log)) for log in logs) / counts.sum(),
        "immediate repeats": sum((log[1:] == log[:-1]).sum() for log in logs) / neighbours,
        "repeats two events back": repeats_two_back(logs),
        **{f"log length p{share}": float(np.percentile(lengths, share)) for share in (10, 50, 90)},
        "log length mean": float(lengths.mean()),
        **{f"{name} recall@{TOP}": value for name, value in recalls.items()},
    }


def gini(counts: Array) -> float:
    ordered = np.sort(counts)
    ranks = np.arange(1, len(ordered) + 1)
    return float((2 * ranks - len(ordered) - 1) @ ordered / (len(ordered) * ordered.sum()))


def top_share(counts: Array, share: float) -> float:
    ordered = np.sort(counts)[::-1]
    return float(ordered[: max(1, int(share * len(ordered)))].sum() / ordered.sum())


def repeats_two_back(logs: Sequence[Array]) -> float:
    """Of all repeats the share of the shape A, B, A."""
    two_back = sum(((log[2:] == log[:-2]) & (log[2:] != log[1:-1])).sum() for log in logs)
    return float(two_back / sum(len(log) - len(np.unique(log)) for log in logs))


def rankers(logs: Sequence[Array]) -> dict[str, Callable[[list[int]], list[int]]]:
    """Three simple ways to guess the last event of a log from those before it."""
    popularity: Counter[int] = Counter()
    following: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for log in logs:
        history = log[:-1].tolist()
        popularity.update(history)
        for item, successor in pairwise(history):
            following[item][successor] += 1
    popular = [item for item, _ in popularity.most_common(TOP)]
    return {
        "popularity": lambda history: popular,
        "recency": lambda history: list(dict.fromkeys(history[::-1]))[:TOP],
        "Markov": lambda history: [item for item, _ in following[history[-1]].most_common(TOP)],
    }


def recall(logs: Sequence[Array], rank: Callable[[list[int]], list[int]]) -> float:
    """How often the last event is among the guesses."""
    return float(np.mean([log[-1] in rank(log[:-1].tolist()) for log in logs if len(log) > 1]))


def describe_runs(logs: Sequence[Array]) -> dict[str, float]:
    """How long accounts stay with one domain; a log holds the domain of each event."""
    ends = [np.flatnonzero(np.diff(log, append=-1)) for log in logs]
    lengths = np.concatenate([np.diff(end, prepend=-1) for end in ends])
    switches = sum(len(end) - 1 for end in ends) / sum(len(log) - 1 for log in logs)
    shares = {f"run of one domain p{share}": float(np.percentile(lengths, share)) for share in (10, 50, 90)}
    return {"run of one domain mean": float(lengths.mean()), **shares, "neighbours of different domains": switches}


def describe_sittings(logs: Sequence[Array]) -> dict[str, float]:
    """How many sittings accounts have and how long they are; a log holds the time of each event."""
    begun = np.array([sittings(log)[-1] + 1 for log in logs])
    return {
        "events of a sitting mean": sum(len(log) for log in logs) / float(begun.sum()),
        "sittings of an account mean": float(begun.mean()),
    }


def read_logs(path: Path, meaning: Callable[[str], int] = lambda item: int(item[1:])) -> list[Array]:
    """The logs of a file, each item as the number that `meaning` gives it."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [np.array([meaning(item) for item in line.split("\t")[1].split()]) for line in lines]


def print_table(title: str, columns: dict[str, dict[str, float]]) -> None:
    print(f"| {title} | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}")
    for row in next(iter(columns.values())):
        print(f"| {row} | {' | '.join(shown(column[row]) for column in columns.values())} |")
    print()


def shown(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}" if value < 1 else f"{value:.1f}"


if __name__ == "__main__":
    main()

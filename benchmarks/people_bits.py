"""What four bits a number cost when people are found, beside what another seed of the same finder changes.

python benchmarks/people_bits.py DATA... [--accounts 1000]

DATA are prepared datasets; where it is known who acted, also how right the answers are. Every account is asked about
twice: as one that training had, and its history as that of a stranger.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from lightgc2n.data.dataset import Dataset, load_dataset
from lightgc2n.data.members import Members, load_members
from lightgc2n.data.splits import SplitConfig, ranges, split_dataset
from lightgc2n.experiments.identify import known_people
from lightgc2n.export.write_bundle import in_nibbles
from lightgc2n.metrics.cluster_agreement import measure_people
from lightgc2n.people.finder import People, PeopleFinder
from lightgc2n.people.sessions import Logs
from lightgc2n.recommending.load_bundle import of_nibbles
from lightgc2n.recommending.people_report import by_weight
from lightgc2n.recommending.queries import whole_logs

MEASURES = ("ARI", "accuracy", "exact count")


def rounded(finder: PeopleFinder) -> PeopleFinder:
    """The finder as a bundle of bytes holds it."""
    tables = finder.learned.tables
    tables = replace(tables, vectors=of_nibbles(in_nibbles(tables.vectors)))
    return replace(finder, learned=replace(finder.learned, tables=tables))


def agreement(found: list[People], wanted: list[People]) -> tuple[float, float]:
    """How many counts are the same; and where they are, of those who share how many events have the same person."""
    same = [(one, other) for one, other in zip(found, wanted, strict=True) if one.count == other.count]
    whose = [one.share.argmax(axis=1) == other.share.argmax(axis=1) for one, other in same if one.count > 1]
    return len(same) / len(found), float(np.concatenate([*whose, np.ones(0, dtype=bool)]).mean())


def truth(found: list[People], logs: Logs, places: np.ndarray, members: Members) -> list[float]:
    known = known_people(members, places, logs)
    person = np.concatenate([one.share.argmax(axis=1) for one in found])
    measured = measure_people(person, known.member, logs.account, known.people).columns
    return [float(np.nanmean(measured[name])) for name in MEASURES]


def rows(dataset: Dataset, members: Members | None, most: int) -> Iterator[str]:
    start, stop = whole_logs(dataset)
    asked = np.random.default_rng(0).permutation(np.flatnonzero(stop > start))[:most]
    places, offsets = ranges(start[asked], stop[asked])
    times = None if dataset.times is None else np.asarray(dataset.times[places])
    logs = Logs(offsets, np.asarray(dataset.events[places]), times, np.zeros((len(dataset.items), 0), dtype=np.float32))
    training = Logs.of_training(split_dataset(dataset, SplitConfig()).train)
    floats, other = (PeopleFinder.learn(training, np.random.default_rng(seed)) for seed in (0, 1))
    finders = {"floats": floats, "four bits": rounded(floats), "another seed": other}
    for known in (True, False):
        wanted: list[People] = []
        for form, finder in finders.items():
            found = []
            for account, first, last in zip(asked.tolist(), offsets[:-1], offsets[1:], strict=True):
                history = logs.items[first:last], None if times is None else times[first:last]
                found.append(by_weight(finder.find(*history, row=account if known else None)))
            wanted = wanted or found
            numbers = [*agreement(found, wanted), *(truth(found, logs, places, members) if members else [])]
            cells = [f"{100 * one:.1f} %" for one in numbers[:2]] + [f"{one:.3f}" for one in numbers[2:]]
            yield f"| {dataset.name} | {'known' if known else 'strangers'} | {form} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--accounts", type=int, default=1000)
    given = parser.parse_args()
    print(f"| data | accounts | form | same count | same person | {' | '.join(MEASURES)} |")
    print("|---" * 8 + "|", flush=True)
    for folder in given.data:
        members = load_members(folder) if (folder / "labels").is_dir() else None
        for row in rows(load_dataset(folder), members, given.accounts):
            print(row, flush=True)


if __name__ == "__main__":
    main()

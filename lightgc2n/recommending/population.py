"""A summary of all accounts: how many people share them, and some accounts worth looking at."""

import csv
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lightgc2n.files.atomic_writes import new_file
from lightgc2n.people.clustering import MOST_PEOPLE
from lightgc2n.progress import tracked
from lightgc2n.recommending.recommender import Recommender

MOST_ACCOUNTS = 2000  # counted, spread evenly over all accounts
EXAMPLE_EVENTS = (12, 150)  # of an account that is shown as an example: enough to see, few enough to read
EVENTS_OF_EACH = 3  # of every person of an example, at least
UNCERTAIN = 0.45  # an account with a lower confidence is the example of an uncertain count


@dataclass(frozen=True)
class Example:
    """An account, and how many people it probably has."""

    account: str
    count: int
    confidence: float
    events: int


@dataclass(frozen=True)
class Population:
    """How many people the accounts have, and an example of each count and of an uncertain one."""

    accounts: int  # that were counted
    counts: tuple[int, ...]  # accounts with one person, with two ...
    examples: tuple[Example, ...]

    def as_json(self) -> dict[str, Any]:
        """The summary as plain values."""
        return asdict(self)


def population_of(
    recommender: Recommender, most: int | None = MOST_ACCOUNTS, counted: Callable[[Example], None] | None = None
) -> Population:
    """Count the people of the accounts that have events, or of `most` accounts spread evenly over them.

    The example of a count is the account with the highest confidence among those that are short enough to read.

    Args:
        most: None counts all accounts.
        counted: called with each account.
    """
    dataset = recommender.dataset
    with_events = np.flatnonzero(np.bincount(dataset.sequence_accounts, dataset.lengths, len(dataset.accounts)) > 0)
    chosen = with_events[
        np.linspace(0, len(with_events) - 1, min(most or len(with_events), len(with_events))).astype(np.int64)
    ]
    counts, best = [0] * MOST_PEOPLE, dict[str, Example]()
    for account in tracked("counting people, accounts", [dataset.accounts[index] for index in chosen.tolist()]):
        people = recommender.count_people(account)
        counts[people.count - 1] += 1
        example = Example(account, people.count, people.confidence, len(people.share))
        if counted is not None:
            counted(example)
        each = np.bincount(people.share.argmax(axis=1), minlength=people.count)
        if EXAMPLE_EVENTS[0] <= example.events <= EXAMPLE_EVENTS[1] and each.min() >= EVENTS_OF_EACH:
            kind = "uncertain" if example.confidence < UNCERTAIN else str(example.count)
            if kind not in best or _is_better(example, best[kind]):
                best[kind] = example
    order = [best[kind] for kind in ("3", "2", "4", "1", "5", "uncertain") if kind in best]
    return Population(len(chosen), tuple(counts), tuple(order))


def write_counts(out: Path, counted: Iterable[Example], force: bool = False) -> None:
    """Write the number of people of each account as CSV; the file is written atomically."""
    with new_file(out, force) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("account_id", "people", "confidence", "events"))
        writer.writerows((one.account, one.count, f"{one.confidence:.4f}", one.events) for one in counted)


def _is_better(one: Example, other: Example) -> bool:
    """Whether an example is clearer than another: more confident, or less where both are uncertain."""
    return (one.confidence > other.confidence) is (one.confidence >= UNCERTAIN)

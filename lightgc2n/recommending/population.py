"""A summary of all accounts: how many people share them, and some accounts worth looking at."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lightgc2n.people.clustering import MOST_PEOPLE
from lightgc2n.progress import tracked
from lightgc2n.recommending.recommender import Recommender
from lightgc2n.recommending.write_recommendations import write_rows

MOST_ACCOUNTS = 2000  # counted, spread evenly over all accounts
EXAMPLE_EVENTS = (12, 150)  # of an account that is shown as an example: enough to see, few enough to read
EVENTS_OF_EACH = 3  # of every person of an example, at least
COLUMNS = {"account_id": str, "people": int, "confidence": float, "events": int}
DIGITS, TENTHS = 4, 10
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
    accounts = tracked("counting people, accounts", [dataset.accounts[index] for index in chosen.tolist()])
    for account, people in recommender.people_of_all(accounts):
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


def write_counts(out: Path, counted: Sequence[Example], force: bool = False) -> None:
    """Write the number of people of each account, in the format of the suffix; the file is written atomically."""
    rows = ((one.account, one.count, round(one.confidence, DIGITS), one.events) for one in counted)
    write_rows(out, COLUMNS, rows, force)


def summary_of(counted: Sequence[Example]) -> dict[str, Any]:
    """How many of the accounts are shared, by how many people, and how sure that is; None where there are none."""
    counts, confidence = (np.array([getattr(one, name) for one in counted]) for name in ("count", "confidence"))
    tenths = np.minimum((confidence * TENTHS).astype(np.int64), TENTHS - 1)
    return {
        "events": sum(one.events for one in counted),
        "shared": float((counts > 1).mean()) if counted else None,
        "mean_people": float(counts.mean()) if counted else None,
        "mean_confidence": float(confidence.mean()) if counted else None,
        "accounts_by_confidence": np.bincount(tenths, minlength=TENTHS).tolist(),  # below 10 %, below 20 % ...
    }


def _is_better(one: Example, other: Example) -> bool:
    """Whether an example is clearer than another: more confident, or less where both are uncertain."""
    return (one.confidence > other.confidence) is (one.confidence >= UNCERTAIN)

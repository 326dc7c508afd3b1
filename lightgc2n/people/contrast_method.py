"""Assign the events of many accounts to people with a people finder, and with counts learned from examples.

Shapes: E events, A accounts, F features.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from lightgc2n.data.dataset import Longs
from lightgc2n.people.clustering import MOST_PEOPLE
from lightgc2n.people.count_people import DECAY, chances, decide, fitting_caution, learn_head
from lightgc2n.people.finder import PeopleFinder
from lightgc2n.people.reference_methods import CountEstimate
from lightgc2n.people.sessions import Floats, Logs

Random = np.random.Generator
Features = Callable[[PeopleFinder, Logs], Floats]


@dataclass(frozen=True)
class Examples:
    """Accounts with a known number of people, for methods that need examples."""

    logs: Logs
    people: Longs  # [A]


def by_contrast(logs: Logs, count: Longs | None, random: Random, *, finder: PeopleFinder) -> Longs | CountEstimate:
    """Return the person of each event; without a count, estimate it."""
    people = list(finder.find_all(logs, rows_of(logs), count))
    person = np.concatenate([one.share.argmax(axis=1) for one in people])
    if count is not None:
        return person
    return CountEstimate(person, np.array([one.count for one in people]), np.array([one.chances for one in people]))


def rows_of(logs: Logs) -> Longs:
    """Return the row of each account in the training logs."""
    return np.arange(logs.accounts) if logs.row is None else logs.row


def by_examples(
    logs: Logs,
    count: Longs | None,
    random: Random,
    *,
    finder: PeopleFinder,
    examples: Examples,
    features: Features,
    decay: float = DECAY,
) -> Longs | CountEstimate:
    """Use the same evidence, and a count learned from accounts whose number of people is known."""
    known, people = features(finder, examples.logs), np.minimum(examples.people, MOST_PEOPLE)
    head = learn_head(known, people, decay=decay)
    head = replace(head, caution=fitting_caution(chances(head, known), people))
    likely = chances(head, features(finder, logs))
    number = decide(likely, head.caution)
    person = by_contrast(logs, number, random, finder=finder)
    assert not isinstance(person, CountEstimate)
    return CountEstimate(person, number, likely)


def lengths(finder: PeopleFinder, logs: Logs) -> Floats:
    """Return only the length of each log [A, 2]: logarithms of the numbers of sessions and events."""
    events = np.diff(logs.offsets)
    sessions = np.bincount(logs.account[np.flatnonzero(np.diff(logs.session, prepend=-1))], minlength=logs.accounts)
    return np.log(np.column_stack([sessions, events]))


def evidence_of(finder: PeopleFinder, logs: Logs) -> Floats:
    """Return the features that the finder counts people by [A, F]."""
    return finder.features(logs, rows_of(logs))

"""Who did what, asked of many accounts: evidence by contrast, and one of several ways to count.

Shapes: E events, S sessions, A accounts, F features, K people.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from lightgc2n.data.dataset import Longs
from lightgc2n.people.assigning import assign
from lightgc2n.people.clustering import MOST_PEOPLE
from lightgc2n.people.count_people import DECAY, CountHead, chances, count_features, decide, fitting_caution, learn_head
from lightgc2n.people.count_training import learn_count
from lightgc2n.people.pair_evidence import Learned, account_sessions, evidence, learn
from lightgc2n.people.reference_methods import Told
from lightgc2n.people.session_features import Sessions
from lightgc2n.people.session_points import Floats, Logs

Random = np.random.Generator
Features = Callable[[Floats, Longs, float], Floats]


@dataclass(frozen=True)
class Examples:
    """Accounts whose number of people is known: what some ways to count must be told."""

    logs: Logs
    people: Longs  # [A]


def by_contrast(logs: Logs, count: Longs | None, random: Random) -> Longs | Told:
    """For each event its person; without a count, that is learned from accounts merged anew."""
    training = logs.training or logs
    learned = learn(training, random)
    if count is not None:
        return by_evidence(learned, logs, count)
    sessions = learned.described(training, learned.fold)
    head = learn_count(sessions, learned.contrast, learned.fold, random)
    return by_evidence(learned, logs, head)


def by_examples(
    logs: Logs,
    count: Longs | None,
    random: Random,
    *,
    examples: Examples,
    features: Features = count_features,
    decay: float = DECAY,
) -> Longs | Told:
    """The same evidence, and the count as it is in accounts whose people are known."""
    learned = learn(logs.training or logs, random)
    if count is not None:
        return by_evidence(learned, logs, count)
    known, people = _features(learned, examples.logs, features), np.minimum(examples.people, MOST_PEOPLE)
    head = learn_head(known, people, decay=decay)
    head = replace(head, caution=fitting_caution(chances(head, known), people))
    return by_evidence(learned, logs, head, features)


def lengths(evidence: Floats, size: Longs, again: float) -> Floats:
    """How long a log is, and nothing else: logarithms of sessions and events."""
    return np.log([len(size), size.sum()])


def described(learned: Learned, logs: Logs) -> Sessions:
    row = np.arange(logs.accounts) if logs.row is None else logs.row
    return learned.described(logs, learned.fold[row])


def _features(learned: Learned, logs: Logs, features: Features) -> Floats:
    sessions = described(learned, logs)
    rows = [
        features(evidence(sessions, learned.contrast, places), sessions.size[places], sessions.again(places))
        for _, places in account_sessions(sessions)
    ]
    return np.array(rows)


@dataclass(frozen=True)
class ByEvidence:
    """One account by evidence alone."""

    found: Floats
    size: Longs
    again: float
    describe: Features

    def features(self) -> Floats:
        return self.describe(self.found, self.size, self.again)

    def assign(self, people: int) -> Floats:
        return assign(self.found, self.size, people)


class Seen(Protocol):
    """One account, ready to be asked."""

    def features(self) -> Floats:
        """What its count is told from."""

    def assign(self, people: int) -> Floats:
        """How far each session is each person's [N, K]."""


def ask_all(
    learned: Learned, logs: Logs, see: Callable[[Sessions, Longs, int], Seen], count: Longs | CountHead
) -> Longs | Told:
    """The person of each event, as many an account as are given or as the head counts.

    Args:
        see: an account by all sessions, the places of its own, and its fold.
    """
    sessions, row = described(learned, logs), np.arange(logs.accounts) if logs.row is None else logs.row
    person, number = np.zeros(len(sessions.owner), dtype=np.int64), np.ones(logs.accounts, dtype=np.int64)
    likely = np.tile(np.eye(MOST_PEOPLE)[0], (logs.accounts, 1))
    for owner, places in account_sessions(sessions):
        account = see(sessions, places, int(learned.fold[row[owner]]))
        if isinstance(count, CountHead):
            likely[owner] = chances(count, account.features()[None])[0]
            number[owner] = decide(likely[[owner]], count.caution)[0]
        else:
            number[owner] = count[owner]
        person[places] = account.assign(int(number[owner])).argmax(axis=1)
    events = person[logs.session]
    return Told(events, number, likely) if isinstance(count, CountHead) else events


def by_evidence(
    learned: Learned, logs: Logs, count: Longs | CountHead, features: Features = count_features
) -> Longs | Told:
    """The people that evidence alone finds."""

    def see(sessions: Sessions, places: Longs, fold: int) -> ByEvidence:
        found = evidence(sessions, learned.contrast, places)
        return ByEvidence(found, sessions.size[places], sessions.again(places), features)

    return ask_all(learned, logs, see, count)

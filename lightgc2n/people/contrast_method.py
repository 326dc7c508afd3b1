"""Assign the events of many accounts to people by pairwise evidence, with one of several count estimators.

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
from lightgc2n.people.reference_methods import CountEstimate
from lightgc2n.people.session_features import Sessions
from lightgc2n.people.sessions import Floats, Logs

Random = np.random.Generator
Features = Callable[[Floats, Longs, float], Floats]


@dataclass(frozen=True)
class Examples:
    """Accounts with a known number of people, for methods that need examples."""

    logs: Logs
    people: Longs  # [A]


def by_contrast(logs: Logs, count: Longs | None, random: Random) -> Longs | CountEstimate:
    """Return the person of each event; without a count, estimate it with a model trained on synthetic merges."""
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
) -> Longs | CountEstimate:
    """Use the same evidence, and a count learned from accounts whose number of people is known."""
    learned = learn(logs.training or logs, random)
    if count is not None:
        return by_evidence(learned, logs, count)
    known, people = _features(learned, examples.logs, features), np.minimum(examples.people, MOST_PEOPLE)
    head = learn_head(known, people, decay=decay)
    head = replace(head, caution=fitting_caution(chances(head, known), people))
    return by_evidence(learned, logs, head, features)


def lengths(evidence: Floats, size: Longs, again: float) -> Floats:
    """Return only the length of the log: logarithms of the numbers of sessions and events."""
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
    """View of one account by pairwise evidence alone."""

    evidence: Floats
    size: Longs
    again: float
    describe: Features

    def features(self) -> Floats:
        return self.describe(self.evidence, self.size, self.again)

    def assign(self, people: int) -> Floats:
        return assign(self.evidence, self.size, people)


class AccountView(Protocol):
    """One account, ready for counting and assigning people."""

    def features(self) -> Floats:
        """Return the features that the count is estimated from."""

    def assign(self, people: int) -> Floats:
        """Return the probability that each session belongs to each person [N, K]."""


def assign_all(
    learned: Learned, logs: Logs, view: Callable[[Sessions, Longs, int], AccountView], count: Longs | CountHead
) -> Longs | CountEstimate:
    """Return the person of each event, for given counts or for counts estimated by the head.

    Args:
        view: builds the view of an account from all sessions, the positions of its own, and its fold.
    """
    sessions, row = described(learned, logs), np.arange(logs.accounts) if logs.row is None else logs.row
    person, number = np.zeros(len(sessions.owner), dtype=np.int64), np.ones(logs.accounts, dtype=np.int64)
    likely = np.tile(np.eye(MOST_PEOPLE)[0], (logs.accounts, 1))
    for owner, places in account_sessions(sessions):
        account = view(sessions, places, int(learned.fold[row[owner]]))
        if isinstance(count, CountHead):
            likely[owner] = chances(count, account.features()[None])[0]
            number[owner] = decide(likely[[owner]], count.caution)[0]
        else:
            number[owner] = count[owner]
        person[places] = account.assign(int(number[owner])).argmax(axis=1)
    events = person[logs.session]
    return CountEstimate(events, number, likely) if isinstance(count, CountHead) else events


def by_evidence(
    learned: Learned, logs: Logs, count: Longs | CountHead, features: Features = count_features
) -> Longs | CountEstimate:
    """Assign people by evidence alone."""

    def view(sessions: Sessions, places: Longs, fold: int) -> ByEvidence:
        pairs = evidence(sessions, learned.contrast, places)
        return ByEvidence(pairs, sessions.size[places], sessions.again(places), features)

    return assign_all(learned, logs, view, count)

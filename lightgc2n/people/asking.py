"""Who did what, asked of many accounts: evidence by contrast, and one of several ways to count.

Shapes: E events, S sessions, A accounts, F features, K people.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from lightgc2n.data.dataset import Longs
from lightgc2n.people.assigning import assign
from lightgc2n.people.clustering import MOST_PEOPLE
from lightgc2n.people.counting import DECAY, CountHead, chances, count_features, decide, fitting_caution, learn_head
from lightgc2n.people.describing import Sessions
from lightgc2n.people.evidence import Learned, account_sessions, evidence, learn
from lightgc2n.people.floors import Told
from lightgc2n.people.merging import learn_count
from lightgc2n.people.points import Floats, Logs

Random = np.random.Generator
Features = Callable[[Floats, Longs], Floats]


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
        return assigned(learned, logs, count)
    sessions = learned.described(training, learned.fold)
    head = learn_count(sessions, learned.contrast, learned.fold, random)
    return counted(learned, logs, head, count_features)


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
        return assigned(learned, logs, count)
    known, people = _features(learned, examples.logs, features), np.minimum(examples.people, MOST_PEOPLE)
    head = learn_head(known, people, decay=decay)
    head = replace(head, caution=fitting_caution(chances(head, known), people))
    return counted(learned, logs, head, features)


def lengths(evidence: Floats, size: Longs) -> Floats:
    """How long a log is, and nothing else: logarithms of sessions and events."""
    return np.log([len(size), size.sum()])


def described(learned: Learned, logs: Logs) -> Sessions:
    row = np.arange(logs.accounts) if logs.row is None else logs.row
    return learned.described(logs, learned.fold[row])


def _features(learned: Learned, logs: Logs, features: Features) -> Floats:
    sessions = described(learned, logs)
    rows = [
        features(evidence(sessions, learned.contrast, places), sessions.size[places])
        for _, places in account_sessions(sessions)
    ]
    return np.array(rows)


def assigned(learned: Learned, logs: Logs, count: Longs) -> Longs:
    sessions = described(learned, logs)
    person = np.zeros(len(sessions.owner), dtype=np.int64)
    for account, places in account_sessions(sessions):
        found = evidence(sessions, learned.contrast, places)
        person[places] = assign(found, sessions.size[places], int(count[account])).argmax(axis=1)
    return person[logs.session]


def counted(learned: Learned, logs: Logs, head: CountHead, features: Features) -> Told:
    sessions = described(learned, logs)
    person, count = np.zeros(len(sessions.owner), dtype=np.int64), np.ones(logs.accounts, dtype=np.int64)
    likely = np.tile(np.eye(MOST_PEOPLE)[0], (logs.accounts, 1))
    for account, places in account_sessions(sessions):
        found, size = evidence(sessions, learned.contrast, places), sessions.size[places]
        likely[account] = chances(head, features(found, size)[None])[0]
        count[account] = decide(likely[[account]], head.caution)[0]
        person[places] = assign(found, size, int(count[account])).argmax(axis=1)
    return Told(person[logs.session], count, likely)

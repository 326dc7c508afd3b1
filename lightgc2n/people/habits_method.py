"""Who did what by the mixture of `mixture.py`, asked of many accounts; where evidence alone does better, by that.

Shapes: A accounts, S sessions, F features, K people.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from lightgc2n.data.dataset import Longs
from lightgc2n.metrics.cluster_agreement import adjusted_rand, overlaps
from lightgc2n.people.assigning import assign
from lightgc2n.people.clustering import MOST_PEOPLE
from lightgc2n.people.contrast_method import ask_all, by_evidence
from lightgc2n.people.count_people import (
    OF_EVIDENCE,
    CountHead,
    evidence_features,
    plain_head,
)
from lightgc2n.people.count_training import Merged, head_of, learn_count, merged_anew
from lightgc2n.people.mixture import Account, Mixture
from lightgc2n.people.pair_evidence import Learned, evidence, learn
from lightgc2n.people.reference_methods import Told
from lightgc2n.people.session_features import Sessions
from lightgc2n.people.session_points import Floats, Logs

COMPARED = 400  # merged accounts of 2 to 4 people that decide between the two ways
MOST_SPLIT_BY_MIXTURE = 0.1  # of merged accounts of one person: these are those whose sessions are most alike
Random = np.random.Generator


def by_mixture(logs: Logs, count: Longs | None, random: Random, *, guarded: bool = False) -> Longs | Told:
    """For each event its person by tastes and habits, beside the same evidence; the count from accounts merged anew.

    Args:
        guarded: only where the mixture tells the people of merged accounts apart better than evidence alone does.
    """
    training = logs.training or logs
    learned = learn(training, random)
    sessions = learned.described(training, learned.fold)
    state = random.bit_generator.state  # what evidence alone would go on with
    merged = merged_anew(sessions, learned.contrast, learned.fold, random) if guarded or count is None else None
    unproven = guarded and merged is None
    # From the seed anew: what was drawn until here depends on whether the count is given.
    mixture = None if unproven else Mixture.learn(training, learned, _afresh(random))
    if mixture is None or (guarded and merged is not None and not _mixture_wins(mixture, learned, sessions, merged)):
        random.bit_generator.state = state
        if count is not None:
            return by_evidence(learned, logs, count)
        return by_evidence(learned, logs, learn_count(sessions, learned.contrast, learned.fold, random))
    head = _mixture_head(mixture, learned, sessions, merged) if count is None else count
    return ask_all(learned, logs, partial(_seen, mixture, learned), head)


def _afresh(random: Random) -> Random:
    """A generator that starts where the given one started."""
    seeds = random.bit_generator.seed_seq
    assert isinstance(seeds, np.random.SeedSequence)
    return np.random.default_rng(np.random.SeedSequence(seeds.entropy, spawn_key=seeds.spawn_key))


@dataclass(frozen=True)
class ByMixture:
    """One account by the mixture; every account draws the same, so that one alone is told what it is among others."""

    mixture: Mixture
    account: Account

    def features(self) -> Floats:
        return np.concatenate([evidence_features(self.account.evidence, self.account.size), self.more()])

    def more(self) -> Floats:
        return self.mixture.count_features(self.account, np.random.default_rng(0))

    def assign(self, people: int) -> Floats:
        return self.mixture.assign(self.account, people, np.random.default_rng(0))


def _seen(mixture: Mixture, learned: Learned, sessions: Sessions, places: Longs, fold: int) -> ByMixture:
    found = evidence(sessions, learned.contrast, places)
    return ByMixture(mixture, mixture.account(sessions, found, places, fold))


def _mixture_wins(mixture: Mixture, learned: Learned, sessions: Sessions, merged: Merged) -> bool:
    """Whether it tells the people of accounts merged of 2 to 4 apart better, by the mean adjusted Rand index."""
    gain = []
    chosen = np.flatnonzero((merged.people >= 2) & (merged.people <= 4))[:COMPARED]
    for place in chosen.tolist():
        places, people = merged.places[place], int(merged.people[place])
        owner, size = sessions.owner[places], sessions.size[places]
        one = _seen(mixture, learned, sessions, places, int(learned.fold[owner[0]]))
        ways = one.assign(people), assign(one.account.evidence, size, people)
        one_account, true = np.zeros(int(size.sum()), dtype=np.int64), np.repeat(owner, size)
        tables = [overlaps(one_account, np.repeat(way.argmax(axis=1), size), true) for way in ways]
        mixed, plain = (float(adjusted_rand(table)[0]) for table in tables)
        gain.append(mixed - plain)
    return bool(np.mean(gain) > 0) if gain else False


def _mixture_head(mixture: Mixture, learned: Learned, sessions: Sessions, merged: Merged | None) -> CountHead:
    """The features of the evidence, and what each further person explains, learned from merged accounts."""
    if merged is None:
        return plain_head(OF_EVIDENCE + MOST_PEOPLE - 1)
    features = _merged_features(mixture, learned, sessions, merged)
    return head_of(features, merged.people, MOST_SPLIT_BY_MIXTURE)


def _merged_features(mixture: Mixture, learned: Learned, sessions: Sessions, merged: Merged) -> Floats:
    folds = [int(learned.fold[sessions.owner[places[0]]]) for places in merged.places]  # merged accounts share one
    # One account at a time: the evidence about all their pairs would not fit.
    more = [
        _seen(mixture, learned, sessions, places, fold).more()
        for places, fold in zip(merged.places, folds, strict=True)
    ]
    return np.hstack([merged.features[:, :OF_EVIDENCE], np.array(more)])

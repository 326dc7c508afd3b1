"""Assign events of many accounts by the mixture of `mixture.py`, or by evidence alone where that does better.

Shapes: A accounts, S sessions, F features, K people.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from lightgc2n.data.dataset import Longs
from lightgc2n.metrics.cluster_agreement import adjusted_rand, overlaps
from lightgc2n.people.assigning import assign
from lightgc2n.people.clustering import MOST_PEOPLE
from lightgc2n.people.contrast_method import assign_all, by_evidence
from lightgc2n.people.count_people import (
    OF_EVIDENCE,
    CountHead,
    evidence_features,
    plain_head,
)
from lightgc2n.people.count_training import Merged, head_of, learn_count, merged_anew
from lightgc2n.people.mixture import Account, Mixture
from lightgc2n.people.pair_evidence import Learned, evidence, learn
from lightgc2n.people.reference_methods import CountEstimate
from lightgc2n.people.session_features import Sessions
from lightgc2n.people.sessions import Floats, Logs

COMPARED = 400  # merged accounts of 2 to 4 people that decide between the two methods
MOST_SPLIT_BY_MIXTURE = 0.1  # share of "merges" of one account that may be split; low, as their sessions are similar
Random = np.random.Generator


def by_mixture(logs: Logs, count: Longs | None, random: Random, *, guarded: bool = False) -> Longs | CountEstimate:
    """Return the person of each event by tastes, habits and evidence; the count is learned from merged accounts.

    Args:
        guarded: use the mixture only if it separates the people of merged accounts better than evidence alone.
    """
    training = logs.training or logs
    learned = learn(training, random)
    sessions = learned.described(training, learned.fold)
    state = random.bit_generator.state  # restored if evidence alone is used
    merged = merged_anew(sessions, learned.contrast, learned.fold, random) if guarded or count is None else None
    unproven = guarded and merged is None
    # Restart from the seed: the number of draws so far depends on whether the count is given.
    mixture = None if unproven else Mixture.learn(training, learned, _afresh(random))
    if mixture is None or (guarded and merged is not None and not _mixture_wins(mixture, learned, sessions, merged)):
        random.bit_generator.state = state
        if count is not None:
            return by_evidence(learned, logs, count)
        return by_evidence(learned, logs, learn_count(sessions, learned.contrast, learned.fold, random))
    head = _mixture_head(mixture, learned, sessions, merged) if count is None else count
    return assign_all(learned, logs, partial(_view, mixture, learned), head)


def _afresh(random: Random) -> Random:
    """Return a generator in the initial state of the given one."""
    seeds = random.bit_generator.seed_seq
    assert isinstance(seeds, np.random.SeedSequence)
    return np.random.default_rng(np.random.SeedSequence(seeds.entropy, spawn_key=seeds.spawn_key))


@dataclass(frozen=True)
class ByMixture:
    """View of one account by the mixture; all accounts use the same draws, so they do not affect each other."""

    mixture: Mixture
    account: Account

    def features(self) -> Floats:
        return np.concatenate([evidence_features(self.account.evidence, self.account.size), self.more()])

    def more(self) -> Floats:
        return self.mixture.count_features(self.account, np.random.default_rng(0))

    def assign(self, people: int) -> Floats:
        return self.mixture.assign(self.account, people, np.random.default_rng(0))


def _view(mixture: Mixture, learned: Learned, sessions: Sessions, places: Longs, fold: int) -> ByMixture:
    pairs = evidence(sessions, learned.contrast, places)
    return ByMixture(mixture, mixture.account(sessions, pairs, places, fold))


def _mixture_wins(mixture: Mixture, learned: Learned, sessions: Sessions, merged: Merged) -> bool:
    """Return whether it separates merged accounts of 2 to 4 people better, by the mean adjusted Rand index."""
    gain = []
    chosen = np.flatnonzero((merged.people >= 2) & (merged.people <= 4))[:COMPARED]
    for place in chosen.tolist():
        places, people = merged.places[place], int(merged.people[place])
        owner, size = sessions.owner[places], sessions.size[places]
        one = _view(mixture, learned, sessions, places, int(learned.fold[owner[0]]))
        ways = one.assign(people), assign(one.account.evidence, size, people)
        one_account, true = np.zeros(int(size.sum()), dtype=np.int64), np.repeat(owner, size)
        tables = [overlaps(one_account, np.repeat(way.argmax(axis=1), size), true) for way in ways]
        mixed, plain = (float(adjusted_rand(table)[0]) for table in tables)
        gain.append(mixed - plain)
    return bool(np.mean(gain) > 0) if gain else False


def _mixture_head(mixture: Mixture, learned: Learned, sessions: Sessions, merged: Merged | None) -> CountHead:
    """Train a count head on features of the evidence and the gain of each further person, from merged accounts."""
    if merged is None:
        return plain_head(OF_EVIDENCE + MOST_PEOPLE - 1)
    features = _merged_features(mixture, learned, sessions, merged)
    return head_of(features, merged.people, MOST_SPLIT_BY_MIXTURE)


def _merged_features(mixture: Mixture, learned: Learned, sessions: Sessions, merged: Merged) -> Floats:
    folds = [int(learned.fold[sessions.owner[places[0]]]) for places in merged.places]  # a merge is within one fold
    # One account at a time: the evidence of all pairs would not fit into memory.
    more = [
        _view(mixture, learned, sessions, places, fold).more()
        for places, fold in zip(merged.places, folds, strict=True)
    ]
    return np.hstack([merged.features[:, :OF_EVIDENCE], np.array(more)])

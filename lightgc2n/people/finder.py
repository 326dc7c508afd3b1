"""The people finder: trained once, then estimates for any account how many people share it and who caused each event.

It is trained on logs without member labels. It accepts accounts from training and new ones. A query takes a fixed
number of array operations on the account's own history.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lightgc2n.data.dataset import Ints, Longs
from lightgc2n.errors import DataError
from lightgc2n.people.assigning import assign, assign_others
from lightgc2n.people.clustering import MOST_PEOPLE
from lightgc2n.people.count_people import CountHead, at_most, chances, count_features, decide
from lightgc2n.people.count_training import learn_count
from lightgc2n.people.pair_evidence import Contrast, Learned, evidence, learn, pair_evidence
from lightgc2n.people.session_features import Sessions
from lightgc2n.people.sessions import Floats, Logs, usual_gap

MOST_SESSIONS = 400  # the newest sessions that people are estimated from; the number of pairs grows with the square


@dataclass(frozen=True)
class People:
    """The people behind one account."""

    count: int
    confidence: float  # estimated probability that the count is right
    chances: Floats  # [5] probability of one person, of two ...; they sum to one
    share: Floats  # [E, count] probability that each event belongs to each person; rows sum to one
    session: Longs  # [E] session id of each event, from 0


@dataclass(frozen=True)
class PeopleFinder:
    """The trained models that estimate people."""

    learned: Learned
    head: CountHead
    gap: int | None  # microseconds; a longer pause starts a new session; None: logs without times

    @classmethod
    def learn(cls, training: Logs, random: np.random.Generator) -> "PeopleFinder":
        """Train a finder on logs; they need no item vectors."""
        gap = None if training.times is None else usual_gap(training.times) if training.gap is None else training.gap
        learned = learn(training, random)
        sessions = learned.described(training, learned.fold)
        return cls(learned, learn_count(sessions, learned.contrast, learned.fold, random), gap)

    @property
    def catalogue(self) -> int:
        """The number of items."""
        return self.learned.tables.events.shape[1]

    @cached_property
    def _contrast(self) -> Contrast:
        return self.learned.contrast.in_double()

    def find(
        self, items: Ints | Longs, times: Longs | None, row: int | None = None, count: int | None = None
    ) -> People:
        """Estimate the people of the account with this history.

        Args:
            items: item number of each event, oldest first, as in the training logs.
            times: time of each event in microseconds; None if the training logs had none.
            row: the account's row in the training logs; None for a new account.
            count: the number of people, if known.
        """
        logs = self._history(items, times)
        fold = self.learned.fold[[row]] if row is not None else np.zeros(1, dtype=np.int64)
        sessions = self.learned.described(logs, fold)
        recent = np.arange(len(sessions.owner))[-MOST_SESSIONS:]
        pairs, size = evidence(sessions, self._contrast, recent), sessions.size[recent]
        if count is None:
            features = count_features(pairs, size, sessions.again(recent))
            likely = at_most(chances(self.head, features[None])[0], len(size))
            count = int(decide(likely[None], self.head.caution)[0])
        else:
            likely = np.eye(max(count, MOST_PEOPLE))[count - 1]
        share = self._with_older(sessions, recent, assign(pairs, size, count))
        return People(count, float(likely[count - 1]), likely, share[logs.session], logs.session)

    def sessions_of(self, items: Ints | Longs, times: Longs | None) -> Longs:
        """Return the session id of each event; raise an error for a history that `find` rejects."""
        return self._history(items, times).session

    def _with_older(self, sessions: Sessions, recent: Longs, share: Floats) -> Floats:
        """Return the shares of all sessions; sessions before the recent ones are assigned to the people of these."""
        older = np.arange(recent[0])
        if not len(older):
            return share
        indices = np.repeat(older, len(recent)), np.tile(recent, len(older))
        evidence = pair_evidence(sessions, self._contrast, *indices).reshape(len(older), len(recent))
        return np.vstack([assign_others(evidence, np.sqrt(sessions.size[recent]), share), share])

    def _history(self, items: Ints | Longs, times: Longs | None) -> Logs:
        if not len(items) or items.min() < 0 or items.max() >= self.catalogue:
            raise DataError(f"a history needs events, of items 0 to {self.catalogue - 1:,}.")
        if self.gap is None:
            times = None
        elif times is None or len(times) != len(items) or (np.diff(times) < 0).any():
            raise DataError(
                "a history needs a time for each event, oldest first, because the training logs have times."
            )
        offsets, none = np.array([0, len(items)]), np.zeros((self.catalogue, 0), dtype=np.float32)
        return Logs(offsets, items.astype(np.int32), times, none, self.gap)

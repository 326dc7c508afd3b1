"""Everything that finds people, learned once and then asked about any account: how many there are, and who did what.

A finder learns from logs that say nothing of people. What it is asked about may be one of the accounts it learned from
or one it has never seen. Asking is arithmetic of a fixed number of steps on the account's own history.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lightgc2n.data.dataset import Ints, Longs
from lightgc2n.errors import DataError
from lightgc2n.people.assigning import assign, assign_others
from lightgc2n.people.clustering import MOST_PEOPLE
from lightgc2n.people.contrast import Contrast
from lightgc2n.people.count_people import CountHead, at_most, chances, count_features, decide
from lightgc2n.people.count_training import learn_count
from lightgc2n.people.pair_evidence import Learned, evidence, learn, pair_evidence
from lightgc2n.people.session_features import Sessions
from lightgc2n.people.session_points import Floats, Logs
from lightgc2n.people.sessions import usual_gap

MOST_SESSIONS = 400  # that people are found in, the newest; pairs grow with the square


@dataclass(frozen=True)
class People:
    """The people behind one account."""

    count: int
    confidence: float  # the chance that the count is right
    chances: Floats  # [5] of one person, of two ...; they sum to one
    share: Floats  # [E, count] how likely each event is each person's; rows sum to one
    session: Longs  # [E] which events were taken to be one person's from the start, numbered from 0


@dataclass(frozen=True)
class PeopleFinder:
    """What was learned, ready to be asked."""

    learned: Learned
    head: CountHead
    gap: int | None  # microseconds; a longer pause begins a new session; None: logs without times

    @classmethod
    def learn(cls, training: Logs, random: np.random.Generator) -> "PeopleFinder":
        """A finder for accounts like those of the training logs, which need no vectors of their own."""
        gap = None if training.times is None else usual_gap(training.times) if training.gap is None else training.gap
        learned = learn(training, random)
        sessions = learned.described(training, learned.fold)
        return cls(learned, learn_count(sessions, learned.contrast, learned.fold, random), gap)

    @property
    def catalogue(self) -> int:
        """How many items there are."""
        return self.learned.tables.events.shape[1]

    @cached_property
    def _contrast(self) -> Contrast:
        return self.learned.contrast.in_double()

    def find(
        self, items: Ints | Longs, times: Longs | None, row: int | None = None, count: int | None = None
    ) -> People:
        """The people behind the account with this history.

        Args:
            items: of each event, oldest first, numbered as in the training logs.
            times: of each event in microseconds; left out if the training logs had none.
            row: the account's row in the training logs; None for an account that is not among them.
            count: how many people there are, where that is known.
        """
        logs = self._history(items, times)
        fold = self.learned.fold[[row]] if row is not None else np.zeros(1, dtype=np.int64)
        sessions = self.learned.described(logs, fold)
        recent = np.arange(len(sessions.owner))[-MOST_SESSIONS:]
        found, size = evidence(sessions, self._contrast, recent), sessions.size[recent]
        if count is None:
            features = count_features(found, size, sessions.again(recent))
            likely = at_most(chances(self.head, features[None])[0], len(size))
            count = int(decide(likely[None], self.head.caution)[0])
        else:
            likely = np.eye(max(count, MOST_PEOPLE))[count - 1]
        share = self._with_older(sessions, recent, assign(found, size, count))
        return People(count, float(likely[count - 1]), likely, share[logs.session], logs.session)

    def sessions_of(self, items: Ints | Longs, times: Longs | None) -> Longs:
        """For each event of a history the number of its session; a history that `find` refuses is refused here too."""
        return self._history(items, times).session

    def _with_older(self, sessions: Sessions, recent: Longs, share: Floats) -> Floats:
        """The shares of all sessions, those before the recent ones being given to the people found in these."""
        older = np.arange(recent[0])
        if not len(older):
            return share
        pairs = np.repeat(older, len(recent)), np.tile(recent, len(older))
        found = pair_evidence(sessions, self._contrast, *pairs).reshape(len(older), len(recent))
        return np.vstack([assign_others(found, np.sqrt(sessions.size[recent]), share), share])

    def _history(self, items: Ints | Longs, times: Longs | None) -> Logs:
        if not len(items) or items.min() < 0 or items.max() >= self.catalogue:
            raise DataError(f"a history needs events, of items 0 to {self.catalogue - 1:,}.")
        if self.gap is None:
            times = None
        elif times is None or len(times) != len(items) or (np.diff(times) < 0).any():
            raise DataError("a history needs a time for each event, oldest first: so had the logs learned from.")
        offsets, none = np.array([0, len(items)]), np.zeros((self.catalogue, 0), dtype=np.float32)
        return Logs(offsets, items.astype(np.int32), times, none, self.gap)

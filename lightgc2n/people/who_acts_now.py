"""Predict who acts next: estimate people from the events before a cut, then update with each later event.

Within a session, its earlier events decide. When a session starts, recent activity and the hour of the day decide. Only
the time of the query itself is used, and nothing after it.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Ints, Longs
from lightgc2n.data.split_types import ranges
from lightgc2n.people.assigning import assign_others
from lightgc2n.people.finder import MOST_SESSIONS, People, PeopleFinder
from lightgc2n.people.pair_evidence import pair_evidence
from lightgc2n.people.sessions import DAY, Floats, Logs, has_hours, session_numbers

HALF_LIFE = 10.0  # days; decay of activity


@dataclass(frozen=True)
class Followed:
    """The people of an account, and the assignment of sessions after each event from the cut on."""

    known: int  # events before the cut
    people: People
    session: Longs  # [E] of every event
    times: Longs  # [E]
    session_shares: Floats  # [E - known, K] probability that the current session is each person's, after each event

    def going_on(self, place: int) -> bool:
        """Return whether the event at `place` is in the same session as the one before it."""
        return place > 0 and bool(self.session[place] == self.session[place - 1])

    def shares(self, place: int) -> Floats:
        """Return the probability that each event before `place` belongs to each person [place, K], as known then."""
        later = np.arange(self.known, place)
        # The newest event of a session before the query determines the estimate for the session.
        newest = np.searchsorted(self.session[:place], self.session[later], side="right") - 1
        return np.vstack([self.people.share, self.session_shares[newest - self.known]])

    def chances(self, place: int) -> Floats:
        """Return the probability that each person acts at `place` [K]."""
        share = self.shares(place)
        if self.going_on(place):
            return share[-1]
        ago = (self.times[place] - self.times[:place]) / DAY
        weight = 0.5 ** (ago / HALF_LIFE)
        if has_hours(self.times):
            weight = weight * np.exp(np.cos(2 * np.pi * ago))  # the same hour of the day counts most
        recent = weight @ share + 1e-9
        return recent / recent.sum()


def follow(
    finder: PeopleFinder, items: Ints | Longs, times: Longs, known: int, row: int | None, count: int | None = None
) -> Followed:
    """Estimate the people from the first `known` events of an account, at least one, and follow the others.

    Args:
        row, count: as for `PeopleFinder.find`.
    """
    people = finder.find(items[:known], times[:known], row, count)
    session = session_numbers(np.array([0, len(items)]), times, finder.gap)
    shares = (
        np.ones((len(items) - known, 1))
        if people.count == 1
        else _session_shares(finder, items, times, session, people, row)
    )
    return Followed(known, people, session, times, shares)


def _session_shares(
    finder: PeopleFinder, items: Ints | Longs, times: Longs, session: Longs, people: People, row: int | None
) -> Floats:
    """Return one row per event from the cut on: whose the session is, given its events so far."""
    known = len(people.session)
    later = np.arange(known, len(items))
    begun = np.maximum(np.searchsorted(session, session[later]), known)
    # Each prefix of a session is described as a session of its own.
    places, bounds = ranges(begun, later + 1)
    unit = np.concatenate([people.session, people.session[-1] + 1 + np.repeat(np.arange(len(later)), np.diff(bounds))])
    shown = np.concatenate([np.arange(known), places])
    offsets, none = np.array([0, len(shown)]), np.zeros((finder.catalogue, 0), dtype=np.float32)
    logs = Logs(offsets, np.asarray(items[shown], dtype=np.int32), times[shown], none, finder.gap, units=unit)
    fold = finder.learned.fold[[row]] if row is not None else np.zeros(1, dtype=np.int64)
    sessions = finder.learned.described(logs, fold)
    number = int(people.session[-1]) + 1
    recent = np.arange(number)[-MOST_SESSIONS:]
    pairs = np.repeat(number + np.arange(len(later)), len(recent)), np.tile(recent, len(later))
    evidence = pair_evidence(sessions, finder.learned.contrast, *pairs).reshape(len(later), len(recent))
    share = people.share[sessions.first[recent]]
    return assign_others(evidence, np.sqrt(sessions.size[recent]), share)


def events_of(share: Floats) -> list[npt.NDArray[np.int64]]:
    """Return the positions of the events for which each person is the most likely one."""
    owner = share.argmax(axis=1)
    return [np.flatnonzero(owner == person) for person in range(share.shape[1])]

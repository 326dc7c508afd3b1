"""Who acts now: people found in what came before a cut, then followed event by event.

What came earlier in the same session decides; when a session begins, how active each person was of late, and at this
hour. Nothing that happens at a question or after it is looked at, except its time: somebody has just come.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Ints, Longs
from lightgc2n.data.split_types import ranges
from lightgc2n.people.assigning import assign_others
from lightgc2n.people.finder import MOST_SESSIONS, People, PeopleFinder
from lightgc2n.people.pair_evidence import pair_evidence
from lightgc2n.people.session_points import Floats, Logs
from lightgc2n.people.sessions import DAY, has_hours, session_numbers

HALF_LIFE = 10.0  # days; how fast activity is forgotten


@dataclass(frozen=True)
class Followed:
    """The people of an account, and what was known of them at each event from the cut on."""

    known: int  # events before the cut
    found: People
    session: Longs  # [E] of every event
    times: Longs  # [E]
    told: Floats  # [E - known, K] whose the session so far is, right after each event from the cut on

    def going_on(self, place: int) -> bool:
        """Whether the event at `place` is of the same session as the one before it."""
        return place > 0 and bool(self.session[place] == self.session[place - 1])

    def shares(self, place: int) -> Floats:
        """How likely each event before `place` is each person's [place, K], as known then."""
        later = np.arange(self.known, place)
        # What is said of a session is what its newest event before the question says.
        newest = np.searchsorted(self.session[:place], self.session[later], side="right") - 1
        return np.vstack([self.found.share, self.told[newest - self.known]])

    def chances(self, place: int) -> Floats:
        """How likely it is that each person acts at `place` [K]."""
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
    """The people found in the first `known` events of an account, at least one, and followed through the others.

    Args:
        row, count: as for `PeopleFinder.find`.
    """
    found = finder.find(items[:known], times[:known], row, count)
    session = session_numbers(np.array([0, len(items)]), times, finder.gap)
    told = np.ones((len(items) - known, 1)) if found.count == 1 else _told(finder, items, times, session, found, row)
    return Followed(known, found, session, times, told)


def _told(
    finder: PeopleFinder, items: Ints | Longs, times: Longs, session: Longs, found: People, row: int | None
) -> Floats:
    """Whose each session from the cut on is, as far as it has come with each event: one row an event."""
    known = len(found.session)
    later = np.arange(known, len(items))
    begun = np.maximum(np.searchsorted(session, session[later]), known)
    # Every beginning of a session is described as if it were a session of its own.
    places, bounds = ranges(begun, later + 1)
    unit = np.concatenate([found.session, found.session[-1] + 1 + np.repeat(np.arange(len(later)), np.diff(bounds))])
    shown = np.concatenate([np.arange(known), places])
    offsets, none = np.array([0, len(shown)]), np.zeros((finder.catalogue, 0), dtype=np.float32)
    logs = Logs(offsets, np.asarray(items[shown], dtype=np.int32), times[shown], none, finder.gap, units=unit)
    fold = finder.learned.fold[[row]] if row is not None else np.zeros(1, dtype=np.int64)
    sessions = finder.learned.described(logs, fold)
    number = int(found.session[-1]) + 1
    recent = np.arange(number)[-MOST_SESSIONS:]
    pairs = np.repeat(number + np.arange(len(later)), len(recent)), np.tile(recent, len(later))
    evidence = pair_evidence(sessions, finder.learned.contrast, *pairs).reshape(len(later), len(recent))
    share = found.share[sessions.first[recent]]
    return assign_others(evidence, np.sqrt(sessions.size[recent]), share)


def events_of(share: Floats) -> list[npt.NDArray[np.int64]]:
    """The places of the events that are each person's more than anybody else's."""
    owner = share.argmax(axis=1)
    return [np.flatnonzero(owner == person) for person in range(share.shape[1])]

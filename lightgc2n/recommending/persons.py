"""Lists for one who asks: an account, a history, one of the people behind it, or all of them together.

Whoever is found has a letter for a name, A being the one with most events. To the model each of them is a stranger with
these events alone.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from string import ascii_uppercase
from typing import Any

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Longs
from lightgc2n.data.splits import UNSEEN, Queries
from lightgc2n.errors import HISTORY, DataError, SettingError, option
from lightgc2n.people.finder import People, PeopleFinder
from lightgc2n.people.sessions import newest_sessions
from lightgc2n.recommending.answering import Answering, Flags, Wish
from lightgc2n.recommending.answers import Recommendations
from lightgc2n.recommending.history_times import Times, read_times
from lightgc2n.recommending.people import AccountPeople, History, by_weight, tell_people
from lightgc2n.recommending.together import best_for_all

Scores = npt.NDArray[np.floating[Any]]
MOST_SESSIONS = 300  # that people are found in, the newest; the work grows with their square
PERSON_OR_ALL = (
    f"a list is for one person ({option('--person', 'person=')}) or for all ({option('--together', 'together=True')}): "
    f"leave one of them out."
)
ASSUMED = "one person is assumed: too few logs were there to learn how people are told apart"


@dataclass(frozen=True)
class Asked:
    """Who wants a list, and the histories that it is made from: one of them, or for all together one a person."""

    name: str | None
    queries: Queries
    notes: tuple[str, ...]
    fold_in: bool
    together: bool = False


class AnsweringForPeople(Answering):
    """Lists for accounts and histories, and for the people behind them."""

    _learned: Flags  # which items come first in every list: those that training has shown

    @property
    @abstractmethod
    def _finder(self) -> PeopleFinder:
        """What finds people; refused where there is none."""

    @abstractmethod
    def _scores_of_people(self, queries: Queries, wish: Wish) -> Scores:
        """The score of each item with each person [P, M]; minus infinity for what may not be listed."""

    def recommend(
        self,
        account: str | None = None,
        history: Sequence[str] | None = None,
        *,
        k: int = 20,
        exclude_seen: bool = False,
        allow: Iterable[str] | None = None,
        deny: Iterable[str] | None = None,
        domain: str | None = None,
        times: Times | None = None,
        person: str | None = None,
        together: bool = False,
    ) -> Recommendations:
        """The k best next items for an account, for an account with another history, or for a history alone.

        Args:
            history: item ids, oldest first; an id that the catalogue does not have is left out, and the notes say so.
            allow: the only items that may be listed.
            deny: items that may not be listed.
            domain: list items of this domain alone.
            times: of each event of the history, where people are to be found in it.
            person: one of the people behind it (A, B ...): the list is for them alone.
            together: the list is for all people behind it.
        """
        wish = self._wish(k, exclude_seen, allow, deny, domain)
        asked = self._whom(account, history, times, person, together)
        if asked.together:
            return self._for_all(asked.name, asked.queries, asked.notes, wish)
        return next(self._lists([asked.name], asked.queries, [asked.notes], wish, fold_in=asked.fold_in))

    def people(
        self,
        account: str | None = None,
        history: Sequence[str] | None = None,
        times: Times | None = None,
        *,
        k: int = 20,
        exclude_seen: bool = False,
    ) -> AccountPeople:
        """How many people are behind an account or a history, who did what, what each likes, and lists for them.

        Args:
            history: as for `recommend`; without it the stored history of the account.
            times: of each event of the history: ISO dates, or microseconds since 1970.
            k: length of the lists.
            exclude_seen: leave items out that the person has had; of the list for all, those that anybody has.
        """
        wish = self._wish(k, exclude_seen, None, None, None)
        names, queries, notes = self._asked(account, history)
        shown, found, told = self._found(account, queries, history, times)
        if not self._finder.head.taught:
            notes, told = [(*note, ASSUMED) for note in notes], (*told, ASSUMED)
        whole = next(self._lists(names, queries, notes, wish, fold_in=history is not None))
        lists, together = [whole], None
        if found.count > 1:
            own = self._by_person(shown, found)
            lists = list(self._lists(names * found.count, own, [()] * found.count, wish, fold_in=True))
            together = self._for_all(account, own, (), wish)
        people = tell_people(account, shown, found, self.dataset.items, self._counts, lists, together, whole)
        return replace(people, notes=told)

    @property
    @abstractmethod
    def _counts(self) -> Longs:
        """Training events of each item."""

    def _whom(
        self,
        account: str | None,
        history: Sequence[str] | None,
        times: Times | None,
        person: str | None,
        together: bool,
    ) -> Asked:
        (name,), queries, (notes,) = self._asked(account, history)
        whole = Asked(name, queries, notes, fold_in=history is not None)
        if person is None and not together:
            return whole
        if person is not None and together:
            raise SettingError(PERSON_OR_ALL)
        shown, found, told = self._found(account, queries, history, times)
        whole = replace(whole, notes=(*notes, *told))
        names = ascii_uppercase[: found.count]
        if person is not None and (len(person) != 1 or person not in names):
            raise DataError(f"person {person!r} is not among those found, who are {', '.join(names)}.")
        if found.count == 1:
            return whole
        own = self._by_person(shown, found)
        if person is not None:
            own = own.select(np.array([names.index(person)]))
        return Asked(name, own, whole.notes, fold_in=True, together=together)

    def _found(
        self, account: str | None, queries: Queries, history: Sequence[str] | None, times: Times | None
    ) -> tuple[History, People, tuple[str, ...]]:
        """The newest sessions of the history, the people behind them, those with most events first, and notes."""
        shown = self._shown(queries, history, times)
        if not len(shown.items):
            whose = "the history is empty" if history is not None else f"account {account!r} has no history"
            raise DataError(f"{whose}, so there is nobody to be found.")
        row = self._account_index.get(account) if account is not None else None
        newest = newest_sessions(self._finder.sessions_of(shown.items, shown.times), MOST_SESSIONS)
        times_shown = None if shown.times is None else shown.times[newest]
        shown = History(shown.items[newest], times_shown)
        found = by_weight(self._finder.find(shown.items, shown.times, row=row))
        return shown, found, (_left_out(newest.start),) if newest.start else ()

    def _shown(self, queries: Queries, history: Sequence[str] | None, times: Times | None) -> History:
        part = slice(int(queries.start[0]), int(queries.stop[0]))
        items, stored = np.asarray(queries.events[part]), self.dataset.times
        if history is None:
            if times is not None:
                raise SettingError(f"times belong to a history that is given ({HISTORY}): leave them out.")
            return History(items, None if stored is None else np.asarray(stored[part]))
        if times is None:
            return History(items, None)
        if len(times) != len(history):
            raise SettingError(f"times: {len(times):,} for {len(history):,} events. Give one for each event.")
        known = [item in self.dataset.item_index for item in history]
        return History(items, read_times(times)[known])

    def _by_person(self, history: History, found: People) -> Queries:
        """A question for each person: that of a stranger with these events alone."""
        owner = found.share.argmax(axis=1)
        order = np.argsort(owner, kind="stable")
        stop = np.cumsum(np.bincount(owner, minlength=found.count))
        start = np.append(0, stop[:-1])
        return self._queries(np.full(found.count, UNSEEN), start, stop, history.items[order])

    def _for_all(self, name: str | None, own: Queries, notes: Sequence[str], wish: Wish) -> Recommendations:
        scores, items = best_for_all(self._scores_of_people(own, wish), self._learned, wish.k)
        return self._told(name, items.tolist(), scores.tolist(), len(own.events), notes)


def _left_out(events: int) -> str:
    return f"people are found in the newest {MOST_SESSIONS} sessions: {events:,} older events are left out"

"""Results of runs and bundles: the typed results of `recommending`, with conversion to data frames."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from lightgc2n.api.frames import Columns, Tabular, make_frame
from lightgc2n.experiments.table import Table, plain_table
from lightgc2n.recommending import results as base

SHOWN_NEXT = 3  # items of each person that a printed result names


class _TabularWithNotes(Tabular):
    """A result whose notes are displayed below its table."""

    notes: tuple[str, ...]

    def _shown_notes(self) -> tuple[str, ...]:
        return self.notes


@dataclass(frozen=True, repr=False)
class Recommendations(_TabularWithNotes, base.Recommendations):
    """A list of items, best first: a sequence of `Recommendation(item_id, score, rank)`.

    Example:
        >>> best = run.recommend("user42", k=10)
        >>> best[0].item_id, len(best), best.notes
        >>> best.to_frame("pandas")
    """

    titles: Mapping[str, str] = field(default_factory=dict, compare=False)
    library: str | None = field(default=None, compare=False)

    def _columns(self) -> Columns:
        ids = [item.item_id for item in self.items]
        return {
            "rank": [item.rank for item in self.items],
            "item_id": ids,
            **titles_column(ids, self.titles),
            "score": [item.score for item in self.items],
        }

    def _headline(self) -> str:
        whose = f"account {self.account_id!r}" if self.account_id is not None else "a history"
        return f"{len(self.items)} items for {whose}, best first"


@dataclass(frozen=True, repr=False)
class Ownership(_TabularWithNotes, base.Ownership):
    """Each latent user's share of each event of a history, oldest event first."""

    titles: Mapping[str, str] = field(default_factory=dict, compare=False)
    library: str | None = field(default=None, compare=False)

    def _columns(self) -> Columns:
        ids = [event.item_id for event in self.interactions]
        users = {
            f"user_{number + 1}": [event.shares[number] for event in self.interactions]
            for number in range(len(self.weights))
        }
        return {"item_id": ids, **titles_column(ids, self.titles), **users}

    def _headline(self) -> str:
        return f"{len(self.interactions)} events and {len(self.weights)} latent users, which are not yet people"


@dataclass(frozen=True)
class Person(base.Person):
    """One person behind an account."""

    next: Recommendations


@dataclass(frozen=True, repr=False)
class AccountPeople(_TabularWithNotes, base.AccountPeople):
    """The number of people behind an account, who did what, and a list for each person.

    Example:
        >>> people = run.people("user42")
        >>> people.count, people.confidence
        >>> people.to_frame()  # who did what: one row per event
        >>> people.people_frame()  # one row per person
        >>> people.lists_frame()  # the next items for each person
    """

    people: tuple[Person, ...]
    together: Recommendations | None
    whole: Recommendations
    titles: Mapping[str, str] = field(default_factory=dict, compare=False)
    library: str | None = field(default=None, compare=False)

    def people_frame(self, library: str | None = None) -> Any:
        """Return one row per person: name, number and share of events, a description, and most typical items."""
        persons = self.people
        columns: Columns = {
            "person": [person.name for person in persons],
            "events": [person.events for person in persons],
            "share": [person.share for person in persons],
            "description": [person.description for person in persons],
            "likes": [", ".join(self._title(like.item_id) for like in person.likes) for person in persons],
        }
        return make_frame(columns, library, self.library)

    def lists_frame(self, library: str | None = None) -> Any:
        """Return one row per list entry: the lists of each person, and of all people `together`."""
        lists = [(person.name, person.next) for person in self.people]
        lists += [("together", self.together)] if self.together is not None else []
        rows = [(name, item) for name, listed in lists for item in listed]
        ids = [item.item_id for _, item in rows]
        columns: Columns = {
            "person": [name for name, _ in rows],
            "rank": [item.rank for _, item in rows],
            "item_id": ids,
            **titles_column(ids, self.titles),
            "score": [item.score for _, item in rows],
        }
        return make_frame(columns, library, self.library)

    def _columns(self) -> Columns:
        ids = [event.item_id for event in self.events]
        return {
            "item_id": ids,
            **titles_column(ids, self.titles),
            "time": [event.time for event in self.events],
            "session": list(self.sessions),
            "person": [event.person for event in self.events],
            "probability": [event.probability for event in self.events],
        }

    def _headline(self) -> str:
        who = f"account {self.account_id!r}" if self.account_id is not None else "the history"
        count = "one person" if self.count == 1 else f"{self.count} people"
        return f"{who}: {count} (confidence {100 * self.confidence:.0f} %), {len(self.events)} events"

    def _tables(self) -> Sequence[Table]:
        rows = (
            (
                person.name,
                f"{person.events:,} ({100 * person.share:.0f} %)",
                person.description,
                "; ".join(self._title(item.item_id) for item in person.next[:SHOWN_NEXT]),
            )
            for person in self.people
        )
        people = plain_table("people", ("person", "events", "in words", "next"), rows, text_columns=4)
        return [people, *super()._tables()]

    def _title(self, item: str) -> str:
        return self.titles.get(item, item)


def titles_column(ids: Iterable[str], titles: Mapping[str, str]) -> dict[str, list[str | None]]:
    """Return the column of titles, if any are known."""
    return {"title": [titles.get(item) for item in ids]} if titles else {}


@dataclass(frozen=True)
class Presenter:
    """Converts results of a recommender to results of the API."""

    titles: Mapping[str, str]
    library: str | None

    def recommendations(self, listed: base.Recommendations) -> Recommendations:
        return Recommendations(**_values(listed), titles=self.titles, library=self.library)

    def ownership(self, owned: base.Ownership) -> Ownership:
        return Ownership(**_values(owned), titles=self.titles, library=self.library)

    def people(self, result: base.AccountPeople) -> AccountPeople:
        values = _values(result) | {
            "people": tuple(Person(**_values(one) | {"next": self.recommendations(one.next)}) for one in result.people),
            "whole": self.recommendations(result.whole),
            "together": None if result.together is None else self.recommendations(result.together),
        }
        return AccountPeople(**values, titles=self.titles, library=self.library)


def _values(result: Any) -> dict[str, Any]:
    return {one.name: getattr(result, one.name) for one in fields(result)}

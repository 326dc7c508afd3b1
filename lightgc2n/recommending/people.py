"""The people behind an account in words: who did what, what each of them likes, when they act, what to show them next.

People have letters for names, A being the one with most events. Nothing is said of who they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from string import ascii_uppercase
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lightgc2n.data.dataset import Ints, Longs
from lightgc2n.people.finder import People
from lightgc2n.people.profiles import Activity, activity, characteristic_items
from lightgc2n.people.sessions import has_hours

if TYPE_CHECKING:
    from lightgc2n.recommending.answers import Recommendations

LIKES = 5  # telling items named for each person


class PersonEvent(NamedTuple):
    """One event of the account, and whose it probably is."""

    item_id: str
    time: str | None  # by the clock of the log; none where there are no times
    person: str
    probability: float
    shares: tuple[float, ...]  # of every person, in the order of their letters; they sum to one


class Like(NamedTuple):
    """An item that tells of a person."""

    item_id: str
    events: float
    times: float  # how many times as often as everybody has it


@dataclass(frozen=True)
class Person:
    """One person behind an account."""

    name: str
    events: int  # that are theirs more than anybody else's
    share: float  # of all events
    likes: tuple[Like, ...]
    active: Activity | None  # none where there are no times
    next: "Recommendations"


@dataclass(frozen=True)
class AccountPeople:
    """How many people are behind an account, who did what, and what to show them."""

    account_id: str | None  # none where a history alone was given
    count: int
    confidence: float  # the chance that the count is right
    chances: tuple[float, ...]  # of one person, of two ...
    events: tuple[PersonEvent, ...]  # of the sessions that people were found in, oldest first
    people: tuple[Person, ...]
    together: "Recommendations | None"  # good for all of them; none for one person
    whole: "Recommendations"  # the list of the account as if it were one person
    sessions: tuple[int, ...]  # for each event the number of its session: what was one person's from the start
    notes: tuple[str, ...] = ()  # what a reader should know, for example that older events were left out


@dataclass(frozen=True)
class History:
    """What an account did, oldest event first."""

    items: Ints
    times: Longs | None


def by_weight(found: People) -> People:
    """The same people, those with most of the events first."""
    order = np.argsort(-found.share.sum(axis=0), kind="stable")
    return replace(found, share=found.share[:, order])


def tell_people(
    account_id: str | None,
    history: History,
    found: People,
    catalogue: Sequence[str],
    popularity: Longs,
    lists: "Sequence[Recommendations]",
    together: "Recommendations | None",
    whole: "Recommendations",
) -> AccountPeople:
    """All of it by names and item ids.

    Args:
        popularity: training events of each item.
        lists: what to show each person next.
    """
    likely = found.share.max(axis=1)
    owner = found.share.argmax(axis=1)
    shares = zip(found.share.tolist(), owner.tolist(), likely.tolist(), strict=True)
    events = tuple(
        PersonEvent(catalogue[item], time, ascii_uppercase[person], chance, tuple(row))
        for item, time, (row, person, chance) in zip(history.items.tolist(), _written(history), shares, strict=True)
    )
    people = []
    for number, shown in enumerate(lists):
        own = found.share[:, number]
        likes = characteristic_items(history.items, own, popularity, LIKES)
        people.append(
            Person(
                name=ascii_uppercase[number],
                events=int((owner == number).sum()),
                share=float(own.mean()),
                likes=tuple(Like(catalogue[item], had, times) for item, had, times in likes),
                active=None if history.times is None else activity(history.times, own),
                next=shown,
            )
        )
    chances = tuple(found.chances.tolist())
    sessions = tuple(found.session.tolist())
    return AccountPeople(
        account_id, found.count, found.confidence, chances, events, tuple(people), together, whole, sessions
    )


def _written(history: History) -> Sequence[str | None]:
    """Times as they are read: to the minute, or the day where they tell no more."""
    times = history.times
    if times is None:
        return [None] * len(history.items)
    unit = "m" if has_hours(times) else "D"
    return [str(time).replace("T", " ") for time in times.astype("datetime64[us]").astype(f"datetime64[{unit}]")]

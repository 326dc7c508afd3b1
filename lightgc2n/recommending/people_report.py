"""The report on the people behind an account: who did what, what each of them likes, when they are active.

People are named by letters, A being the one with the most events. Nothing is known of who they are.
Shapes: P people, M items, E events, K list length.
"""

from collections.abc import Sequence
from dataclasses import replace
from string import ascii_uppercase
from typing import Any

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Longs
from lightgc2n.people.finder import People
from lightgc2n.people.profiles import activity, characteristic_items, describe, preferences
from lightgc2n.people.sessions import has_hours
from lightgc2n.recommending.histories import History
from lightgc2n.recommending.results import AccountPeople, Like, Person, PersonEvent, Recommendations

LIKES = 5  # typical items named for each person
CATEGORIES = 3  # likewise


def by_weight(people: People) -> People:
    """The same people, those with the most events first, then those with the larger sum of probabilities."""
    events = np.bincount(people.share.argmax(axis=1), minlength=people.share.shape[1])
    order = np.lexsort((-people.share.sum(axis=0), -events))
    return replace(people, share=people.share[:, order])


def people_report(
    account_id: str | None,
    history: History,
    people: People,
    catalogue: Sequence[str],
    categories: Sequence[Sequence[str]],
    domains: Sequence[str],
    popularity: Longs,
    lists: Sequence[Recommendations],
    together: Recommendations | None,
    whole: Recommendations,
    notes: tuple[str, ...],
) -> AccountPeople:
    """The people of an account by item ids and letters. Where an item has no category, its domain stands for it.

    Args:
        categories: of the item of each event; empty where none are known.
        domains: of the item of each event; empty where the catalogue has one domain.
        popularity: training events of each item.
        lists: one for each person.
    """
    groups = [names or ((domains[event],) if domains else ()) for event, names in enumerate(categories)]
    return AccountPeople(
        account_id=account_id,
        count=people.count,
        confidence=people.confidence,
        chances=tuple(people.chances.tolist()),
        events=_events(history, people, catalogue),
        people=tuple(
            _person(number, history, people, catalogue, groups, popularity, own) for number, own in enumerate(lists)
        ),
        together=together,
        whole=whole,
        sessions=tuple(people.session.tolist()),
        notes=notes,
    )


def _events(history: History, people: People, catalogue: Sequence[str]) -> tuple[PersonEvent, ...]:
    owner, probability = people.share.argmax(axis=1).tolist(), people.share.max(axis=1).tolist()
    columns = history.items.tolist(), _formatted_times(history), owner, probability, people.share.tolist()
    return tuple(
        PersonEvent(catalogue[item], time, ascii_uppercase[person], chance, tuple(shares))
        for item, time, person, chance, shares in zip(*columns, strict=True)
    )


def _person(
    number: int,
    history: History,
    people: People,
    catalogue: Sequence[str],
    groups: Sequence[Sequence[str]],
    popularity: Longs,
    own: Recommendations,
) -> Person:
    """One person. Counts, share and traits are of the events of which this person is the most probable owner."""
    owner = people.share.argmax(axis=1)
    theirs = np.flatnonzero(owner == number)
    likes = characteristic_items(history.items, owner, number, popularity, LIKES)
    liked = preferences([groups[event] for event in theirs.tolist()], CATEGORIES)
    weight = (owner == number).astype(np.float64) if len(theirs) else people.share[:, number]
    active = None if history.times is None else activity(history.times, weight)
    return Person(
        name=ascii_uppercase[number],
        events=len(theirs),
        share=len(theirs) / len(owner),
        likes=tuple(Like(catalogue[item], events, times) for item, events, times in likes),
        active=active,
        next=own,
        categories=tuple(liked),
        description=describe(len(theirs), liked, active),
    )


def _formatted_times(history: History) -> Sequence[str | None]:
    """Times to the minute, or to the day where the log has days only."""
    times = history.times
    if times is None:
        return [None] * len(history.items)
    unit = "m" if has_hours(times) else "D"
    return [str(time).replace("T", " ") for time in times.astype("datetime64[us]").astype(f"datetime64[{unit}]")]


def top_items_for_all(
    scores: npt.NDArray[np.floating[Any]], first: npt.NDArray[np.bool_], k: int
) -> tuple[npt.NDArray[np.float64], Longs]:
    """Scores and items of one list for P people [K]: an item ranks as high as for the person whom it suits least.

    Ranks are compared, not scores: scores of two people need not be on one scale. Ties go to the smaller sum of ranks.
    The score of an item is one over its worst rank. Items of the first kind come before all others, and an item that
    may not be listed for one person is not listed.

    Args:
        scores: of each item for each person [P, M]; minus infinity for what may not be listed.
        first: which items are of the first kind [M].
    """
    people, items = scores.shape
    rank = np.empty((people, items), dtype=np.int64)
    for own, row in zip(rank, scores, strict=True):
        own[np.lexsort((-row, ~first))] = np.arange(1, items + 1)
    worst, total = rank.max(axis=0), rank.sum(axis=0)
    chosen = np.lexsort((total, worst))
    chosen = chosen[np.isfinite(scores[:, chosen]).all(axis=0)][:k]
    return 1 / worst[chosen], chosen

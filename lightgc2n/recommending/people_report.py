"""Reports on the people of one account (who did what, what each likes, when they are active) and of all accounts.

People are named by letters, A being the one with the most events. Nothing is known of who they are.
Shapes: P people, M items, E events, K list length.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from string import ascii_uppercase
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Dataset, Ints, Longs
from lightgc2n.people.clustering import MOST_PEOPLE
from lightgc2n.people.finder import People
from lightgc2n.people.sessions import WEEKEND, Floats, clock, has_hours
from lightgc2n.progress import Step, step
from lightgc2n.recommending.queries import History
from lightgc2n.recommending.results import (
    AccountPeople,
    Activity,
    Like,
    Person,
    PersonEvent,
    Preference,
    Recommendations,
)

LIKES = 5  # typical items named for each person
CATEGORIES = 3  # named for each person
LEAST_EVENTS = 2  # with an item or a category before it is called typical of a person
LEAST_TIMED = 4  # events before a person's usual times are described
MAIN_SHARE = 0.5  # of the events, from which one category or one part of the day describes a person
SECOND_SHARE = 0.2  # of the events, from which a second category is named as well
WEEKEND_SHARE, WEEKDAY_SHARE = 0.6, 0.9  # of the events; two days in seven are 0.29
DAY_SHARE = 0.4  # of the events on one weekday
PARTS_OF_DAY = (("mornings", 5, 11), ("afternoons", 11, 17), ("evenings", 17, 22), ("nights", 22, 29))
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
TOO_FEW = "too few events to describe"
MOST_ACCOUNTS = 2000  # counted, spread evenly over all accounts
EXAMPLE_EVENTS = (12, 150)  # of an account that is shown as an example: enough to see, few enough to read
EVENTS_OF_EACH = 3  # of every person of an example, at least
TENTHS = 10
UNCERTAIN = 0.45  # an account with a lower confidence is the example of an uncertain count


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
    """Scores and items of one list for P people [K], ordered by the worst rank of an item over the people.

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


class CharacteristicItem(NamedTuple):
    """An item that a person has more often than the average account."""

    item: int
    events: int  # events of the person with this item
    times: float  # ratio to the average frequency


def characteristic_items(
    items: Ints | Longs, owner: Longs, person: int, popularity: Longs, most: int
) -> list[CharacteristicItem]:
    """Return the items with the largest n log(n / expected): n of the person, expected at average frequency.

    The person has each of them at least twice, and more often than anybody else of the account.

    Args:
        owner: the most probable person of each event.
        popularity: training events of each item of the catalogue.
    """
    counts = np.bincount(items[owner == person], minlength=len(popularity))
    others = [np.bincount(items[owner == one], minlength=len(popularity)) for one in set(owner.tolist()) - {person}]
    typical = (counts >= LEAST_EVENTS) & (counts > np.max([*others, np.zeros_like(counts)], axis=0))
    # Add-one smoothing: an item without training events is rare, not impossible.
    expected = max(int(counts.sum()), 1) * (popularity + 1) / (popularity.sum() + len(popularity))
    times = counts / expected
    value = np.where(typical, counts * np.log(np.maximum(times, 1.0)), 0.0)
    best = np.argsort(-value, kind="stable")[:most]
    return [
        CharacteristicItem(item, int(counts[item]), float(times[item])) for item in best.tolist() if value[item] > 0
    ]


def preferences(categories: Sequence[Sequence[str]], most: int) -> list[Preference]:
    """Return the most frequent categories of a person's events.

    Args:
        categories: of each event; an item may have several.
    """
    counts = Counter(name for names in categories for name in set(names))
    order = sorted(counts, key=lambda name: (-counts[name], name))
    frequent = [name for name in order if counts[name] >= LEAST_EVENTS]
    return [Preference(name, counts[name], counts[name] / len(categories)) for name in frequent[:most]]


def describe(events: int, preferred: Sequence[Preference], active: Activity | None) -> str:
    """Return a short description of a person, such as "mostly history, weekend mornings"."""
    tastes = _tastes(preferred)
    times = _usual_times(active) if active is not None and events >= LEAST_TIMED else None
    return ", ".join(part for part in (tastes, times) if part) or TOO_FEW


def _tastes(preferred: Sequence[Preference]) -> str | None:
    if not preferred:
        return None
    names = [_within_sentence(one.name) for one in preferred]
    first, *others = preferred
    if first.share >= MAIN_SHARE:
        return f"mostly {names[0]}"
    if others and others[0].share >= SECOND_SHARE:
        return f"often {names[0]} and {names[1]}"
    return f"often {names[0]}" if first.share >= SECOND_SHARE else "a bit of everything"


def _within_sentence(name: str) -> str:
    """A category in lower case, except words in capitals such as TV."""
    return " ".join(word if word.isupper() else word.lower() for word in name.split())


def _usual_times(active: Activity) -> str | None:
    weekend = sum(active.weekdays[WEEKEND:])
    day = max(range(7), key=lambda one: active.weekdays[one])
    if weekend >= WEEKEND_SHARE:
        days = "weekend"
    elif weekend <= 1 - WEEKDAY_SHARE and active.weekdays[day] < DAY_SHARE:
        days = "weekday"
    else:
        days = DAYS[day] if active.weekdays[day] >= DAY_SHARE else ""
    part = _part_of_day(active.hours) if active.hours is not None else None
    if part:
        return f"{days} {part}".strip()
    return f"{days}s" if days else None


def _part_of_day(hours: Sequence[float]) -> str | None:
    """The part of the day with at least half of the events, if there is one."""
    shares = {name: sum(hours[hour % 24] for hour in range(start, stop)) for name, start, stop in PARTS_OF_DAY}
    name = max(shares, key=lambda one: shares[one])
    return name if shares[name] >= MAIN_SHARE else None


def activity(times: Longs, weight: Floats) -> Activity:
    """Return the distribution of events over time, weighted.

    Args:
        times: microseconds since 1970.
    """
    weekday, hour = clock(times)
    month = times.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64) % 12
    return Activity(
        weekdays=_shares(weekday, weight, 7),
        months=_shares(month, weight, 12),
        hours=_shares(hour, weight, 24) if has_hours(times) else None,
    )


def _shares(part: Longs, weight: Floats, parts: int) -> tuple[float, ...]:
    counts = np.bincount(part, weight, parts)
    return tuple((counts / max(float(counts.sum()), 1e-9)).tolist())


@dataclass(frozen=True)
class Example:
    """An account, and how many people it probably has."""

    account: str
    count: int
    confidence: float
    events: int


@dataclass(frozen=True)
class Counted:
    """The count of an account, and the events of that of its people who has the fewest."""

    example: Example
    fewest: int


@dataclass(frozen=True)
class Population:
    """How many people the accounts have, and an example of each count and of an uncertain one."""

    accounts: int  # that were counted
    counts: tuple[int, ...]  # accounts with one person, with two ...
    examples: tuple[Example, ...]

    def as_json(self) -> dict[str, Any]:
        """The summary as plain values."""
        return asdict(self)


def accounts_with_events(dataset: Dataset) -> list[str]:
    """The accounts of the dataset that have at least one event."""
    events = np.bincount(dataset.sequence_accounts, dataset.lengths, len(dataset.accounts))
    return [dataset.accounts[index] for index in np.flatnonzero(events > 0).tolist()]


def population_of(
    accounts: Sequence[str],
    find_people: Callable[[Iterable[str]], Iterable[tuple[str, People]]],
    most: int | None = MOST_ACCOUNTS,
    counted: Callable[[Example], None] | None = None,
) -> Population:
    """Count the people of these accounts, or of `most` accounts spread evenly over them.

    The example of a count is the account with the highest confidence among those that are short enough to read.

    Args:
        accounts: with at least one event each.
        find_people: yields the people of each of these accounts, such as `Recommender.people_of_all`.
        most: None counts all accounts.
        counted: called with each account.
    """
    number = min(most or len(accounts), len(accounts))
    chosen = [accounts[place] for place in np.linspace(0, len(accounts) - 1, number).astype(np.int64).tolist()]
    with step("counting people, accounts", total=number) as shown:
        return summarised(_each(counted_people(find_people(chosen)), shown, counted))


def counted_people(found: Iterable[tuple[str, People]]) -> Iterator[Counted]:
    """The counts of accounts whose people were found."""
    for account, people in found:
        each = np.bincount(people.share.argmax(axis=1), minlength=people.count)
        yield Counted(Example(account, people.count, people.confidence, len(people.share)), int(each.min()))


def summarised(counted: Iterable[Counted]) -> Population:
    """The population of accounts that are counted, in the order of the dataset."""
    counts, best = [0] * MOST_PEOPLE, dict[str, Example]()
    for one in counted:
        example = one.example
        counts[example.count - 1] += 1
        if EXAMPLE_EVENTS[0] <= example.events <= EXAMPLE_EVENTS[1] and one.fewest >= EVENTS_OF_EACH:
            kind = "uncertain" if example.confidence < UNCERTAIN else str(example.count)
            if kind not in best or _is_better(example, best[kind]):
                best[kind] = example
    order = [best[kind] for kind in ("3", "2", "4", "1", "5", "uncertain") if kind in best]
    return Population(sum(counts), tuple(counts), tuple(order))


def _each(found: Iterable[Counted], shown: Step, call: Callable[[Example], None] | None) -> Iterator[Counted]:
    for one in found:
        shown.advance()
        if call is not None:
            call(one.example)
        yield one


def summary_of(counted: Sequence[Example]) -> dict[str, Any]:
    """How many of the accounts are shared, by how many people, and how sure that is; None where there are none."""
    counts, confidence = (np.array([getattr(one, name) for one in counted]) for name in ("count", "confidence"))
    tenths = np.minimum((confidence * TENTHS).astype(np.int64), TENTHS - 1)
    return {
        "events": sum(one.events for one in counted),
        "shared": float((counts > 1).mean()) if counted else None,
        "mean_people": float(counts.mean()) if counted else None,
        "mean_confidence": float(confidence.mean()) if counted else None,
        "accounts_by_confidence": np.bincount(tenths, minlength=TENTHS).tolist(),  # below 10 %, below 20 % ...
    }


def _is_better(one: Example, other: Example) -> bool:
    """Whether an example is clearer than another: more confident, or less where both are uncertain."""
    return (one.confidence > other.confidence) is (one.confidence >= UNCERTAIN)

"""Every event of a period as a question, and ways to ask it: with which histories, and how much each answer counts."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Dataset, Longs
from lightgc2n.data.division import hide_strangers
from lightgc2n.data.questions import Queries, questions_at
from lightgc2n.data.splits import Split, Training
from lightgc2n.people.finding import People, PeopleFinder
from lightgc2n.people.following import Followed, events_of, follow
from lightgc2n.people.points import Floats
from lightgc2n.people.sessions import session_numbers
from lightgc2n.recommending.histories import whole_logs

UNLIKELY = 0.02  # people who are less likely to act are not asked
SESSIONS, FADING = 8, 0.75  # newest sessions, and how much less each earlier one counts


@dataclass(frozen=True)
class Asking:
    """One history to ask with: the places of its events in the dataset, and how much the answer counts."""

    places: Longs
    weight: float


@dataclass(frozen=True)
class Rolling:
    """The events of a period as questions, each with all that its account did before."""

    queries: Queries
    first: Longs  # [Q] the account's first event of the period
    session: Longs  # [E] of every event of the dataset

    def of_accounts(self, about: npt.NDArray[np.bool_]) -> "Rolling":
        """The questions of some accounts."""
        rows = np.flatnonzero(about[self.queries.owner])
        return replace(self, queries=self.queries.select(rows), first=self.first[rows])

    @property
    def going_on(self) -> npt.NDArray[np.bool_]:
        """Whether the session of each question has begun before it."""
        place = self.queries.target_event
        return self.session[place] == self.session[place - 1]


Way = Callable[[int], list[Asking]]  # from a question


def rolling(dataset: Dataset, split: Split, part: str, gap: int | None) -> Rolling:
    """All events between the cuts (`validation`) or after the test's (`test`) whose account has done something before.

    Args:
        gap: microseconds; a longer pause begins a new session.
    """
    assert split.known is not None
    assert dataset.times is not None
    start, stop = whole_logs(dataset)
    trained, known = start + _events(split.train), start + _events(split.known)
    first, last = (trained, known) if part == "validation" else (known, stop)
    number = np.where(first > start, last - first, 0)
    account = np.repeat(np.arange(len(start)), number).astype(np.int32)
    place = first[account] + np.arange(len(account)) - np.searchsorted(account, account)
    queries = questions_at(dataset, account, start[account], place, np.ones(len(account), dtype=bool))
    order = np.argsort(start, kind="stable")  # logs as they stand in the dataset; those of idle accounts are empty
    session = session_numbers(np.append(start[order], len(dataset.events)), np.asarray(dataset.times), gap)
    return Rolling(hide_strangers(queries, trained > start), first[account], session)


def _events(train: Training) -> Longs:
    """How many events of each account it has."""
    return np.bincount(train.sequence_accounts, np.diff(train.offsets), train.accounts).astype(np.int64)


def likely_person(dataset: Dataset, asked: Rolling, finder: PeopleFinder, count: int | None = None) -> Way:
    """The events of each person found before the period, by how likely that person acts."""
    return _likely_among(asked, _people_of(dataset, asked, finder, count))


def true_people(dataset: Dataset, asked: Rolling, member: Longs) -> Way:
    """The events of everybody who is really there, by how likely they act: who acts is not told.

    Args:
        member: of each event of the dataset.
    """

    def people(question: int) -> Followed:
        assert dataset.times is not None
        start, stop = int(asked.queries.start[question]), int(asked.queries.target_event[question])
        who = np.unique(member[start:stop], return_inverse=True)[1]
        share, session = np.eye(who.max() + 1)[who], asked.session[start : stop + 1]
        everybody = People(share.shape[1], 1.0, np.ones(1), share, session[:-1])
        return Followed(stop - start, everybody, session, np.asarray(dataset.times[start : stop + 1]), share[:0])

    return _likely_among(asked, people)


def _likely_among(asked: Rolling, people: Callable[[int], Followed]) -> Way:
    def ask(question: int) -> list[Asking]:
        start, place = int(asked.queries.start[question]), int(asked.queries.target_event[question])
        return _of_people(people(question), place - start, start)

    return ask


def likely_sessions(dataset: Dataset, asked: Rolling, finder: PeopleFinder, count: int | None = None) -> Way:
    """The account up to the end of each of its newest sessions, by its age and by how likely its person acts now."""
    people, newest = _people_of(dataset, asked, finder, count), newest_sessions(asked)

    def ask(question: int) -> list[Asking]:
        start, place = int(asked.queries.start[question]), int(asked.queries.target_event[question])
        found, shown = people(question), newest(question)
        share, chances = found.shares(place - start), found.chances(place - start)
        likely = [float(share[one.places[-1] - start] @ chances) for one in shown]
        return [Asking(one.places, one.weight * chance) for one, chance in zip(shown, likely, strict=True)]

    return ask


def _people_of(dataset: Dataset, asked: Rolling, finder: PeopleFinder, count: int | None) -> Callable[[int], Followed]:
    """From a question the people of its account, found before the period and followed through it."""
    followed: dict[int, Followed] = {}
    queries = asked.queries

    def people(question: int) -> Followed:
        account, start = int(queries.owner[question]), int(queries.start[question])
        if account not in followed:
            followed.clear()  # questions come account by account
            last = int(np.searchsorted(queries.owner, account, side="right")) - 1
            log = slice(start, int(queries.target_event[last]) + 1)
            known = int(asked.first[question]) - start
            assert dataset.times is not None
            items, times = np.asarray(dataset.events[log]), np.asarray(dataset.times[log])
            followed[account] = follow(finder, items, times, known, account, count)
        return followed[account]

    return people


def _of_people(people: Followed, place: int, start: int) -> list[Asking]:
    chances: Floats = people.chances(place)
    own = events_of(people.shares(place))
    return [
        Asking(start + places, float(chance))
        for places, chance in zip(own, chances, strict=True)
        if len(places) and (chance > UNLIKELY or chance == chances.max())
    ]


def newest_sessions(asked: Rolling) -> Way:
    """No people at all: the account up to the end of each of its newest sessions, the newest counting most."""
    queries = asked.queries

    def ask(question: int) -> list[Asking]:
        start, stop = int(queries.start[question]), int(queries.target_event[question])
        session = asked.session[start:stop]
        ends = start + 1 + np.flatnonzero(np.diff(session, append=-1))[::-1][:SESSIONS]
        return [Asking(np.arange(start, end), FADING**age) for age, end in enumerate(ends.tolist())]

    return ask


def true_person(asked: Rolling, member: Longs) -> Way:
    """The events of who really acts.

    Args:
        member: of each event of the dataset.
    """
    queries = asked.queries

    def ask(question: int) -> list[Asking]:
        start, stop = int(queries.start[question]), int(queries.target_event[question])
        return [Asking(start + np.flatnonzero(member[start:stop] == member[stop]), 1.0)]

    return ask


def asked_with(dataset: Dataset, asked: Rolling, questions: Longs, histories: list[list[Asking]]) -> Queries:
    """The histories of these questions as questions of strangers, one after the other."""
    places = [one.places for histories_of_one in histories for one in histories_of_one]
    length = np.array([len(one) for one in places])
    stop = np.cumsum(length)
    flat = np.concatenate(places)
    of = asked.queries.target_event[np.repeat(questions, [len(one) for one in histories])]
    assert dataset.times is not None
    nobody = np.full(len(places), -1, dtype=np.int32)
    return replace(
        asked.queries,
        account=nobody,
        owner=nobody,
        start=stop - length,
        stop=stop,
        target=np.zeros(len(places), dtype=np.int32),
        target_event=len(flat) + np.arange(len(places)),
        events=np.asarray(dataset.events[flat]),
        times=np.concatenate([dataset.times[flat], dataset.times[of]]),
    )

"""Every event of a period as a query, and strategies that choose weighted histories for it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Dataset, Longs
from lightgc2n.data.split_types import Queries, mask_unseen_accounts, queries_at
from lightgc2n.data.splits import Split, Training
from lightgc2n.people.finder import People, PeopleFinder
from lightgc2n.people.sessions import Floats, session_numbers
from lightgc2n.people.who_acts_now import Followed, events_of, follow
from lightgc2n.recommending.queries import whole_logs

UNLIKELY = 0.02  # people who are less likely to act are left out
SESSIONS, FADING = 8, 0.75  # number of newest sessions, and the factor by which each earlier one counts less


@dataclass(frozen=True)
class WeightedHistory:
    """A history: the positions of its events in the dataset, and the weight of the list for it."""

    places: Longs
    weight: float


@dataclass(frozen=True)
class RollingQueries:
    """The events of a period as queries, each with all earlier events of its account as history."""

    queries: Queries
    first: Longs  # [Q] the account's first event of the period
    session: Longs  # [E] of every event of the dataset

    def of_accounts(self, about: npt.NDArray[np.bool_]) -> "RollingQueries":
        """Return the queries of some accounts."""
        rows = np.flatnonzero(about[self.queries.owner])
        return replace(self, queries=self.queries.select(rows), first=self.first[rows])

    @property
    def in_session(self) -> npt.NDArray[np.bool_]:
        """Whether each query continues a session, rather than starting one."""
        place = self.queries.target_event
        return self.session[place] == self.session[place - 1]


ChooseHistories = Callable[[int], list[WeightedHistory]]  # from the number of a query


def rolling_queries(dataset: Dataset, split: Split, part: str, gap: int | None) -> RollingQueries:
    """Return the events between the cuts (`validation`) or after the test cut (`test`) that have earlier events.

    Args:
        gap: microseconds; a longer pause starts a new session.
    """
    assert split.known is not None
    assert dataset.times is not None
    start, stop = whole_logs(dataset)
    trained, known = start + _events(split.train), start + _events(split.known)
    first, last = (trained, known) if part == "validation" else (known, stop)
    number = np.where(first > start, last - first, 0)
    account = np.repeat(np.arange(len(start)), number).astype(np.int32)
    place = first[account] + np.arange(len(account)) - np.searchsorted(account, account)
    queries = queries_at(dataset, account, start[account], place, np.ones(len(account), dtype=bool))
    order = np.argsort(start, kind="stable")  # logs in the order of the dataset; those of idle accounts are empty
    session = session_numbers(np.append(start[order], len(dataset.events)), np.asarray(dataset.times), gap)
    return RollingQueries(mask_unseen_accounts(queries, trained > start), first[account], session)


def _events(train: Training) -> Longs:
    """The number of events of each account."""
    return np.bincount(train.sequence_accounts, np.diff(train.offsets), train.accounts).astype(np.int64)


def likely_person(
    dataset: Dataset, rolling: RollingQueries, finder: PeopleFinder, count: int | None = None
) -> ChooseHistories:
    """Use the events of each person estimated before the period, weighted by the probability that they act."""
    return _likely_among(rolling, people_of(dataset, rolling, finder, count))


def true_people(dataset: Dataset, rolling: RollingQueries, member: Longs) -> ChooseHistories:
    """Use the events of each true person, weighted by the probability that they act.

    Args:
        member: of each event of the dataset.
    """

    def people(query: int) -> Followed:
        assert dataset.times is not None
        start, stop = int(rolling.queries.start[query]), int(rolling.queries.target_event[query])
        who = np.unique(member[start:stop], return_inverse=True)[1]
        share, session = np.eye(who.max() + 1)[who], rolling.session[start : stop + 1]
        everybody = People(share.shape[1], 1.0, np.ones(1), share, session[:-1])
        return Followed(stop - start, everybody, session, np.asarray(dataset.times[start : stop + 1]), share[:0])

    return _likely_among(rolling, people)


def _likely_among(rolling: RollingQueries, people: Callable[[int], Followed]) -> ChooseHistories:
    def histories(query: int) -> list[WeightedHistory]:
        start, place = int(rolling.queries.start[query]), int(rolling.queries.target_event[query])
        return _of_people(people(query), place - start, start)

    return histories


def likely_sessions(
    dataset: Dataset, rolling: RollingQueries, finder: PeopleFinder, count: int | None = None
) -> ChooseHistories:
    """Use the account up to the end of each of its newest sessions, weighted by age and by its person's probability."""
    people, newest = people_of(dataset, rolling, finder, count), newest_sessions(rolling)

    def histories(query: int) -> list[WeightedHistory]:
        start, place = int(rolling.queries.start[query]), int(rolling.queries.target_event[query])
        followed, shown = people(query), newest(query)
        share, chances = followed.shares(place - start), followed.chances(place - start)
        likely = [float(share[one.places[-1] - start] @ chances) for one in shown]
        return [WeightedHistory(one.places, one.weight * chance) for one, chance in zip(shown, likely, strict=True)]

    return histories


def people_of(
    dataset: Dataset, rolling: RollingQueries, finder: PeopleFinder, count: int | None
) -> Callable[[int], Followed]:
    """Return a function from a query to the people of its account, estimated before the period and then followed."""
    followed: dict[int, Followed] = {}
    queries = rolling.queries

    def people(query: int) -> Followed:
        account, start = int(queries.owner[query]), int(queries.start[query])
        if account not in followed:
            followed.clear()  # queries come account by account
            last = int(np.searchsorted(queries.owner, account, side="right")) - 1
            log = slice(start, int(queries.target_event[last]) + 1)
            known = int(rolling.first[query]) - start
            assert dataset.times is not None
            items, times = np.asarray(dataset.events[log]), np.asarray(dataset.times[log])
            followed[account] = follow(finder, items, times, known, account, count)
        return followed[account]

    return people


def _of_people(people: Followed, place: int, start: int) -> list[WeightedHistory]:
    return histories_of(people.shares(place), people.chances(place), start)


def histories_of(share: Floats, chances: Floats, start: int) -> list[WeightedHistory]:
    """Return the events of each person, weighted by the chance that they act.

    Args:
        share: of each event of the account so far [E, K].
        start: of the account's log in the dataset.
    """
    own = events_of(share)
    return [
        WeightedHistory(start + places, float(chance))
        for places, chance in zip(own, chances, strict=True)
        if len(places) and (chance > UNLIKELY or chance == chances.max())
    ]


def newest_sessions(rolling: RollingQueries) -> ChooseHistories:
    """Use the account up to the end of each of its newest sessions, the newest weighted most; no people are used."""
    queries = rolling.queries

    def histories(query: int) -> list[WeightedHistory]:
        start, stop = int(queries.start[query]), int(queries.target_event[query])
        session = rolling.session[start:stop]
        ends = start + 1 + np.flatnonzero(np.diff(session, append=-1))[::-1][:SESSIONS]
        return [WeightedHistory(np.arange(start, end), FADING**age) for age, end in enumerate(ends.tolist())]

    return histories


def true_person(rolling: RollingQueries, member: Longs) -> ChooseHistories:
    """Use the events of the person who acts.

    Args:
        member: of each event of the dataset.
    """
    queries = rolling.queries

    def histories(query: int) -> list[WeightedHistory]:
        start, stop = int(queries.start[query]), int(queries.target_event[query])
        return [WeightedHistory(start + np.flatnonzero(member[start:stop] == member[stop]), 1.0)]

    return histories


def queries_with(
    dataset: Dataset, rolling: RollingQueries, numbers: Longs, histories: list[list[WeightedHistory]]
) -> Queries:
    """Return the histories of these queries as queries of unseen accounts, concatenated."""
    places = [one.places for histories_of_one in histories for one in histories_of_one]
    length = np.array([len(one) for one in places])
    stop = np.cumsum(length)
    flat = np.concatenate(places)
    of = rolling.queries.target_event[np.repeat(numbers, [len(one) for one in histories])]
    assert dataset.times is not None
    nobody = np.full(len(places), -1, dtype=np.int32)
    return replace(
        rolling.queries,
        account=nobody,
        owner=nobody,
        start=stop - length,
        stop=stop,
        target=np.zeros(len(places), dtype=np.int32),
        target_event=len(flat) + np.arange(len(places)),
        events=np.asarray(dataset.events[flat]),
        times=np.concatenate([dataset.times[flat], dataset.times[of]]),
    )

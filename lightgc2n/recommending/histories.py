"""The histories of accounts, stored or given by the caller, as queries for a scorer.

account            the stored history at the end of the dataset, and the account's row in the training graph:
                   what `evaluate` measures
account, history   the given history; the account's latent users are inferred from it, starting at its own embedding
history            the given history; the latent users start at the mean of all accounts
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from lightgc2n.data.catalogue import Catalogue
from lightgc2n.data.dataset import Dataset, Ints, Longs
from lightgc2n.data.splits import UNSEEN, Queries
from lightgc2n.errors import HISTORY, DataError, SettingError
from lightgc2n.people.finder import PeopleFinder
from lightgc2n.recommending.scorer import Flags

NAMED = 5  # ids that a message names
Times = Sequence[str] | Sequence[int]
EPOCH = datetime(1970, 1, 1)
# The years 1900 to 2262, as for imported logs: values in another unit fall outside.
EARLIEST, LATEST = -2_208_988_800_000_000, 9_214_646_400_000_000


@dataclass(frozen=True)
class History:
    """The events of an account by item number, oldest first."""

    items: Ints
    times: Longs | None
    notes: tuple[str, ...] = ()  # for the answers that are made from it


Events = Sequence[str] | History


class Histories:
    """Makes queries from account ids and from lists of item ids.

    Args:
        learned_accounts: which accounts training has events of; the others are scored as new ones.
        stored: whether the histories of accounts are there; False: a history must be given.
    """

    def __init__(self, dataset: Dataset, learned_accounts: Flags, stored: bool = True) -> None:
        self.dataset, self._learned_accounts, self.stored = dataset, learned_accounts, stored
        self.start, self.stop = whole_logs(dataset)

    @cached_property
    def account_index(self) -> dict[str, int]:
        return {account: index for index, account in enumerate(self.dataset.accounts)}

    @cached_property
    def _newest_event(self) -> int | None:
        times = self.dataset.times
        return int(times.argmax()) if times is not None and len(times) else None

    def of_accounts(self, accounts: Sequence[str]) -> Queries:
        """One query for each account, with its stored history, at the time of the dataset's newest event."""
        if not self.stored:
            raise DataError(f"{self.dataset.name}: this bundle holds no histories. Give {HISTORY}.")
        for account in accounts:
            if account not in self.account_index:
                raise DataError(
                    f"unknown account {account!r} ({_known(self.dataset.accounts)}). "
                    f"Give {HISTORY} to recommend for someone new."
                )
        index = np.array([self.account_index[account] for account in accounts], dtype=np.int64)
        queries = self._queries(index, self.start[index], self.stop[index], self.dataset.events)
        if self._newest_event is None:
            return queries
        asked_at = np.full_like(queries.target_event, self._newest_event)
        return replace(queries, times=self.dataset.times, target_event=asked_at)

    def of_items(self, account: str | None, history: Sequence[str]) -> tuple[Queries, tuple[str, ...]]:
        """One query with the given history, and notes on ids that are not known."""
        if isinstance(history, str):
            raise SettingError(f"history: expected a list of item ids, found the text {history!r}.")
        known = self.dataset.item_index
        events = np.array([known[item] for item in history if item in known], dtype=np.int32)
        notes = [*left_out(history, self.dataset, "the history")]
        if account is not None and account not in self.account_index:
            notes.append(f"account {account!r} is not known: the history alone decides")
        index = self.account_index.get(account, UNSEEN) if account is not None else UNSEEN
        return self._queries(np.array([index]), np.array([0]), np.array([len(events)]), events), tuple(notes)

    def of_history(self, account: str | None, history: History) -> Queries:
        """One query with these events, at the time of the newest event of the dataset and of the history."""
        index = self.account_index.get(account, UNSEEN) if account is not None else UNSEEN
        size = len(history.items)
        queries = self._queries(np.array([index]), np.array([0]), np.array([size]), history.items)
        if history.times is None or self._newest_event is None or self.dataset.times is None:
            return queries
        now = max([int(self.dataset.times[self._newest_event]), *history.times[-1:].tolist()])
        return replace(queries, times=np.append(history.times, now), target_event=np.array([size]))

    def of_people(self, history: History, owner: Longs, count: int) -> Queries:
        """One query for each person: that of a new account with this person's events alone.

        Args:
            owner: the person of each event.
        """
        order = np.argsort(owner, kind="stable")
        stop = np.cumsum(np.bincount(owner, minlength=count))
        queries = self._queries(np.full(count, UNSEEN), np.append(0, stop[:-1]), stop, history.items[order])
        if history.times is None or self._newest_event is None or self.dataset.times is None:
            return queries
        times = np.append(history.times[order], self.dataset.times[self._newest_event])
        return replace(queries, times=times, target_event=np.full(count, len(order)))

    def events_of(self, queries: Queries, history: Events | None, times: Times | None) -> History:
        """The events of the first query and their times.

        Args:
            history: the item ids or the history that the query was made from; None: the stored history.
            times: of each of these ids.
        """
        if isinstance(history, History):
            return history
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

    def _queries(self, index: Longs, start: Longs, stop: Longs, events: npt.NDArray[np.int32]) -> Queries:
        """Queries without a target; an account that training does not have gets no index."""
        learned = index >= 0
        learned[learned] = self._learned_accounts[index[learned]]
        no_target = np.zeros(len(index), dtype=np.int32)
        return Queries(
            account=np.where(learned, index, UNSEEN).astype(np.int32),
            owner=index.astype(np.int32),
            start=start,
            stop=stop,
            target=no_target,
            target_event=no_target.astype(np.int64),
            events=events,
            times=None,
        )


@dataclass(frozen=True)
class Source:
    """The ids, histories, catalogue and people finder that a recommender works with.

    Args:
        catalogue: returns what is known of items: titles, categories, years and images by item id.
        finder: returns the people finder; raises an error where people cannot be found.
        config: of a bundle the content of its config.json.
        card: of a bundle its model card.
        population: of a bundle the summary of all accounts (population.py), where it has one.
    """

    histories: Histories
    finder: Callable[[], PeopleFinder]
    finds_people: bool
    catalogue: Callable[[], Catalogue] = dict
    config: Mapping[str, Any] = field(default_factory=dict)
    card: str = ""
    population: Mapping[str, Any] | None = None


def whole_logs(dataset: Dataset) -> tuple[Longs, Longs]:
    """Where the history of each account starts and stops among the events; equal where it has none.

    Lines of an account that have times stand side by side and are one log. Where their order is not known, as in
    windows, the longest line is its history.
    """
    owner, start, stop = np.asarray(dataset.sequence_accounts), dataset.offsets[:-1], dataset.offsets[1:]
    first, last = np.zeros((2, len(dataset.accounts)), dtype=np.int64)
    # The longest line comes last, so that it is what stays; of equally long ones the first.
    order = np.lexsort((-np.arange(len(owner)), stop - start))
    first[owner[order]], last[owner[order]] = start[order], stop[order]
    if dataset.kind == "logs" and dataset.times is not None:
        np.minimum.at(first, owner, start)
        np.maximum.at(last, owner, stop)
    return first, last


def left_out(items: Sequence[str], dataset: Dataset, of: str) -> tuple[str, ...]:
    """A note on ids that the catalogue does not have, if there are any."""
    missing = list(dict.fromkeys(item for item in items if item not in dataset.item_index))
    return (f"left out of {of}, because not in {dataset.name}: {_named(missing)}",) if missing else ()


def read_times(times: Times) -> Longs:
    """Microseconds of ISO dates, in the log's own time zone, or UTC if a zone is given; integers are microseconds."""
    return np.array([_microseconds(time) for time in times], dtype=np.int64)


def _microseconds(time: str | int) -> int:
    try:
        microseconds = time if type(time) is int else _parse(str(time))
    except (ValueError, OverflowError):
        microseconds = LATEST + 1
    if not EARLIEST <= microseconds <= LATEST:
        raise SettingError(
            f"times: expected ISO dates like 2024-05-01 20:15, or microseconds since 1970, "
            f"within the years 1900 to 2262; found {str(time)[:40]!r}."
        )
    return microseconds


def _parse(text: str) -> int:
    read = datetime.fromisoformat(text)
    if read.tzinfo is not None:
        read = read.astimezone(UTC).replace(tzinfo=None)
    return (read - EPOCH) // timedelta(microseconds=1)


def _known(accounts: Sequence[str]) -> str:
    return f"{len(accounts):,} others are known" if len(accounts) else "none is known here"


def _named(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - NAMED:,} more" if len(ids) > NAMED else ""
    return ", ".join(map(repr, ids[:NAMED])) + more

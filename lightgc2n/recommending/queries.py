"""The queries of a recommender: ids, histories and filters, checked and turned into arrays that a scorer reads.

A query has one of these histories:

account            the stored history at the end of the dataset, and the account's row in the training graph:
                   what `evaluate` measures
account, history   the given history; the account's latent users are inferred from it, starting at its own embedding
history            the given history; the latent users start at the mean of all accounts

`TorchScorer` computes scores with torch, `OnnxScorer` with onnxruntime.
Shapes: Q queries, M items, K list length, A latent users, T events of a history, D vector width.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from lightgc2n.data.catalogue import Catalogue
from lightgc2n.data.dataset import Dataset, Ints, Longs
from lightgc2n.data.splits import UNSEEN, Queries
from lightgc2n.errors import HISTORY, DataError, ScoreError, SettingError, option
from lightgc2n.people.finder import PeopleFinder

Flags = npt.NDArray[np.bool_]
NAMED = 5  # ids that a message names
Times = Sequence[str] | Sequence[int]
EPOCH = datetime(1970, 1, 1)
# The years 1900 to 2262, as for imported logs: values in another unit fall outside.
EARLIEST, LATEST = -2_208_988_800_000_000, 9_214_646_400_000_000
Floats = npt.NDArray[np.float32]
Scores = npt.NDArray[np.floating[Any]]
TopItems = tuple[Floats, Longs]  # scores and items [Q, K], best first; minus infinity where no item is left


@dataclass(frozen=True)
class ListOptions:
    """The length of a list and its filters."""

    k: int
    exclude_seen: bool  # leave out the items of the history
    listed: Flags  # [M] which items may be listed


def list_options(
    dataset: Dataset,
    everything: Flags,
    k: int = 20,
    exclude_seen: bool = False,
    allow: Iterable[str] | None = None,
    deny: Iterable[str] | None = None,
    domain: str | None = None,
) -> ListOptions:
    """Return the options for these filters; raise an error if an id is unknown or no item is left.

    Args:
        everything: True for every item; the options without filters share this array.
    """
    if k < 1:
        raise SettingError(f"k{option(' (-k)', '')} must be at least 1, found {k}.")
    if allow is None and deny is None and domain is None:
        return ListOptions(k, exclude_seen, everything)
    listed = np.ones(len(dataset.items), dtype=bool)
    if domain is not None:
        chosen = dataset.domain(domain)
        listed[: chosen.start] = listed[chosen.stop :] = False
    if allow is not None:
        allowed = np.zeros_like(listed)
        allowed[item_indices(dataset, (("allow", item) for item in allow))] = True
        listed &= allowed
    if deny is not None:
        listed[item_indices(dataset, (("deny", item) for item in deny))] = False
    if not listed.any():
        raise DataError("no item may be listed: allow, deny and domain together leave none.")
    return ListOptions(k, exclude_seen, listed)


def item_indices(dataset: Dataset, named: Iterable[tuple[str, str]]) -> list[int]:
    """Return the index of each item id.

    Args:
        named: pairs of the place that names an id, for the error message, and the id.
    """
    known, indices = dataset.item_index, []
    for where, item in named:
        if item not in known:
            raise DataError(f"{where}: item {item!r} is not in {dataset.name} ({len(known):,} items).")
        indices.append(known[item])
    return indices


def read_item_ids(path: Path, dataset: Dataset) -> list[str]:
    """Return the item ids of a file with one id a line; raise an error if the dataset does not have one of them."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError:
        raise DataError(f"{path}: not a text file in UTF-8. Write one item id a line.") from None
    ids = {number: line for number, line in enumerate(lines, start=1) if line}
    if not ids:
        raise DataError(f"{path}: holds no item id. Write one a line.")
    item_indices(dataset, ((f"{path}:{number}", item) for number, item in ids.items()))
    return list(ids.values())


@dataclass(frozen=True)
class QueryBatch:
    """Queries with the same list options.

    Args:
        fold_in: the caller gives the histories, so latent users are inferred from them; False: stored histories.
    """

    queries: Queries
    options: ListOptions
    fold_in: bool

    @property
    def lengths(self) -> Longs:
        """The number of events of each history."""
        return self.queries.stop - self.queries.start

    def events(self, row: int) -> npt.NDArray[np.int32]:
        """The history of one query."""
        return self.queries.events[self.queries.start[row] : self.queries.stop[row]]


@dataclass(frozen=True)
class PreparedQuery:
    """A checked request for one list; its batch has one query, or one for each person of a list for all of them."""

    account_id: str | None
    batch: QueryBatch
    notes: tuple[str, ...]
    together: bool = False

    @property
    def events(self) -> npt.NDArray[np.int32]:
        """The history of the account or, in a list for all people, of the first person."""
        return self.batch.events(0)


@runtime_checkable
class Scorer(Protocol):
    """Scores items for histories."""

    @property
    def popularity(self) -> Longs:
        """The number of training events of each item [M]."""

    @property
    def learned_items(self) -> Flags:
        """The items that rank before all others [M]: those that the model has learned to score."""

    def item_vectors(self) -> Floats:
        """A unit vector for each item [M, D]; zeros where nothing was learned."""

    def top_items(self, batches: Sequence[QueryBatch]) -> Iterator[TopItems]:
        """Yield the best items of all queries in order, several rows at a time; K may differ between yields."""

    def tiles(self, batch: QueryBatch) -> list[int]:
        """How many queries `top_items` computes at once, for each of its steps."""

    def scores(self, batch: QueryBatch) -> Scores:
        """The score of every item [Q, M]; popularity without a history, minus infinity for what may not be listed."""

    def latent_users(self, queries: Queries) -> tuple[Floats, Floats]:
        """The shares of the first query's events [A, T], and the weights of the latent users [A]."""


def refuse_diverged(name: str, shares: Floats, weights: Floats) -> None:
    """Raise an error if a latent user's share or weight is not finite."""
    for what, numbers in (("share", shares), ("weight", weights)):
        if not np.isfinite(numbers).all():
            raise ScoreError(f"{name}: a latent user's {what} is not finite. Train with a lower learning rate.")


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
        population: of a bundle the summary of all accounts, where it has one.
    """

    histories: Histories
    finder: Callable[[], PeopleFinder]
    finds_people: bool
    catalogue: Callable[[], Catalogue] = dict
    config: Mapping[str, Any] = field(default_factory=dict)
    card: str = ""
    population: Mapping[str, Any] | None = None


def whole_logs(dataset: Dataset) -> tuple[Longs, Longs]:
    """Return where the history of each account starts and stops among the events; both are equal for an empty history.

    The lines of an account are adjacent; with times they form one log. If their order is unknown, as in
    windows, the longest line is the history.
    """
    owner, start, stop = np.asarray(dataset.sequence_accounts), dataset.offsets[:-1], dataset.offsets[1:]
    first, last = np.zeros((2, len(dataset.accounts)), dtype=np.int64)
    # The last assignment wins: the longest line, and of equally long ones the first.
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

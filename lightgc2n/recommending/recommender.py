"""Recommendations from a trained run or a bundle, for accounts, for histories, and for the people behind them.

A recommender is given a scorer, which runs the model, and a source, which has ids, histories, titles and the people
finder. `load_run` and `load_bundle` build the two kinds.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from string import ascii_uppercase
from typing import TypedDict, Unpack

import numpy as np

from lightgc2n.data.catalogue import Catalogue, titles_of
from lightgc2n.data.dataset import Dataset, Ints
from lightgc2n.data.splits import Queries
from lightgc2n.errors import HISTORY, DataError, SettingError, option
from lightgc2n.people.finder import People, PeopleFinder
from lightgc2n.people.sessions import Logs, newest_sessions
from lightgc2n.progress import step
from lightgc2n.recommending.list_blocks import ListBlock, block_of, remarks
from lightgc2n.recommending.people_report import by_weight, people_report, top_items_for_all
from lightgc2n.recommending.queries import (
    Events,
    Flags,
    History,
    PreparedQuery,
    QueryBatch,
    Scorer,
    Source,
    Times,
    item_indices,
    list_options,
    read_item_ids,
    refuse_diverged,
)
from lightgc2n.recommending.results import (
    AccountPeople,
    Interaction,
    Ownership,
    Recommendation,
    Recommendations,
    Watching,
)
from lightgc2n.recommending.watching import context_of_events, watching

ANALYSED_SESSIONS = 2000  # the newest, in which people are found; a sample of them is compared pair by pair
ACCOUNTS_AT_ONCE = 2000  # whose people are found together
ACCOUNT = option("--account", "account=")
PERSON_OR_ALL = (
    f"a list is for one person ({option('--person', 'person=')}) or for all ({option('--together', 'together=True')}): "
    f"leave one of them out."
)
ONE_ASSUMED = "one person is assumed: too few logs were there to learn how people are told apart"


class ListArguments(TypedDict, total=False):
    """The length of a list and its filters, as in `list_options`."""

    k: int  # 20 by default
    exclude_seen: bool  # leave out the items of the history
    allow: Iterable[str] | None  # the only items that may be listed
    deny: Iterable[str] | None  # items that may not be listed
    domain: str | None  # list items of this domain alone


class QueryArguments(ListArguments, total=False):
    """Arguments of one list."""

    times: Times | None  # of each event of the history, where people are to be found in it
    person: str | None  # one of the people behind it (A, B ...): the list is for them alone
    together: bool  # the list is for all people behind it


class Recommender:
    """Lists of next items, latent users, and people."""

    def __init__(self, name: str, scorer: Scorer, source: Source) -> None:
        self.name, self.scorer, self.source = name, scorer, source
        self.dataset: Dataset = source.histories.dataset
        self._histories = source.histories

    def recommend(
        self, account: str | None = None, history: Sequence[str] | None = None, **arguments: Unpack[QueryArguments]
    ) -> Recommendations:
        """The k best next items for an account, for an account with another history, or for a history alone.

        Args:
            history: item ids, oldest first; ids that the catalogue does not have are ignored, and the notes name them.
            arguments: filters of the list, and for whom it is.
        """
        return self.answer([self.prepare(account, history, **arguments)])[0]

    def recommend_many(
        self, accounts: Iterable[str] | None = None, **arguments: Unpack[ListArguments]
    ) -> Iterator[Recommendations]:
        """A list for each account in the given order (by default all accounts of the dataset), computed in batches."""
        names, batch = self._batch_of_accounts(accounts, arguments)
        return self._lists([batch], names, [()] * len(names))

    def list_blocks(
        self, accounts: Iterable[str] | None = None, **arguments: Unpack[ListArguments]
    ) -> Iterator[ListBlock]:
        """The lists of `recommend_many` as arrays, several accounts at a time."""
        names, batch = self._batch_of_accounts(accounts, arguments)
        with step("recommending, accounts", total=len(names)) as shown:
            for scores, items in self.scorer.top_items([batch]):
                part = slice(int(shown.done), int(shown.done) + len(items))
                yield block_of(names[part], batch.lengths[part], scores, items)
                shown.advance(len(items))

    def _batch_of_accounts(
        self, accounts: Iterable[str] | None, arguments: ListArguments
    ) -> tuple[list[str], QueryBatch]:
        """The names of the accounts, and a query for each with its stored history."""
        names = list(self.dataset.accounts if accounts is None else accounts)
        queries = self._histories.of_accounts(names)
        options = list_options(self.dataset, self._everything, **arguments)
        return names, QueryBatch(queries, options, fold_in=False)

    def prepare(
        self,
        account: str | None = None,
        history: Events | None = None,
        *,
        times: Times | None = None,
        person: str | None = None,
        together: bool = False,
        **arguments: Unpack[ListArguments],
    ) -> PreparedQuery:
        """Check the arguments of `recommend` and find the people where needed; `answer` computes the list.

        Args:
            history: as for `recommend`, or a `History` with times.
        """
        options = list_options(self.dataset, self._everything, **arguments)
        queries, notes = self._query(account, history)
        query = PreparedQuery(account, QueryBatch(queries, options, fold_in=history is not None), notes)
        if person is None and not together:
            return query
        if person is not None and together:
            raise SettingError(PERSON_OR_ALL)
        return self._for_people(query, history, times, person)

    def answer(self, queries: Sequence[PreparedQuery]) -> list[Recommendations]:
        """A list for each query; a bundle scores them in one batch."""
        single = [query for query in queries if not query.together]
        lists = self._lists(
            [query.batch for query in single], [query.account_id for query in single], [query.notes for query in single]
        )
        return [self._list_for_all(query) if query.together else next(lists) for query in queries]

    def people(
        self,
        account: str | None = None,
        history: Events | None = None,
        times: Times | None = None,
        *,
        k: int = 20,
        exclude_seen: bool = False,
    ) -> AccountPeople:
        """How many people are behind an account or a history, who did what, what each likes, and lists for them.

        Args:
            history: as for `recommend`, or a `History`; without it the stored history of the account.
            times: of each event of the history: ISO dates, or microseconds since 1970.
            k: length of the lists.
            exclude_seen: leave out items of the person's history; of the list for all, those of anybody's.
        """
        options = list_options(self.dataset, self._everything, k, exclude_seen)
        queries, list_notes = self._query(account, history)
        events, people, notes = self._find_people(account, queries, history, times)
        if not self.finder.head.taught:
            list_notes, notes = (*list_notes, ONE_ASSUMED), (*notes, ONE_ASSUMED)
        whole = PreparedQuery(account, QueryBatch(queries, options, fold_in=history is not None), list_notes)
        lists, together = self.answer([whole]), None
        whole_list = lists[0]
        if people.count > 1:
            batch = replace(whole.batch, queries=self._by_person(events, people), fold_in=True)
            lists = list(self._lists([batch], [account] * people.count, [()] * people.count))
            together = self._list_for_all(PreparedQuery(account, batch, ()))
        return people_report(
            account, events, people, self.dataset.items, self._categories_of(events.items),
            self.domains_of(events.items), self.scorer.popularity, lists, together, whole_list, notes,
        )  # fmt: skip

    def count_people(self, account: str) -> People:
        """The people behind a known account, without lists."""
        return self._find_people(account, self._histories.of_accounts([account]), None, None)[1]

    def people_of_all(self, accounts: Iterable[str]) -> Iterator[tuple[str, People]]:
        """Yield each of these accounts that has events, with the people behind it; computed in batches."""
        names = iter(accounts)
        while part := list(islice(names, ACCOUNTS_AT_ONCE)):
            queries = self._histories.of_accounts(part)
            some = np.flatnonzero(queries.stop > queries.start)
            every = (self._histories.events_of(queries.select(some[[at]]), None, None) for at in range(len(some)))
            logs = logs_of([self._newest(history)[0] for history in every], self.finder)
            rows = np.array([self._histories.account_index[part[place]] for place in some.tolist()], dtype=np.int64)
            for place, people in zip(some.tolist(), self.finder.find_all(logs, rows), strict=True):
                yield part[place], by_weight(people)

    def _newest(self, events: History) -> tuple[History, int]:
        """The events of the newest sessions, in which people are found, and how many are left out."""
        newest = newest_sessions(self.finder.sessions_of(events.items, events.times), ANALYSED_SESSIONS)
        times = None if events.times is None else events.times[newest]
        return History(events.items[newest], times), newest.start

    def who(
        self,
        account: str | None = None,
        history: Events | None = None,
        times: Times | None = None,
        *,
        time: str | int | None = None,
        items: Sequence[str] = (),
        context: str | None = None,
    ) -> Watching:
        """The probability that each person behind an account or a history is watching.

        Args:
            history: as for `recommend`; without it the stored history of the account.
            times: of each event of the history.
            time: of the query: an ISO date, or microseconds since 1970; not before the newest event.
            items: the items of the current session so far, in order.
            context: such as the device, where the log keeps that column.
        """
        queries, notes = self._query(account, history)
        events, people, more = self._find_people(account, queries, history, times)
        stop = int(queries.stop[0])
        if context is not None and history is not None:
            raise SettingError("context: only stored histories have one. Leave it out, or leave out the history.")
        own = context_of_events(self.dataset, slice(stop - len(events.items), stop), context)
        row = self._histories.account_index.get(account) if account is not None else None
        notes = (*notes, *more) if self.finder.head.taught else (*notes, *more, ONE_ASSUMED)
        return watching(account, events, people, self.finder, row, self.dataset, time, items, own, notes)

    def ownership(self, account: str | None = None, history: Sequence[str] | None = None) -> Ownership:
        """The share of each latent user in each event of an account, of an account with another history, or of one.

        The latent users are inferred from that history, those of a known account starting at its own embedding.

        Args:
            history: as for `recommend`; without it the stored history of the account.
        """
        queries, notes = self._query(account, history)
        shares, weights = self.scorer.latent_users(queries)
        refuse_diverged(self.name, shares, weights)
        items = [self.dataset.items[item] for item in queries.events[queries.start[0] : queries.stop[0]]]
        rows = zip(items, shares.T.tolist(), strict=True)
        interactions = tuple(Interaction(item, tuple(own)) for item, own in rows)
        remarks = () if items else ("no history: there is nothing to own",)
        return Ownership(account, interactions, tuple(weights.tolist()), (*notes, *remarks))

    def similar(self, item: str, k: int = 20) -> Recommendations:
        """The k items whose vectors have the largest cosine with that of an item; the score is the cosine."""
        if k < 1:
            raise SettingError(f"k must be at least 1, found {k}.")
        (index,) = item_indices(self.dataset, [("similar", item)])
        vectors = self.scorer.item_vectors()
        cosines = vectors @ vectors[index]
        order = np.lexsort((-cosines, ~self.scorer.learned_items))
        order = order[order != index][:k]
        return self._list(None, order.tolist(), cosines[order].tolist(), 1, ())

    def knows(self, account: str) -> bool:
        """Whether there is such an account."""
        return account in self._histories.account_index

    def stored_history(self, account: str) -> History | None:
        """The history of an account in the run or the bundle; None if there is none."""
        if not self._histories.stored or not self.knows(account):
            return None
        return self._histories.events_of(self._histories.of_accounts([account]), None, None)

    def read_items(self, path: Path) -> list[str]:
        """The item ids of a file with one id a line; an unknown id raises an error."""
        return read_item_ids(path, self.dataset)

    @property
    def finds_people(self) -> bool:
        """Whether `people`, `person` and `together` can be used."""
        return self.source.finds_people

    @cached_property
    def catalogue(self) -> Catalogue:
        """What is known of items: titles, categories, years and images by item id."""
        return self.source.catalogue()

    @cached_property
    def titles(self) -> dict[str, str]:
        """The titles by item id, where known."""
        return titles_of(self.catalogue)

    @cached_property
    def finder(self) -> PeopleFinder:
        """The people finder; raises an error where people cannot be found."""
        return self.source.finder()

    @cached_property
    def _everything(self) -> Flags:
        """Every item may be listed; all options without filters share this array."""
        return np.ones(len(self.dataset.items), dtype=bool)

    def _query(self, account: str | None, history: Events | None) -> tuple[Queries, tuple[str, ...]]:
        """One query with the stored or the given history, and notes on it."""
        if isinstance(history, History):
            return self._histories.of_history(account, history), history.notes
        if history is not None:
            return self._histories.of_items(account, history)
        if account is None:
            raise SettingError(f"expected an account ({ACCOUNT}), a history ({HISTORY}) or both, found neither.")
        return self._histories.of_accounts([account]), ()

    def _for_people(
        self, query: PreparedQuery, history: Events | None, times: Times | None, person: str | None
    ) -> PreparedQuery:
        """The same query for one of the people behind it; without `person`, for all of them."""
        events, people, notes = self._find_people(query.account_id, query.batch.queries, history, times)
        query = replace(query, notes=(*query.notes, *notes))
        names = ascii_uppercase[: people.count]
        if person is not None and (len(person) != 1 or person not in names):
            raise DataError(f"person {person!r} is not among those found, who are {', '.join(names)}.")
        if people.count == 1:
            return query
        queries = self._by_person(events, people)
        if person is not None:
            queries = queries.select(np.array([names.index(person)]))
        return replace(query, batch=replace(query.batch, queries=queries, fold_in=True), together=person is None)

    def _find_people(
        self, account: str | None, queries: Queries, history: Events | None, times: Times | None
    ) -> tuple[History, People, tuple[str, ...]]:
        """The newest sessions of the history, the people behind them, those with the most events first, and notes."""
        events = self._histories.events_of(queries, history, times)
        if not len(events.items):
            whose = "the history is empty" if history is not None else f"account {account!r} has no history"
            raise DataError(f"{whose}, so no people can be estimated.")
        row = self._histories.account_index.get(account) if account is not None else None
        events, left_out = self._newest(events)
        people = by_weight(self.finder.find(events.items, events.times, row=row))
        return events, people, (_left_out(left_out),) if left_out else ()

    def _categories_of(self, items: Ints) -> list[tuple[str, ...]]:
        """The categories of each item; empty where the catalogue has none."""
        entries = (self.catalogue.get(self.dataset.items[item]) for item in items.tolist())
        return [entry.categories if entry is not None else () for entry in entries]

    def domains_of(self, items: Ints) -> list[str]:
        """The domain of each item; empty where there is only one."""
        domains = self.dataset.domains
        stops = np.array([domain.stop for domain in domains])
        return [domains[own].name for own in np.searchsorted(stops, items, side="right")] if len(domains) > 1 else []

    def _by_person(self, events: History, people: People) -> Queries:
        return self._histories.of_people(events, people.share.argmax(axis=1), people.count)

    def _list_for_all(self, query: PreparedQuery) -> Recommendations:
        scores, k = self.scorer.scores(query.batch), query.batch.options.k
        values, items = top_items_for_all(scores, self.scorer.learned_items, k)
        return self._list(query.account_id, items.tolist(), values.tolist(), 1, query.notes)

    def _lists(
        self, batches: Sequence[QueryBatch], names: Sequence[str | None], notes: Sequence[tuple[str, ...]]
    ) -> Iterator[Recommendations]:
        """One list for each query of all batches, with its account's name and notes."""
        sizes = ((batch.options.k, length) for batch in batches for length in batch.lengths.tolist())
        rows = zip(names, notes, sizes, strict=True)
        for values, best in self.scorer.top_items(batches):
            counts = np.isfinite(values).sum(axis=1).tolist()
            for scores, items, count in zip(values.tolist(), best.tolist(), counts, strict=True):
                name, own_notes, (k, length) = next(rows)
                count = min(count, k)
                yield self._list(name, items[:count], scores[:count], length, own_notes)

    def _list(
        self, name: str | None, items: list[int], scores: list[float], length: int, notes: Sequence[str]
    ) -> Recommendations:
        """One list by item ids, made from a history of this length."""
        ids = self.dataset.items
        ranked = enumerate(zip(items, scores, strict=True), start=1)
        listed = tuple(Recommendation(ids[item], score, rank) for rank, (item, score) in ranked)
        return Recommendations(name, listed, length == 0, (*notes, *remarks(length, len(items))))


def logs_of(histories: Sequence[History], finder: PeopleFinder) -> Logs:
    """The histories as logs in which the finder finds people."""
    offsets = np.cumsum([0, *(len(history.items) for history in histories)])
    times = None
    if finder.gap is not None:
        times = np.concatenate([history.times for history in histories if history.times is not None] or [offsets[:0]])
    items = np.concatenate([np.zeros(0, dtype=np.int32), *(history.items for history in histories)])
    return Logs(offsets, items, times, np.zeros((finder.catalogue, 0), dtype=np.float32), finder.gap)


def _left_out(events: int) -> str:
    return f"people are found in the newest {ANALYSED_SESSIONS:,} sessions: {events:,} older events are left out"

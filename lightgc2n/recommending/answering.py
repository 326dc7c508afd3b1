"""What a recommender over a run and one over a bundle share: ids, histories, wishes and lists, with numpy alone.

account        its stored history, asked when the dataset ends, and its place in the graph that the model learned on:
               what `evaluate` measures
both           the given history; the account's latent users are found anew from it, starting from its own embedding
history        the given history; the latent users start from the mean of all accounts
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Dataset, Longs
from lightgc2n.data.splits import UNSEEN, Queries
from lightgc2n.errors import HISTORY, DataError, SettingError, option
from lightgc2n.recommending.answers import Recommendation, Recommendations
from lightgc2n.recommending.histories import whole_logs
from lightgc2n.recommending.ownership import Ownership, refuse_diverged, tell

NAMED = 5  # how many ids a sentence names before it stops
NAME_SOMEBODY = f"Give an account ({option('--account', 'account=')}), a history ({HISTORY}) or both."

Floats = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Wish:
    """How lists are to be made."""

    k: int
    exclude_seen: bool
    listed: Flags  # which items may be listed at all


class Answering(ABC):
    """Lists of next items; how scores come about is left to the run or the bundle.

    Args:
        learned_accounts: of which accounts training has events; the others stay nameless.
    """

    def __init__(self, name: str, dataset: Dataset, learned_accounts: Flags) -> None:
        self.name, self.dataset = name, dataset
        self.titles: dict[str, str] = {}  # what items are called, as far as the run or the bundle knows
        self._learned_accounts = learned_accounts
        self._log_start, self._log_stop = whole_logs(dataset)

    @abstractmethod
    def _best(self, queries: Queries, wish: Wish, fold_in: bool) -> Iterator[tuple[Floats, Longs]]:
        """The best scores and items of all queries, some rows at a time; minus infinity where no item is left."""

    @abstractmethod
    def _latent_users(self, queries: Queries) -> tuple[Floats, Floats]:
        """The shares of the first query's events [A, T], and the weights of the latent users [A]."""

    def recommend_many(
        self,
        accounts: Iterable[str] | None = None,
        *,
        k: int = 20,
        exclude_seen: bool = False,
        allow: Iterable[str] | None = None,
        deny: Iterable[str] | None = None,
        domain: str | None = None,
    ) -> Iterator[Recommendations]:
        """A list for each account in the order given (all accounts of the dataset, if none is), made in batches."""
        names, queries, notes = self._stored(list(self.dataset.accounts if accounts is None else accounts))
        wish = self._wish(k, exclude_seen, allow, deny, domain)
        return self._lists(names, queries, notes, wish, fold_in=False)

    def ownership(self, account: str | None = None, history: Sequence[str] | None = None) -> Ownership:
        """How far each event is each latent user's: of an account, of an account with another history, or of a history.

        Whatever is given, the latent users are found from that history, a known account's from its own embedding on.

        Args:
            history: as for `recommend`; without it the stored history of the account.
        """
        (name,), queries, (notes,) = self._asked(account, history)
        shares, weights = self._latent_users(queries)
        refuse_diverged(self.name, shares, weights)
        items = [self.dataset.items[item] for item in queries.events[queries.start[0] : queries.stop[0]]]
        return tell(name, items, shares, weights, notes)

    def knows(self, account: str) -> bool:
        """Whether there is such an account."""
        return account in self._account_index

    def read_items(self, path: Path) -> list[str]:
        """The ids of a file, one a line; one that the catalogue does not have is refused."""
        try:
            lines = path.read_text(encoding="utf-8-sig").split("\n")
        except UnicodeDecodeError:
            raise DataError(f"{path}: not a text file in UTF-8. Write one item id a line.") from None
        found = {number: line for number, line in enumerate(lines, start=1) if line}
        if not found:
            raise DataError(f"{path}: holds no item id. Write one a line.")
        self._indices((f"{path}:{number}", item) for number, item in found.items())
        return list(found.values())

    def _wish(
        self, k: int, exclude_seen: bool, allow: Iterable[str] | None, deny: Iterable[str] | None, domain: str | None
    ) -> Wish:
        if k < 1:
            raise SettingError(f"k{option(' (-k)', '')} must be at least 1, found {k}.")
        if allow is None and deny is None and domain is None:
            return Wish(k, exclude_seen, self._everything)
        listed = np.ones(len(self.dataset.items), dtype=bool)
        if domain is not None:
            chosen = self.dataset.domain(domain)
            listed[: chosen.start] = listed[chosen.stop :] = False
        if allow is not None:
            allowed = np.zeros_like(listed)
            allowed[self._indices(("allow", item) for item in allow)] = True
            listed &= allowed
        if deny is not None:
            listed[self._indices(("deny", item) for item in deny)] = False
        if not listed.any():
            raise DataError("no item may be listed: allow, deny and domain together leave none.")
        return Wish(k, exclude_seen, listed)

    def _indices(self, named: Iterable[tuple[str, str]]) -> list[int]:
        """The indices of items, each told with the place that names it."""
        known, found = self.dataset.item_index, []
        for where, item in named:
            if item not in known:
                raise DataError(f"{where}: item {item!r} is not in {self.dataset.name} ({len(known):,} items).")
            found.append(known[item])
        return found

    @cached_property
    def _everything(self) -> Flags:
        """Every item may be listed; one array for all who wish for nothing else."""
        return np.ones(len(self.dataset.items), dtype=bool)

    @cached_property
    def _account_index(self) -> dict[str, int]:
        return {account: index for index, account in enumerate(self.dataset.accounts)}

    def _asked(
        self, account: str | None, history: Sequence[str] | None
    ) -> tuple[list[str | None], Queries, list[tuple[str, ...]]]:
        """One account with its stored history, or with the history that is given."""
        if history is not None:
            return self._given(account, history)
        if account is None:
            raise SettingError("nobody is named. " + NAME_SOMEBODY)
        return self._stored([account])

    def _stored(self, accounts: list[str]) -> tuple[list[str | None], Queries, list[tuple[str, ...]]]:
        """Accounts with the histories that the dataset has."""
        for account in accounts:
            if account not in self._account_index:
                raise DataError(
                    f"unknown account {account!r} ({_known(self.dataset.accounts)}). "
                    f"Give {HISTORY} to recommend for someone new."
                )
        index = np.array([self._account_index[account] for account in accounts], dtype=np.int64)
        queries = self._queries(index, self._log_start[index], self._log_stop[index], self.dataset.events)
        return [*accounts], queries, [()] * len(accounts)

    def _given(
        self, account: str | None, history: Sequence[str]
    ) -> tuple[list[str | None], Queries, list[tuple[str, ...]]]:
        """One account, or nobody, with the history that is given."""
        if isinstance(history, str):
            raise SettingError(f"history: expected a list of item ids, found the text {history!r}.")
        known, notes = self.dataset.item_index, []
        events = np.array([known[item] for item in history if item in known], dtype=np.int32)
        if missing := list(dict.fromkeys(item for item in history if item not in known)):
            notes.append(f"left out of the history, because not in {self.dataset.name}: {_named(missing)}")
        if account is not None and account not in self._account_index:
            notes.append(f"account {account!r} is not known: the history alone decides")
        index = self._account_index.get(account, UNSEEN) if account is not None else UNSEEN
        queries = self._queries(np.array([index]), np.array([0]), np.array([len(events)]), events)
        return [account], queries, [tuple(notes)]

    def _queries(self, index: Longs, start: Longs, stop: Longs, events: npt.NDArray[np.int32]) -> Queries:
        """Questions without a known answer; an account that training does not have stays nameless."""
        learned = index >= 0
        learned[learned] = self._learned_accounts[index[learned]]
        nothing = np.zeros(len(index), dtype=np.int32)
        return Queries(
            account=np.where(learned, index, UNSEEN).astype(np.int32),
            owner=index.astype(np.int32),
            start=start,
            stop=stop,
            target=nothing,
            target_event=nothing.astype(np.int64),
            events=events,
            times=None,
        )

    def _lists(
        self,
        names: Sequence[str | None],
        queries: Queries,
        notes: Sequence[tuple[str, ...]],
        wish: Wish,
        *,
        fold_in: bool,
    ) -> Iterator[Recommendations]:
        lengths, place = (queries.stop - queries.start).tolist(), 0
        for values, best in self._best(queries, wish, fold_in):
            counts = np.isfinite(values).sum(axis=1).tolist()
            for scores, items, count in zip(values.tolist(), best.tolist(), counts, strict=True):
                yield self._told(names[place], items[:count], scores[:count], lengths[place], notes[place])
                place += 1

    def _told(
        self, name: str | None, items: list[int], scores: list[float], length: int, notes: Sequence[str]
    ) -> Recommendations:
        """A list in words, made from a history of this length."""
        ids = self.dataset.items
        ranked = enumerate(zip(items, scores, strict=True), start=1)
        listed = tuple(Recommendation(ids[item], score, rank) for rank, (item, score) in ranked)
        return Recommendations(name, listed, length == 0, (*notes, *remarks_on(length, len(items))))


def remarks_on(length: int, count: int) -> Iterator[str]:
    """What is to be said of a list with `count` items, made from a history of this length."""
    if length == 0:
        yield "no history: the most popular items"
    if count == 0:
        yield "no item is left to list"


def _known(accounts: Sequence[str]) -> str:
    return f"{len(accounts):,} others are known" if len(accounts) else "none is known here"


def _named(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - NAMED:,} more" if len(ids) > NAMED else ""
    return ", ".join(map(repr, ids[:NAMED])) + more

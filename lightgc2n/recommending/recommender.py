"""A trained run that answers: what comes next for an account, or for a history alone.

account        its stored history, asked when the dataset ends, and its place in the graph that the model learned on:
               what `evaluate` measures
both           the given history; the account's latent users are found anew from it, starting from its own embedding
history        the given history; the latent users start from the mean of all accounts
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lightgc2n.data.batches import Batch, make_batch, query_batches
from lightgc2n.data.dataset import MANIFEST, Dataset, Domain, Longs, load_dataset, verify_dataset
from lightgc2n.data.splits import UNSEEN, Queries, Training, split_dataset
from lightgc2n.errors import DataError, SettingError
from lightgc2n.evaluation.ranks import refuse_not_finite, rows_per_tile
from lightgc2n.models.contract import Model
from lightgc2n.people.finding import PeopleFinder
from lightgc2n.recommending.best import best_for_all, best_of_two_kinds
from lightgc2n.recommending.finders import FinderPlace, finder_for, finder_place
from lightgc2n.recommending.histories import whole_logs
from lightgc2n.recommending.ownership import Ownership, refuse_diverged, tell
from lightgc2n.recommending.people import AccountPeople, History, by_weight, tell_people
from lightgc2n.training.runs import load_run, plan_of, read_run

NAMED = 5  # how many ids a sentence names before it stops


class Recommendation(NamedTuple):
    """One place of a list; the score orders the list and means nothing beyond it."""

    item_id: str
    score: float
    rank: int


@dataclass(frozen=True)
class Recommendations(Sequence[Recommendation]):
    """A list of items, best first, and what its reader should know."""

    account_id: str | None
    items: tuple[Recommendation, ...]
    fallback: bool = False  # nothing is known of the account, so these are the most popular items
    notes: tuple[str, ...] = ()

    @overload
    def __getitem__(self, place: int) -> Recommendation: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Recommendation, ...]: ...
    def __getitem__(self, place: int | slice) -> Recommendation | tuple[Recommendation, ...]:
        return self.items[place]

    def __len__(self) -> int:
        return len(self.items)


@dataclass(frozen=True)
class _Wish:
    """How lists are to be made."""

    k: int
    exclude_seen: bool
    listed: Bool[Tensor, "M"]  # which items may be listed at all


def load(path: str | Path, data: str | Path | None = None, device: str = "cpu") -> "Recommender":
    """The recommender over the run at `path`.

    Args:
        data: the run's dataset, if it has moved.
    """
    run = Path(path)
    plan, checksum = plan_of(run), read_run(run)["data"]["checksum"]
    folder = Path(data) if data is not None else plan.data
    if data is None and not (folder / MANIFEST).is_file():
        raise DataError(f"{run}: its dataset is no longer at {folder}. Say where it is with --data DIR.")
    dataset = load_dataset(folder)
    verify_dataset(folder)
    if dataset.checksum != checksum:
        raise DataError(
            f"{folder}: checksum {dataset.checksum[:12]}…, but {run} was trained on {checksum[:12]}…. "
            f"Give --data the dataset of the run."
        )
    if plan.domain:
        dataset = dataset.only(plan.domain)
    name, model, _ = load_run(run)
    train, place = split_dataset(dataset, plan.split).train, finder_place(run, checksum, plan.domain, plan.split)
    return Recommender(name, model.to(device), dataset, train, device, place)


class Recommender:
    """Lists of next items from one model, which is encoded once."""

    def __init__(
        self,
        name: str,
        model: Model,
        dataset: Dataset,
        train: Training,
        device: str = "cpu",
        finder_place: FinderPlace | None = None,
    ) -> None:
        self.name, self.model, self.dataset, self.device = name, model.eval(), dataset, device
        self._train, self._finder_place = train, finder_place
        with torch.no_grad():
            self._encoded = model.encode()
        self._popularity = torch.as_tensor(train.popularity, device=device)
        self._learned_items = (self._popularity > 0) | model.scores_unseen_items
        self._learned_accounts = np.zeros(len(dataset.accounts), dtype=bool)
        self._learned_accounts[train.sequence_accounts[np.diff(train.offsets) > 0]] = True
        self._log_start, self._log_stop = whole_logs(dataset)

    def recommend(
        self,
        account: str | None = None,
        history: Sequence[str] | None = None,
        *,
        k: int = 20,
        exclude_seen: bool = False,
        allow: Iterable[str] | None = None,
        deny: Iterable[str] | None = None,
        domain: str | None = None,
    ) -> Recommendations:
        """The k best next items for an account, for an account with another history, or for a history alone.

        Args:
            history: item ids, oldest first; an id that the catalogue does not have is left out, and the notes say so.
            allow: the only items that may be listed.
            deny: items that may not be listed.
            domain: list items of this domain alone.
        """
        wish = self._wish(k, exclude_seen, allow, deny, domain)
        return next(self._lists(*self._asked(account, history), wish, fold_in=history is not None))

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

    @torch.no_grad()
    def ownership(self, account: str | None = None, history: Sequence[str] | None = None) -> Ownership:
        """How far each event is each latent user's: of an account, of an account with another history, or of a history.

        Whatever is given, the latent users are found from that history, a known account's from its own embedding on.

        Args:
            history: as for `recommend`; without it the stored history of the account.
        """
        (name,), queries, (notes,) = self._asked(account, history)
        batch = make_batch(queries, self.device)
        users = self.model.people(self._encoded, batch)
        refuse_diverged(self.name, users)
        items = [self.dataset.items[item] for item in batch.history[0, : int(batch.length[0])].tolist()]
        return tell(name, items, users, notes)

    def people(self, account: str, *, k: int = 10, exclude_seen: bool = False) -> AccountPeople:
        """How many people are behind an account, who did what, what each likes, and lists for each and for all.

        What finds them is learned from the run's training logs the first time and kept in the run's folder.

        Args:
            k: length of the lists.
            exclude_seen: leave items out that the person has had; of the list for all, those that anybody has.
        """
        wish = self._wish(k, exclude_seen, None, None, None)
        names, queries, notes = self._stored([account])
        history = self._history(account, queries)
        row = self._account_index[account]
        found = by_weight(self._finder.find(history.items, history.times, row=row))
        whole = next(self._lists(names, queries, notes, wish, fold_in=False))
        lists, together = [whole], None
        if found.count > 1:
            own = self._by_person(history, found.share.argmax(axis=1), found.count)
            lists = list(self._lists([account] * found.count, own, [()] * found.count, wish, fold_in=True))
            together = self._together(account, own, wish)
        popularity = self._train.popularity
        return tell_people(account, history, found, self.dataset.items, popularity, lists, together, whole)

    @cached_property
    def _finder(self) -> PeopleFinder:
        if self.dataset.kind != "logs":
            raise DataError(f"{self.dataset.name} holds {self.dataset.kind}, and people are found in whole logs alone.")
        return finder_for(self._train, self._finder_place)

    def _history(self, account: str, queries: Queries) -> History:
        """The stored history of the one account asked about."""
        part = slice(int(queries.start[0]), int(queries.stop[0]))
        if part.start == part.stop:
            raise DataError(f"account {account!r} has no history, so there is nobody to be found.")
        times = self.dataset.times
        return History(np.asarray(self.dataset.events[part]), None if times is None else np.asarray(times[part]))

    def _by_person(self, history: History, owner: Longs, count: int) -> Queries:
        """A question for each person: that of a stranger with these events alone, asked when the dataset ends."""
        order = np.argsort(owner, kind="stable")
        stop = np.cumsum(np.bincount(owner, minlength=count))
        start = np.append(0, stop[:-1])
        queries = self._queries(np.full(count, UNSEEN), start, stop, history.items[order])
        if history.times is None or self.dataset.times is None:
            return queries
        times = np.append(history.times[order], self.dataset.times.max())
        return replace(queries, times=times, target_event=np.full(count, len(order)))

    def _together(self, account: str, own: Queries, wish: _Wish) -> Recommendations:
        scores = self._scores(make_batch(own, self.device), wish, fold_in=True)
        values, items = (part[0].tolist() for part in best_for_all(scores, self._learned_items, wish.k))
        listed = zip(items, values, strict=True)
        found = (Recommendation(self.dataset.items[item], value, rank) for rank, (item, value) in enumerate(listed, 1))
        return Recommendations(account, tuple(found), notes=tuple(_remarks(1, len(items))))

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
    ) -> _Wish:
        if k < 1:
            raise SettingError(f"k (-k) must be at least 1, found {k}.")
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
        return _Wish(k, exclude_seen, torch.as_tensor(listed, device=self.device))

    def _indices(self, named: Iterable[tuple[str, str]]) -> list[int]:
        """The indices of items, each told with the place that names it."""
        known, found = self.dataset.item_index, []
        for where, item in named:
            if item not in known:
                raise DataError(f"{where}: item {item!r} is not in {self.dataset.name} ({len(known):,} items).")
            found.append(known[item])
        return found

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
            raise SettingError("nobody is named. Give an account (--account), a history (--history) or both.")
        return self._stored([account])

    def _stored(self, accounts: list[str]) -> tuple[list[str | None], Queries, list[tuple[str, ...]]]:
        """Accounts with the histories that the dataset has."""
        for account in accounts:
            if account not in self._account_index:
                raise DataError(
                    f"unknown account {account!r} (known are {len(self.dataset.accounts):,}, like "
                    f"{self.dataset.accounts[0]!r}). Give --history to recommend for someone new."
                )
        index = np.array([self._account_index[account] for account in accounts], dtype=np.int64)
        queries = self._queries(index, self._log_start[index], self._log_stop[index], self.dataset.events)
        return [*accounts], self._asked_last(queries), [()] * len(accounts)

    def _asked_last(self, queries: Queries) -> Queries:
        """The same questions, asked when the dataset ends: everything in it has happened, and nothing after it."""
        times = self.dataset.times
        if times is None or not len(times):
            return queries
        return replace(queries, times=times, target_event=np.full_like(queries.target_event, times.argmax()))

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
        learned = (index >= 0) & self._learned_accounts[index]
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
        wish: _Wish,
        *,
        fold_in: bool,
    ) -> Iterator[Recommendations]:
        items, place = self.dataset.items, 0
        for asked in query_batches(queries, rows_per_tile(len(items)), self.device):
            values, best = best_of_two_kinds(self._scores(asked.batch, wish, fold_in), self._learned_items, wish.k)
            rows = (values.tolist(), best.tolist(), values.isfinite().sum(dim=1).tolist(), asked.batch.length.tolist())
            for scores, chosen, count, length in zip(*rows, strict=True):
                listed = tuple(
                    Recommendation(items[item], score, rank)
                    for rank, (item, score) in enumerate(zip(chosen[:count], scores, strict=False), start=1)
                )
                yield Recommendations(names[place], listed, length == 0, (*notes[place], *_remarks(length, count)))
                place += 1

    @torch.no_grad()
    def _scores(self, batch: Batch, wish: _Wish, fold_in: bool) -> Float[Tensor, "B M"]:
        """The model's scores, popularity where there is no history, and minus infinity for what may not be listed."""
        # A model that holds nothing for an account but its embedding needs no other way for a given history.
        score: Any = self.model.fold_in_scores if fold_in else self.model.scores
        scores = score(self._encoded, batch, Domain("all", 0, len(self.dataset.items)))
        refuse_not_finite(self.name, scores)
        scores = torch.where(batch.length[:, None] > 0, scores, self._popularity.to(scores.dtype))
        scores[:, ~wish.listed] = -torch.inf
        if wish.exclude_seen:
            row, place = torch.nonzero(batch.known, as_tuple=True)
            scores[row, batch.history[row, place]] = -torch.inf
        return scores


def _remarks(length: int, count: int) -> Iterator[str]:
    if length == 0:
        yield "no history: the most popular items"
    if count == 0:
        yield "no item is left to list"


def _named(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - NAMED:,} more" if len(ids) > NAMED else ""
    return ", ".join(map(repr, ids[:NAMED])) + more

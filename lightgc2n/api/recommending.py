"""Methods shared by runs and bundles: lists of next items, and the people behind accounts."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightgc2n.api.calls import api_call

if TYPE_CHECKING:
    from lightgc2n.api.results import AccountPeople, Ownership, Presenter, Recommendations
    from lightgc2n.recommending.queries import Times
    from lightgc2n.recommending.recommender import Recommender
    from lightgc2n.recommending.results import Watching

Id = str | int  # ids are text; a number is converted to text


class Recommending(ABC):
    """Recommends next items for an account, or for a history without an account."""

    _progress = True

    @property
    @abstractmethod
    def recommender(self) -> "Recommender":
        """The recommender, loaded when it is first used."""

    @property
    @abstractmethod
    def _presenter(self) -> "Presenter":
        """The converter of its results to results of the API."""

    @property
    def accounts(self) -> Sequence[str]:
        """The ids of the known accounts."""
        return self.recommender.dataset.accounts

    @property
    def items(self) -> Sequence[str]:
        """The ids of the items of the catalogue."""
        return self.recommender.dataset.items

    def recommend(
        self,
        account: Id | None = None,
        history: Sequence[Id] | None = None,
        *,
        k: int = 20,
        exclude_seen: bool = False,
        allow: Iterable[Id] | None = None,
        deny: Iterable[Id] | None = None,
        domain: str | None = None,
        times: "Times | None" = None,
        person: str | None = None,
        together: bool = False,
    ) -> "Recommendations":
        """Return the k best next items for an account, for an account with another history, or for a history alone.

        Args:
            account: the id of an account.
            history: item ids, oldest first; ids that are not in the catalogue are ignored, with a note.
            k: length of the list.
            exclude_seen: exclude items of the history.
            allow: the only items that may be listed.
            deny: items that may not be listed.
            domain: list only items of this domain.
            times: time of each event of the history (ISO dates), needed to find people in it.
            person: one of the people behind it (A, B ...), for a list for this person.
            together: make the list for all people behind it.

        Example:
            >>> run.recommend("user42", k=10).to_frame()
            >>> run.recommend(history=["a", "b"], exclude_seen=True)
        """
        with api_call(self._progress):
            listed = self.recommender.recommend(
                _text(account),
                _texts(history),
                k=k,
                exclude_seen=exclude_seen,
                allow=_texts(allow),
                deny=_texts(deny),
                domain=domain,
                times=times,
                person=person,
                together=together,
            )
            return self._presenter.recommendations(listed)

    def recommend_many(
        self, accounts: Iterable[Id] | None = None, *, k: int = 20, exclude_seen: bool = False,
        allow: Iterable[Id] | None = None, deny: Iterable[Id] | None = None, domain: str | None = None,
    ) -> "Iterator[Recommendations]":  # fmt: skip
        """Return a list for each account, in the given order; by default for all accounts of the data.

        The lists are computed lazily, in batches. The arguments are those of `recommend`.
        """
        with api_call(self._progress):
            presenter = self._presenter
            lists = self.recommender.recommend_many(
                _texts(accounts),
                k=k,
                exclude_seen=exclude_seen,
                allow=_texts(allow),
                deny=_texts(deny),
                domain=domain,
            )
            return map(presenter.recommendations, lists)

    def people(
        self,
        account: Id | None = None,
        history: Sequence[Id] | None = None,
        times: "Times | None" = None,
        *,
        k: int = 20,
        exclude_seen: bool = False,
    ) -> "AccountPeople":
        """Return how many people are behind an account or a history, who did what, and lists for each of them.

        Args:
            account: the id of an account.
            history: as for `recommend`; without it the stored history of the account.
            times: time of each event of the history: ISO dates, or microseconds since 1970.
            k: length of the lists.
            exclude_seen: exclude items that the person has watched; from the joint list, those that anybody has.

        Example:
            >>> people = run.people("user42")
            >>> people.count, people.people[0].next, people.to_frame()
        """
        with api_call(self._progress):
            result = self.recommender.people(_text(account), _texts(history), times, k=k, exclude_seen=exclude_seen)
            return self._presenter.people(result)

    def who(
        self,
        account: Id | None = None,
        history: Sequence[Id] | None = None,
        times: "Times | None" = None,
        *,
        time: "str | int | datetime | None" = None,
        items: Sequence[Id] = (),
        context: str | None = None,
    ) -> "Watching":
        """Return who of the people behind an account or a history is probably watching.

        Args:
            account: the id of an account.
            history: as for `recommend`; without it the stored history of the account.
            times: time of each event of the history: ISO dates, or microseconds since 1970.
            time: the time to estimate for, not before the newest event: an ISO date, a datetime, or microseconds
                since 1970.
            items: the items started in this session, in order.
            context: the device or other hint, where the dataset keeps that column.

        Example:
            >>> now = run.who("user42", time="2024-05-01T20:15", items=["a"])
            >>> now.chances, now.steps[0].chances
        """
        with api_call(self._progress):
            at = time.isoformat() if isinstance(time, datetime) else time
            return self.recommender.who(
                _text(account), _texts(history), times, time=at, items=_texts(items), context=context
            )

    def ownership(self, account: Id | None = None, history: Sequence[Id] | None = None) -> "Ownership":
        """Return each latent user's share of each event; an error for models without latent users."""
        with api_call(self._progress):
            return self._presenter.ownership(self.recommender.ownership(_text(account), _texts(history)))


class Bundle(Recommending):
    """An exported run, which needs no torch.

    Example:
        >>> bundle = lg.load("bundle")
        >>> bundle.recommend(history=["a", "b"])
        >>> bundle.similar("a")

    Attributes:
        folder: the folder of the bundle.
    """

    def __init__(self, folder: Path, recommender: "Recommender", progress: bool = True) -> None:
        self.folder, self._progress = folder, progress
        self._bundle: Any = recommender

    @property
    def recommender(self) -> "Recommender":
        """The recommender."""
        return self._bundle

    @property
    def _presenter(self) -> "Presenter":
        from lightgc2n.api.results import Presenter

        return Presenter(self._bundle.titles, None)

    @property
    def model(self) -> str:
        """The name of the model."""
        return str(self._bundle.name)

    def similar(self, item: Id, k: int = 20) -> "Recommendations":
        """Return the k items most similar to this one, by the item vectors of the model."""
        with api_call(self._progress):
            return self._presenter.recommendations(self._bundle.similar(str(item), k))

    def __repr__(self) -> str:
        data = self._bundle.dataset
        return (
            f"<Bundle of {self.model}: {len(data.items):,} items, {len(data.accounts):,} accounts "
            f"of {data.name!r}, at {self.folder}>"
        )


def _text(one: Any) -> str | None:
    return None if one is None else str(one)


def _texts(ids: Any) -> Any:
    """Convert ids to text. A string instead of a list is passed on, so that it raises an error."""
    return ids if ids is None or isinstance(ids, str) else [str(one) for one in ids]

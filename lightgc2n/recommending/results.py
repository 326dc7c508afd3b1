"""What a recommender returns: lists of items, the latent users of a history, and the people behind an account."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, overload


class Recommendation(NamedTuple):
    """One entry of a list; the score orders this list and is not comparable with other lists."""

    item_id: str
    score: float
    rank: int


@dataclass(frozen=True)
class Recommendations(Sequence[Recommendation]):
    """A list of items, best first."""

    account_id: str | None
    items: tuple[Recommendation, ...]
    fallback: bool = False  # there is no history, so these are the most popular items
    notes: tuple[str, ...] = ()  # remarks for the reader, for example which unknown items were ignored

    @overload
    def __getitem__(self, place: int) -> Recommendation: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Recommendation, ...]: ...
    def __getitem__(self, place: int | slice) -> Recommendation | tuple[Recommendation, ...]:
        return self.items[place]

    def __len__(self) -> int:
        return len(self.items)


class Interaction(NamedTuple):
    """One event of a history, and the share of each latent user in it; the shares sum to one."""

    item_id: str
    shares: tuple[float, ...]


@dataclass(frozen=True)
class Ownership(Sequence[Interaction]):
    """The events of a history, oldest first, with the share of each latent user.

    Latent users belong to the model: every account has the same number of them, and they are not people. One latent
    user may stand for several people, and several for one person.
    """

    account_id: str | None
    interactions: tuple[Interaction, ...]
    weights: tuple[float, ...]  # the share of each latent user in the account; they sum to one
    notes: tuple[str, ...] = ()

    @overload
    def __getitem__(self, place: int) -> Interaction: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Interaction, ...]: ...
    def __getitem__(self, place: int | slice) -> Interaction | tuple[Interaction, ...]:
        return self.interactions[place]

    def __len__(self) -> int:
        return len(self.interactions)


class PersonEvent(NamedTuple):
    """One event of an account, and the person who most probably caused it."""

    item_id: str
    time: str | None  # in the log's own time zone; None where the log has no times
    person: str
    probability: float
    shares: tuple[float, ...]  # the probability of every person, in the order of their letters; they sum to one


class Preference(NamedTuple):
    """A category, or a domain, that a person has at least twice."""

    name: str
    events: int
    share: float  # of the person's events


@dataclass(frozen=True)
class Activity:
    """Distribution of a person's events over time, by the clock of the log; each sums to one."""

    weekdays: tuple[float, ...]  # from Monday
    months: tuple[float, ...]  # from January
    hours: tuple[float, ...] | None  # from midnight; None if times are whole days


class Like(NamedTuple):
    """An item that a person has at least twice, more often than most accounts and the other people of the account."""

    item_id: str
    events: int  # of this person with the item
    times: float  # how many times as often as in the whole training data


@dataclass(frozen=True)
class Person:
    """One person behind an account."""

    name: str  # a letter; A has the most events
    events: int  # events of which this person is the most probable owner
    share: float  # these events as a share of all events
    likes: tuple[Like, ...]
    active: Activity | None  # when the person is active; None where the log has no times
    next: Recommendations
    categories: tuple[Preference, ...] = ()  # the most frequent ones, of at least two events; without any, domains
    description: str = ""  # "mostly history, weekend mornings"


@dataclass(frozen=True)
class AccountPeople:
    """How many people are behind an account, who did what, and a list for each of them."""

    account_id: str | None  # None where only a history was given
    count: int
    confidence: float  # the probability that the count is right
    chances: tuple[float, ...]  # the probabilities of one person, of two ...
    events: tuple[PersonEvent, ...]  # of the sessions that were analysed, oldest first
    people: tuple[Person, ...]
    together: Recommendations | None  # the list for all of them; None for one person
    whole: Recommendations  # the list for the account as one user
    sessions: tuple[int, ...]  # the session id of each event; a session belongs to one person
    notes: tuple[str, ...] = ()  # for example that older events were left out


class WatchingStep(NamedTuple):
    """The probability of each person after one more item of the session; they sum to one."""

    item_id: str | None  # None: before the first item
    chances: tuple[float, ...]  # in the order of the letters


@dataclass(frozen=True)
class Watching:
    """The probability that each person of an account is watching at a time."""

    account_id: str | None  # None where only a history was given
    time: str | None  # of the query; None where the log has no times
    people: tuple[str, ...]  # letters, as in AccountPeople of the same history
    steps: tuple[WatchingStep, ...]  # before the first item, then after each item
    going_on: int  # how many of the items are from the history, whose last session is still open at that time
    notes: tuple[str, ...] = ()

    @property
    def chances(self) -> dict[str, float]:
        """The probability of each person after all items of the session."""
        return dict(zip(self.people, self.steps[-1].chances, strict=True))

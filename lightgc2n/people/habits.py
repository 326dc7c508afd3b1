"""Evidence from all sessions of a person together: what they like, on which weekdays and at which hours they come.

Pairs of sessions say little about habits that show only in many sessions. Here a person's probability of the next
session follows from the person's other sessions, for three kinds of habit:

- tastes: groups of items, by a Dirichlet multinomial over the groups that go together with those of other sessions
- weekdays: a Dirichlet multinomial
- hours: a person is of one of some types, learned from all accounts, that come at certain hours of working days and
  weekends

How much each kind counts beside the evidence of pairs is learned, in `habit_training.py`.

Shapes: B accounts of N sessions each, E their (session, group) cells, K people (of one or more assignments, side by
side), G groups or days, Z types of people by their hours, F folds, M items.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Longs
from lightgc2n.data.split_types import ranges
from lightgc2n.people.session_features import Sessions
from lightgc2n.people.sessions import DAY, WEEKEND, Floats, clock

TASTE, WEEKDAYS = 0.1, 1.2  # Dirichlet priors of a group of items and of a weekday
STIRLING = 0.5 * float(np.log(2 * np.pi))


def log_gamma(values: Floats) -> Floats:
    """Return log Γ of positive numbers, by Stirling's series after three recursion steps; exact to 0.0001."""
    above = values + 3
    series = (above - 0.5) * np.log(above) - above + STIRLING + 1 / (12 * above)
    return np.asarray(series - np.log(values * (values + 1) * (values + 2)))


@dataclass(frozen=True)
class Counts:
    """How often the sessions of some accounts have each group: the cells that are not zero."""

    row: Longs  # [E] of the session among all B N, sorted
    group: Longs  # [E]
    count: Floats  # [E]
    spread: Floats  # [B, N, G] all counts, spread over groups that go together
    prior: float  # Dirichlet weight of each group

    @classmethod
    def of(cls, counts: Floats, spread: Floats, prior: float) -> "Counts":
        """Return the cells of these counts [B, N, G]."""
        flat = counts.reshape(-1, counts.shape[-1])
        row, group = np.nonzero(flat)
        return cls(row, group, flat[row, group], spread, prior)

    def scores(self, belongs: Floats) -> Floats:
        """Return the log probability of each session given the others of each person [B, N, K], up to a constant."""
        accounts, number, people = belongs.shape
        total = belongs.swapaxes(-1, -2) @ self.spread + self.prior  # [B, K, G]
        size = self.spread.sum(axis=-1, keepdims=True)
        rest = np.maximum(total.sum(axis=-1)[:, None] - belongs * size, self.prior)
        scores = log_gamma(rest) - log_gamma(rest + size)
        flat = belongs.reshape(-1, people)
        own = flat[self.row] * self.spread.reshape(accounts * number, -1)[self.row, self.group, None]
        rest = np.maximum(total[self.row // number, :, self.group] - own, self.prior)
        gains = log_gamma(rest + self.count[:, None]) - log_gamma(rest)
        first = np.flatnonzero(np.diff(self.row, prepend=-1))
        if len(first):
            scores.reshape(-1, people)[self.row[first]] += np.add.reduceat(gains, first, axis=0)
        return scores

    def totals(self, belongs: Floats) -> Floats:
        """Return the log probability of all sessions of each person [B, K], up to a constant for the account."""
        total = belongs.swapaxes(-1, -2) @ self.spread
        size = total.sum(axis=-1)
        wide = self.spread.shape[-1]
        alone = log_gamma(np.array(wide * self.prior)) - wide * log_gamma(np.array(self.prior))
        return np.asarray(alone + log_gamma(total + self.prior).sum(axis=-1) - log_gamma(size + wide * self.prior))


@dataclass(frozen=True)
class Hours:
    """The hours of the sessions of some accounts, as types of people see them."""

    chance: Floats  # [B, N, Z] log probability of the hour of each session, for each type
    kinds: Floats  # [Z] log probability of each type

    def scores(self, belongs: Floats) -> Floats:
        """Return the log probability of each session's hour given the others of each person [B, N, K]."""
        total = np.moveaxis(belongs.swapaxes(-1, -2) @ self.chance + self.kinds, -1, 0)  # [Z, B, K]
        kind = total[:, :, None] - belongs * self.types_first[..., None]
        kind = np.exp(kind - kind.max(axis=0))
        likely = (kind * np.exp(self.types_first)[..., None]).sum(axis=0)
        return np.asarray(np.log(likely / kind.sum(axis=0)))

    @cached_property
    def types_first(self) -> Floats:
        """`chance` as [Z, B, N]: numpy reduces a first axis several times faster than a short last one."""
        return np.ascontiguousarray(np.moveaxis(self.chance, -1, 0))

    def totals(self, belongs: Floats) -> Floats:
        """Return the log probability of all hours of each person [B, K]."""
        total = belongs.swapaxes(-1, -2) @ self.chance + self.kinds
        most = total.max(axis=-1)
        return np.asarray(most + np.log(np.exp(total - most[..., None]).sum(axis=-1)))


@dataclass(frozen=True)
class Weights:
    """How much each kind of evidence counts when sessions are assigned."""

    fit: float = 3.0  # how well the session fits the person's others by the evidence of pairs
    sum: float = 0.1  # the plain sum of that evidence
    taste: float = 0.0
    weekday: float = 0.0
    hour: float = 0.0

    @property
    def of_habits(self) -> tuple[float, float, float]:
        return self.taste, self.weekday, self.hour


@dataclass(frozen=True)
class View:
    """The habits in the sessions of some accounts with equally many."""

    kinds: tuple[Counts | Hours | None, ...]  # tastes, weekdays, hours; None: the log has none
    weights: Weights

    @cached_property
    def weighted(self) -> list[tuple[float, Counts | Hours]]:
        pairs = zip(self.weights.of_habits, self.kinds, strict=True)
        return [(weight, kind) for weight, kind in pairs if weight and kind is not None]

    def scores(self, belongs: Floats) -> Floats:
        """Return the weighted log probability of each session given the others of each person [B, N, K]."""
        return sum((weight * kind.scores(belongs) for weight, kind in self.weighted), np.zeros(belongs.shape))

    def totals(self, belongs: Floats) -> Floats:
        """Return the weighted log probability of all sessions of each person [B, K]."""
        zeros = np.zeros((*belongs.shape[:-2], belongs.shape[-1]))
        return sum((weight * kind.totals(belongs) for weight, kind in self.weighted), zeros)

    def each(self, belongs: Floats) -> Iterator[Floats]:
        """Yield the log probabilities [B, N, K] of each kind, without weights."""
        for kind in self.kinds:
            yield np.zeros(belongs.shape) if kind is None else kind.scores(belongs)


@dataclass(frozen=True)
class Habits:
    """What is learned of habits from all accounts; each fold from the accounts of the others."""

    group: npt.NDArray[np.uint8]  # [F, M] of each item; G: no account holds it
    together: Floats  # [F, G, G] for each group of a session those of another session of the person; rows sum to one
    hours: Floats | None  # [Z, 2, 24] log probability of each hour of a working day and of a weekend, for each type
    kinds: Floats  # [Z] log probability of each type
    weights: Weights = Weights()

    def of(self, sessions: Sessions, fold: Longs, places: Longs) -> View:
        """Return the habits in these sessions.

        Args:
            fold: of each account.
            places: of the sessions of several accounts with equally many [B, N].
        """
        folds = fold[sessions.owner[places[:, 0]]]
        counts = self._tastes(sessions, folds, places)
        tastes = Counts.of(counts, counts @ self.together[folds], TASTE)
        if sessions.begun is None:
            return View((tastes, None, None), self.weights)
        hour, weekend, weekday = calendar(sessions.begun[places])
        days = np.eye(7)[weekday]
        weekdays = Counts.of(days, days, WEEKDAYS)
        hours = None if self.hours is None else Hours(np.moveaxis(self.hours, 0, -1)[weekend, hour], self.kinds)
        return View((tastes, weekdays, hours), self.weights)

    def _tastes(self, sessions: Sessions, folds: Longs, places: Longs) -> Floats:
        """Return how many events of each session are in each group [B, N, G]."""
        first, size = sessions.first[places].ravel(), sessions.size[places].ravel()
        positions, bounds = ranges(first, first + size)
        row = np.repeat(np.arange(len(first)), np.diff(bounds))
        group = self.group[folds[row // places.shape[1]], sessions.items[positions]].astype(np.int64)
        return counted(row, group, len(first), self.together.shape[1]).reshape(*places.shape, -1)


def counted(row: Longs, group: Longs, rows: int, groups: int) -> Floats:
    """Return how often each row has each group [rows, groups]; numbers beyond, no group, are ignored."""
    known = group < groups
    cells = np.bincount(row[known] * groups + group[known], minlength=rows * groups)
    return cells.reshape(rows, groups).astype(np.float64)


def calendar(begun: Floats) -> tuple[Longs, npt.NDArray[np.intp], Longs]:
    """Return hour, weekend (0 or 1) and weekday (0 is Monday) of times in days since 1970."""
    weekday, hour = clock(np.rint(begun * DAY).astype(np.int64))  # float64 days are exact to the microsecond
    return hour, (weekday >= WEEKEND).astype(np.intp), weekday

"""Item vectors, and features of sessions and of pairs of sessions.

An account is described by what the training logs of other accounts say about its items. A table that includes the
account itself would tie all its items together, whichever member they belong to. Accounts are therefore dealt into
folds, and the item tables of each fold are computed from the other folds.

In item vectors, items held by the same accounts are similar. The weight of two items is their positive pointwise mutual
information: log(observed / expected) of the number of accounts that hold both. The vectors are the leading eigenvectors
of these weights, scaled by the root of their eigenvalues.

Shapes: F folds, M items, E events, S sessions, W width of a vector, T traits, P pairs.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Ints, Longs
from lightgc2n.data.split_types import ranges
from lightgc2n.people.sessions import DAY, Floats, Logs, Matrix, hours, unit_means

WIDTH = 32
LONGEST = 200  # distinct items of one log that form pairs; the number of pairs grows with the square
MOST_PAIRS = 12_000_000  # of all logs; of more logs only every second, third ... is used
OVERSAMPLING, ROUNDS = 8, 4
CELLS_AT_ONCE = 200_000  # fits into the CPU cache


@dataclass(frozen=True)
class Weights:
    """A symmetric sparse matrix: its nonzero cells, row by row."""

    size: int
    row: Longs
    column: Longs
    value: Matrix

    def __matmul__(self, dense: Matrix) -> Matrix:
        product = np.zeros((self.size, dense.shape[1]), dtype=np.float32)
        step = max(1, CELLS_AT_ONCE // dense.shape[1])
        for first in range(0, len(self.row), step):
            part = slice(first, first + step)
            starts = np.flatnonzero(np.diff(self.row[part], prepend=-1))
            terms = dense[self.column[part]]
            terms *= self.value[part, None]
            product[self.row[part][starts]] += np.add.reduceat(terms, starts)
        return product


def item_vectors(account: Ints | Longs, item: Ints | Longs, items: int, width: int = WIDTH, seed: int = 0) -> Matrix:
    """Return a vector for each item, [items, width]: of length one, or zero if it occurs with no other.

    Args:
        account: of each training event.
        item: of each training event.
    """
    weights = information(*_held(account, item), items)
    vectors = leading_vectors(weights, width, np.random.default_rng(seed))
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(length > 0, length, 1.0)).astype(np.float32)


def information(account: Longs, item: Longs, items: int) -> Weights:
    """Return the positive pointwise mutual information of each pair of items.

    Args:
        account: of each distinct (account, item) pair, sorted.
    """
    account, item = _fewer(account, item)
    stop = np.searchsorted(account, account, side="right")
    later = stop - np.arange(len(item)) - 1  # number of later items of the same account, in the order of `_held`
    first = np.repeat(np.arange(len(item)), later)
    second = np.arange(len(first)) - np.repeat(np.cumsum(later) - later, later) + first + 1
    cells, together = np.unique(item[first] * items + item[second], return_counts=True)
    holders = np.bincount(item, minlength=items)
    row, column = cells // items, cells % items
    value = np.log(together * (len(np.unique(account)) / holders[row] / holders[column])).astype(np.float32)
    return _mirrored(items, row[value > 0], column[value > 0], value[value > 0])


def _fewer(account: Longs, item: Longs) -> tuple[Longs, Longs]:
    """Return the pairs of so few accounts that these form about MOST_PAIRS pairs of items at most."""
    number = np.unique(account, return_inverse=True)[1]
    held = np.bincount(number)
    every = -(-int((held * (held - 1) // 2).sum()) // MOST_PAIRS)
    if every <= 1:
        return account, item
    used = number % every == 0
    return account[used], item[used]


def _mirrored(size: int, row: Longs, column: Longs, value: Matrix) -> Weights:
    """Return the matrix with these cells above the diagonal and their mirror images."""
    rows, columns = np.concatenate([row, column]), np.concatenate([column, row])
    order = np.argsort(rows, kind="stable")
    return Weights(size, rows[order], columns[order], np.concatenate([value, value])[order])


def leading_vectors(weights: Weights, width: int, random: np.random.Generator) -> Matrix:
    """Return the eigenvectors of the largest positive eigenvalues, by subspace iteration, scaled by the root."""
    wide = min(width + OVERSAMPLING, weights.size)
    basis = random.standard_normal((weights.size, wide)).astype(np.float32)
    for _ in range(ROUNDS):
        basis = np.linalg.qr(weights @ basis)[0]
    values, rotation = np.linalg.eigh(basis.T @ (weights @ basis))
    chosen = np.argsort(-values)[:width]
    vectors = (basis @ rotation[:, chosen]) * np.sqrt(np.maximum(values[chosen], 0.0))
    return np.pad(vectors, ((0, 0), (0, width - vectors.shape[1]))).astype(np.float32)


def _held(account: Ints | Longs, item: Ints | Longs) -> tuple[Longs, Longs]:
    """Return each distinct (account, item) pair, sorted; of overlong logs only every second, third ... pair."""
    size = int(np.max(item, initial=0)) + 1
    pairs = np.unique(np.asarray(account, dtype=np.int64) * size + item)
    owner = pairs // size
    first, stop = (np.searchsorted(owner, owner, side=side) for side in ("left", "right"))
    every = -(-(stop - first) // LONGEST)
    sampled = pairs[(np.arange(len(pairs)) - first) % every == 0]
    return sampled // size, sampled % size


FOLDS = 4
DATED = [1, 2, 4]  # traits that depend on the date: age, lateness and the date itself
HALF_AN_HOUR = 0.02  # in days; smaller time differences are treated as equal


@dataclass(frozen=True)
class ItemTables:
    """Statistics of each item in the training logs outside each fold."""

    vectors: Matrix  # [F, M, W]
    events: Longs  # [F, M] number of events
    first: Floats | None  # [F, M] first day of the item; infinite if it has no events
    middle: Floats | None  # [F, M] mean day of the item; 0 if it has no events


@dataclass(frozen=True)
class Sessions:
    """The sessions of some accounts."""

    owner: Longs  # [S] account of each session
    size: Longs  # [S] number of events
    begun: Floats | None  # [S] in days
    taste: Floats  # [S, W] the mean vector of its items
    traits: Floats  # [S, T] other features
    first: Longs  # [S] position of the first event
    items: Longs  # [E] items of all events
    held: Longs  # sorted keys session * M + item of all distinct pairs
    catalogue: int  # M

    def without_dates(self) -> "Sessions":
        """Return these sessions without what depends on their date: how old and late items are, and the date."""
        if self.begun is None:
            return self
        traits = self.traits.copy()
        traits[:, DATED] = 0
        return replace(self, begun=None, traits=traits)

    def again(self, places: Longs) -> Floats:
        """Return the share of (session, item) pairs whose item an earlier one of these sessions holds too.

        Args:
            places: of the sessions of one account [N], or of several accounts with equally many [B, N].
        """
        rows = places.reshape(-1, places.shape[-1])
        start, stop = (np.searchsorted(self.held, (rows.ravel() + more) * self.catalogue) for more in (0, 1))
        positions, bounds = ranges(start, stop)
        row = np.repeat(np.repeat(np.arange(len(rows)), rows.shape[1]), np.diff(bounds))
        different = np.unique(row * self.catalogue + self.held[positions] % self.catalogue) // self.catalogue
        pairs, items = (np.bincount(one, minlength=len(rows)) for one in (row, different))
        return np.asarray(1 - items / pairs).reshape(places.shape[:-1])


def item_tables(training: Logs, fold: Longs, seed: int = 0) -> ItemTables:
    """Compute the tables of each fold from the training logs of the others.

    Args:
        fold: of each training account.
    """
    parts = [_outside(training, fold[training.account] != one, seed) for one in range(FOLDS)]
    vectors, events, first, middle = (list(part) for part in zip(*parts, strict=True))
    if training.times is None:
        return ItemTables(np.stack(vectors), np.stack(events), None, None)
    return ItemTables(np.stack(vectors), np.stack(events), np.stack(first), np.stack(middle))


def _outside(training: Logs, outside: npt.NDArray[np.bool_], seed: int) -> tuple[Matrix, Longs, Floats, Floats]:
    catalogue = len(training.vectors)
    item = training.items[outside]
    vectors = item_vectors(training.account[outside], item, catalogue, seed=seed)
    events = np.bincount(item, minlength=catalogue)
    day = np.zeros(len(item)) if training.times is None else training.times[outside] / DAY
    first = np.full(catalogue, np.inf)
    np.minimum.at(first, item, day)
    return vectors, events, first, np.bincount(item, day, catalogue) / np.maximum(events, 1)


def describe(logs: Logs, tables: ItemTables, fold: Longs) -> Sessions:
    """Describe the sessions of the logs.

    Args:
        fold: of each account.
    """
    session, items = logs.session, logs.items.astype(np.int64)
    first = np.flatnonzero(np.diff(session, prepend=-1))
    size, catalogue = np.diff(np.append(first, len(session))), tables.events.shape[1]
    at = fold[logs.account], items
    traits = [unit_means(_event_traits(logs, tables, at), session), np.log(size)[:, None]]
    begun = None
    if logs.times is not None:
        begun = logs.times[first] / DAY
        traits += [begun[:, None], _calendar(logs)]
    return Sessions(
        owner=logs.account[first],
        size=size,
        begun=begun,
        taste=unit_means(tables.vectors[at], session),
        traits=np.hstack(traits),
        first=first,
        items=items,
        held=np.unique(session * catalogue + items),
        catalogue=catalogue,
    )


def _event_traits(logs: Logs, tables: ItemTables, at: tuple[Longs, Longs]) -> Floats:
    """Return for each event the popularity and age of its item, and how late the event is among the item's events."""
    popularity = np.log1p(tables.events[at])
    if logs.times is None or tables.first is None or tables.middle is None:
        return popularity[:, None]
    day = logs.times / DAY
    # An item without events of other accounts counts as new, and neither early nor late.
    age = np.log1p(np.maximum(day - tables.first[at], 0))
    late = np.where(tables.events[at] > 0, day - tables.middle[at], 0)
    return np.column_stack([popularity, age, late])


def _calendar(logs: Logs) -> Floats:
    """Return for each session the hour on a 24-hour and a 12-hour circle, and whether it began at a weekend."""
    cosine, sine, weekend = hours(logs, logs.session).T.astype(np.float64)
    return np.column_stack([cosine, sine, cosine**2 - sine**2, 2 * cosine * sine, weekend])


def pair_features(sessions: Sessions, one: Longs, other: Longs) -> Floats:
    """Return symmetric features of each pair of sessions."""
    left, right = sessions.traits[one], sessions.traits[other]
    columns = [np.abs(left - right), left * right, left + right]
    tastes = sessions.taste[one], sessions.taste[other]
    likeness = (tastes[0] * tastes[1]).sum(axis=1)
    length = np.linalg.norm(tastes[0], axis=1) * np.linalg.norm(tastes[1], axis=1)
    cosine = likeness / np.maximum(length, 1e-9)
    columns.append(np.column_stack([likeness, cosine, share_an_item(sessions, one, other)]))
    if sessions.begun is not None:
        day = sessions.begun
        same_weekday = np.floor(day[one]) % 7 == np.floor(day[other]) % 7
        apart = np.log(np.abs(day[one] - day[other]) + HALF_AN_HOUR)
        columns.append(np.column_stack([apart, same_weekday]))
    return np.hstack(columns)


def share_an_item(sessions: Sessions, one: Longs, other: Longs) -> npt.NDArray[np.bool_]:
    """Return whether two sessions hold a common item, by looking up each event of the first in the second."""
    places, offsets = ranges(sessions.first[one], sessions.first[one] + sessions.size[one])
    pair = np.repeat(np.arange(len(one)), np.diff(offsets))
    key = other[pair] * sessions.catalogue + sessions.items[places]
    shared = sessions.held[np.minimum(np.searchsorted(sessions.held, key), len(sessions.held) - 1)] == key
    return np.bincount(pair, shared, len(one)) > 0

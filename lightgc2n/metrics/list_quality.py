"""Measures of lists beyond accuracy: coverage of the catalogue, novelty, diversity and popularity bias.

Shapes: Q queries, K places of a list, M items, E events of all histories.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lightgc2n.data.dataset import Longs
from lightgc2n.metrics.intervals import Estimate, estimates
from lightgc2n.metrics.ranking import Floats

PLACES = 20  # of a list
GROUPS = 20  # of accounts, for the interval of the coverage
WIDTH = 256  # of the random vectors of accounts
QUERIES_AT_ONCE = 1024


@dataclass(frozen=True)
class Lists:
    """The lists of one model for the test queries."""

    items: Longs  # [Q, K] best first; -1 where a list is shorter
    owner: Longs  # [Q] the account of each query


@dataclass(frozen=True)
class Surroundings:
    """What lists are compared with; the same for all models."""

    popularity: Longs  # [M] training events
    usual: Floats  # [Q] mean popularity percentile of the items of each query's history; NaN for an empty one
    vectors: Floats  # [M, D] unit vectors, or zeros, whose products are similarities of items
    of: str  # what the similarity compares

    @property
    def percentile(self) -> Floats:
        return popularity_percentile(self.popularity)


def list_quality(lists: Lists, around: Surroundings, seed: int = 0) -> dict[str, Estimate]:
    """Each measure with its 95 % interval.

    coverage: the share of items with training events that are in at least one list.
    novelty: the mean surprise of a listed item in bits, -log2 of its share of all training events.
    diversity: 1 minus the mean similarity of two items of a list.
    popularity bias: the mean popularity percentile of a list minus that of the history.
    """
    real = lists.items >= 0
    places = np.where(real, lists.items, 0)
    share = (around.popularity + 1) / (around.popularity.sum() + len(around.popularity))
    percentile = _mean(around.percentile[places], real)
    columns = {
        "novelty": _mean(-np.log2(share)[places], real),
        "diversity": _diversity(places, real, around.vectors),
        "popularity bias": percentile - np.where(np.isnan(around.usual), percentile, around.usual),
    }
    return {"coverage": coverage(lists, around.popularity), **estimates(columns, lists.owner, seed)}


def popularity_percentile(popularity: Longs) -> Floats:
    """The share of all training events that are of items with fewer events, ties counting half."""
    counts, place, items = np.unique(popularity, return_inverse=True, return_counts=True)
    mass = counts * items
    below = np.cumsum(mass) - mass
    return ((below + mass / 2) / max(int(mass.sum()), 1))[place].astype(np.float64)


def usual_popularity(popularity: Longs, start: Longs, stop: Longs, events: Longs) -> Floats:
    """The mean popularity percentile of the history of each query; NaN for an empty one."""
    total = np.concatenate([[0.0], np.cumsum(popularity_percentile(popularity)[events])])
    with np.errstate(invalid="ignore"):
        return (total[stop] - total[start]) / (stop - start)


def coverage(lists: Lists, popularity: Longs) -> Estimate:
    """The share of items with training events in at least one list; the interval is that of a grouped jackknife.

    Accounts are divided into groups; the variance over the values without one group estimates the sampling error.
    """
    known = max(int((popularity > 0).sum()), 1)
    group = np.unique(lists.owner, return_inverse=True)[1] % GROUPS
    values = lists.items.ravel()
    rows = np.repeat(group, lists.items.shape[1])[values >= 0]
    values = values[values >= 0]
    groups = int(group.max(initial=0)) + 1
    held = np.zeros((groups, len(popularity)), dtype=bool)
    held[rows, values] = True
    held &= popularity > 0
    by = held.sum(axis=0)
    value = float((by > 0).sum() / known)
    without = np.array([((by - own) > 0).sum() / known for own in held.astype(np.int64)])
    spread = float(np.sqrt((groups - 1) / groups * ((without - without.mean()) ** 2).sum())) if groups > 1 else 0.0
    return Estimate(value, max(0.0, value - 1.96 * spread), min(1.0, value + 1.96 * spread))


def category_vectors(categories: Sequence[Sequence[str]]) -> Floats:
    """Unit vectors of items by their categories: the product of two is the cosine of their sets."""
    names = {name: place for place, name in enumerate(dict.fromkeys(one for own in categories for one in own))}
    vectors = np.zeros((len(categories), max(len(names), 1)))
    for row, own in enumerate(categories):
        vectors[row, [names[name] for name in set(own)]] = 1.0
    return _unit(vectors)


def audience_vectors(account: Longs, item: Longs, items: int, seed: int = 0) -> Floats:
    """Unit vectors of items by their accounts: a random projection; products are near the cosines."""
    pairs = np.unique(account.astype(np.int64) * items + item)
    signs = np.random.default_rng(seed).choice(
        np.array([-1.0, 1.0], np.float32), (int(account.max(initial=0)) + 1, WIDTH)
    )
    vectors = np.zeros((items, WIDTH), dtype=np.float32)
    np.add.at(vectors, pairs % items, signs[pairs // items])
    return _unit(vectors.astype(np.float64))


def _unit(vectors: Floats) -> Floats:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def _mean(values: Floats, real: "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]") -> Floats:
    return np.asarray((values * real).sum(axis=1) / np.maximum(real.sum(axis=1), 1), dtype=np.float64)


def _diversity(places: Longs, real: "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]", vectors: Floats) -> Floats:
    """1 minus the mean product of two different places of each list; the square of the sum has all products."""
    parts = []
    for first in range(0, len(places), QUERIES_AT_ONCE):
        some = slice(first, first + QUERIES_AT_ONCE)
        own = vectors[places[some]] * real[some][..., None]
        length = real[some].sum(axis=1)
        among = np.square(own.sum(axis=1)).sum(axis=1) - np.square(own).sum(axis=(1, 2))
        parts.append(1 - among / np.maximum(length * (length - 1), 1))
    return np.concatenate(parts) if parts else np.empty(0)

"""Simple methods of assigning events to people, as baselines for the others.

A method receives logs and optionally the number of people of each account. It returns for each event the number of its
person within the account. Without a count it estimates one, at most five.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from lightgc2n.data.dataset import Longs
from lightgc2n.people.clustering import (
    MOST_PEOPLE,
    NEIGHBOURS,
    best_count,
    dbscan,
    distances,
    k_means,
    mixture,
    silhouette,
    spheres_bic,
)
from lightgc2n.people.sessions import Floats, Logs, Matrix, Points, account_points, dates, hours, tastes

Random = np.random.Generator
Find = Callable[..., "Longs | CountEstimate"]  # arguments: logs, counts or None, and a generator
Cluster = Callable[[Points, Longs | None, Random], Longs]
Features = Callable[[Logs, Longs], Matrix]
Cost = Callable[[Points, Longs, int], Floats]
HOURS_WEIGHT = 0.4  # relative to item vectors of length one


@dataclass(frozen=True)
class CountEstimate:
    """The person of each event, with estimated counts and their probabilities."""

    person: Longs  # [E] person of each event
    count: Longs  # [A] number of people of each account
    chances: Floats  # [A, 5] probability of one person, of two ...


@dataclass(frozen=True)
class Method:
    """A method of assigning events to people, and its requirements."""

    find: Find
    given: bool = True  # it can use a given count
    inferred: bool = True  # it can estimate the count
    finder: bool = False  # it is given a people finder that was learned from the training logs
    needs: str = ""  # `times`; `hours`: times with hours; `examples`: accounts whose people are known


def one_person(logs: Logs, count: Longs | None, random: Random) -> Longs:
    """Assign all events to one person."""
    return np.zeros(len(logs.items), dtype=np.int64)


def at_random(logs: Logs, count: Longs | None, random: Random, units: str = "event") -> Longs:
    """Draw a person uniformly for each event or session; without a count, draw that uniformly too."""
    if count is None:
        count = random.integers(1, MOST_PEOPLE + 1, size=logs.accounts)
    unit = getattr(logs, units)
    drawn = random.random(int(unit[-1]) + 1)
    return (drawn[unit] * count[logs.account]).astype(np.int64)


def by_clusters(
    logs: Logs,
    count: Longs | None,
    random: Random,
    *,
    cluster: Cluster,
    features: Features = tastes,
    units: str = "event",
) -> Longs:
    """Cluster the events or sessions of an account by their features."""
    unit: Longs = getattr(logs, units)
    values = features(logs, unit)
    label = np.zeros(len(values), dtype=np.int64)
    owner = logs.account[np.flatnonzero(np.diff(unit, prepend=-1))]
    for rows, places, points in account_points(values, owner, logs.accounts):
        label[places] = cluster(points, None if count is None else count[rows], random)[points.known]
    return label[unit]


def tastes_and_hours(logs: Logs, unit: Longs) -> Matrix:
    """Return taste and hour features, concatenated."""
    return np.hstack([tastes(logs, unit), np.float32(HOURS_WEIGHT) * hours(logs, unit)])


def k_means_people(points: Points, count: Longs | None, random: Random, *, cost: Cost, fewest: int = 1) -> Longs:
    """Run k-means; without a count, choose the one of lowest cost."""
    if count is not None:
        return k_means(points, count, random)

    def grouped(counts: Longs) -> tuple[Longs, Floats]:
        label = k_means(points, counts, random)
        return label, cost(points, label, int(counts.max()))

    return best_count(points, range(fewest, MOST_PEOPLE + 1), grouped)


def blur(points: Points, label: Longs, people: int) -> Floats:
    """Return the negative silhouette."""
    return -silhouette(points, label, people)


def mixture_people(points: Points, count: Longs | None, random: Random) -> Longs:
    """Fit a Gaussian mixture; without a count, choose it by BIC."""
    if count is not None:
        return mixture(points, count, random)[0]
    return best_count(points, range(1, MOST_PEOPLE + 1), lambda counts: mixture(points, counts, random))


def dbscan_people(points: Points, count: Longs | None, random: Random) -> Longs:
    """Run DBSCAN with the median distance to the last of the neighbours that make a point dense as its radius."""
    apart = np.where(points.known[:, None, :] & points.known[:, :, None], distances(points), np.nan)
    place = np.minimum(NEIGHBOURS, points.known.sum(axis=1)) - 1
    last = np.take_along_axis(np.sort(apart, axis=2), place[:, None, None], axis=2)[:, :, 0]
    reach = np.nanmedian(np.where(points.known, last, np.nan), axis=1)
    return dbscan(points, reach)


def _sessions(cluster: Cluster, features: Features = tastes) -> Find:
    return partial(by_clusters, cluster=cluster, features=features, units="session")


# The silhouette of a single cluster is undefined, so this always yields two or more people.
BY_SILHOUETTE = partial(k_means_people, cost=blur, fewest=2)
BY_BIC = partial(k_means_people, cost=spheres_bic)

REFERENCE_METHODS: dict[str, Method] = {
    "one-person": Method(one_person),
    "random": Method(at_random),
    "random-sessions": Method(partial(at_random, units="session")),
    "k-means": Method(partial(by_clusters, cluster=BY_SILHOUETTE)),
    "mixture": Method(partial(by_clusters, cluster=mixture_people)),
    "session-k-means": Method(_sessions(BY_SILHOUETTE)),
    "session-k-means-bic": Method(_sessions(BY_BIC), given=False),
    "session-mixture": Method(_sessions(mixture_people)),
    "session-dbscan": Method(_sessions(dbscan_people), given=False),
    "session-dates": Method(_sessions(BY_SILHOUETTE, dates), needs="times"),
    "session-k-means-hours": Method(_sessions(BY_SILHOUETTE, tastes_and_hours), needs="hours"),
    "session-mixture-hours": Method(_sessions(mixture_people, tastes_and_hours), needs="hours"),
    "session-dbscan-hours": Method(_sessions(dbscan_people, tastes_and_hours), given=False, needs="hours"),
}

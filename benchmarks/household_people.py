"""How well the people of generated households can be told apart, by items, by hours, and with all known of them."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from lightgc2n.synthetic.household_viewing import COMMON_EVENING, DAY, HOUR, SPREAD_OF_EVENING, SPREAD_OF_HABIT
from lightgc2n.synthetic.household_world import GENRES, WEEKEND, HouseholdConfig, People, World, build_world
from lightgc2n.synthetic.households import generate_chunks

Array = npt.NDArray[Any]

SITTING_GAP = HOUR
VECTOR_WIDTH = 32


@dataclass(frozen=True)
class Town:
    """A generated world with all that is known of it; people are those of the first chunk of households."""

    config: HouseholdConfig
    world: World
    people: People
    home: Array
    person: Array
    number: Array  # of the person in the home; 0 is the guest
    domain: Array
    time: Array
    item: Array

    def logs(self, domain: int) -> list[Array]:
        keep = self.domain == domain
        return split_by(self.home[keep], self.item[keep])


def build_town(config: HouseholdConfig, seed: int) -> Town:
    """The whole world of a seed, in memory."""
    world = build_world(config, seed)
    chunks = list(generate_chunks(config, seed, world))
    before = np.cumsum([0] + [len(chunk.people.home) for chunk in chunks])
    return Town(
        config=config,
        world=world,
        people=chunks[0].people,
        home=np.concatenate([chunk.first + chunk.viewing.home for chunk in chunks]),
        person=np.concatenate([start + chunk.viewing.person for start, chunk in zip(before, chunks, strict=False)]),
        number=np.concatenate([chunk.people.number[chunk.viewing.person] for chunk in chunks]),
        domain=np.concatenate([chunk.viewing.domain for chunk in chunks]),
        time=np.concatenate([chunk.viewing.time for chunk in chunks]),
        item=np.concatenate([chunk.viewing.item for chunk in chunks]),
    )


def describe_people(town: Town, sample: int) -> dict[str, dict[str, float]]:
    """How well people of shared accounts can be told apart: mean adjusted Rand index over events and over sittings.

    All events of a sitting get one label, so over events even labels at random score well above zero.
    """
    from sklearn.metrics import adjusted_rand_score
    from threadpoolctl import threadpool_limits

    vectors, random = item_vectors(town), np.random.default_rng(0)
    scores: dict[str, defaultdict[str, list[float]]] = {"events": defaultdict(list), "sittings": defaultdict(list)}
    with threadpool_limits(1):  # threads cost more than they bring on so few sittings
        for events in shared_accounts(town, sample):
            sitting = sittings(town.time[events])
            person = town.person[events]
            owner = np.array([np.bincount(group).argmax() for group in split_by(sitting, person)])
            for name, labels in tell_apart(town, events, sitting, vectors, random).items():
                scores["events"][name].append(adjusted_rand_score(person, labels[sitting]))
                scores["sittings"][name].append(adjusted_rand_score(owner, labels))
    return {over: {name: float(np.mean(values)) for name, values in table.items()} for over, table in scores.items()}


def sitting_purity(town: Town) -> float:
    """The share of sittings in which one person chooses everything."""
    pure = []
    for events in split_by(town.home, np.arange(len(town.home))):
        groups = split_by(sittings(town.time[events]), town.person[events])
        pure += [bool((group == group[0]).all()) for group in groups]
    return float(np.mean(pure))


def shared_accounts(town: Town, sample: int) -> Iterator[Array]:
    """The events of each account on which two or more people of the home act, `sample` accounts at most."""
    # Only of the first chunk the people are known, and they come first.
    first = np.searchsorted(town.home, town.people.home[-1], side="right")
    accounts = split_by(town.home[:first], np.arange(first))
    shared = [events for events in accounts if member_count(town, events) > 1]
    return iter(shared[:sample])


def member_count(town: Town, events: Array) -> int:
    """How many people of the home act in these events; a guest does not count."""
    return len(set(town.number[events].tolist()) - {0})


def sittings(times: Array) -> Array:
    """For each event the number of its sitting: a longer gap begins a new one."""
    return np.cumsum(np.diff(times, prepend=times[0]) > SITTING_GAP)


def item_vectors(town: Town) -> Array:
    """A vector for each item, from what accounts have in common: TF-IDF, then a truncated SVD."""
    from scipy.sparse import csr_matrix
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfTransformer

    shape = (int(town.home[-1]) + 1, len(town.world.unit_of_item))
    table = csr_matrix((np.ones(len(town.home)), (town.home, town.item)), shape=shape)
    weighted = TfidfTransformer(sublinear_tf=True).fit_transform(table)
    return np.asarray(TruncatedSVD(VECTOR_WIDTH, random_state=0).fit(weighted).components_.T)


def tell_apart(
    town: Town, events: Array, sitting: Array, vectors: Array, random: np.random.Generator
) -> dict[str, Array]:
    """For each way to tell people apart, the label of each sitting of one account."""
    count, groups = member_count(town, events), split_by(sitting, events)
    tastes = np.array([vectors[town.item[group]].mean(axis=0) for group in groups])
    # The vector of a hit is long; at one length an item counts by its direction, and hits no longer drown the rest.
    directions = vectors / (np.linalg.norm(vectors, axis=1, keepdims=True) + 1e-12)
    kinds = np.array([directions[town.item[group]].mean(axis=0) for group in groups])
    clock = clock_features(np.array([town.time[group[0]] for group in groups]))
    return {
        "labels at random": random.integers(0, count, len(groups)),
        "k-means on items": k_means(tastes, count),
        "k-means on items at one length": k_means(kinds, count),
        "k-means on hours": k_means(clock, count),
        "k-means on items and hours": k_means(np.hstack([standardised(kinds), standardised(clock)]), count),
        "linkage of items, hours and series": linkage(town, groups, kinds, count),
        "known tastes": known_people(town, groups, use_hours=False, use_order=False),
        "known hours": known_people(town, groups, use_items=False, use_order=False),
        "known people, all together": known_people(town, groups),
    }


def k_means(features: Array, count: int) -> Array:
    from sklearn.cluster import KMeans

    # With fewer different sittings than people there is nothing to group.
    if len(np.unique(features, axis=0)) <= count:
        return np.arange(len(features))
    return np.asarray(KMeans(count, n_init=5, random_state=0).fit_predict(features))


def standardised(features: Array) -> Array:
    return np.asarray((features - features.mean(axis=0)) / (features.std(axis=0) + 1e-9))


def clock_features(starts: Array) -> Array:
    angle, weekday = hour_of(starts) * 2 * np.pi / 24, weekday_of(starts)
    return np.stack([np.cos(angle), np.sin(angle), 0.5 * (weekday >= WEEKEND)], axis=1)


def hour_of(times: Array) -> Array:
    return times % DAY / HOUR


def weekday_of(times: Array) -> Array:
    return (times // DAY + 3) % 7  # the first day of 1970 was a Thursday


def linkage(town: Town, groups: list[Array], kinds: Array, count: int) -> Array:
    """Sittings joined by all that speaks for one person: a sketch of what a model could use, weighed by hand."""
    from sklearn.cluster import AgglomerativeClustering

    if len(groups) <= count:
        return np.arange(len(groups))
    starts = np.array([town.time[group[0]] for group in groups])
    apart = np.abs((hour_of(starts)[:, None] - hour_of(starts) + 12) % 24 - 12)
    weekend = weekday_of(starts) >= WEEKEND
    same_hours = np.log(np.where(weekend[:, None] == weekend, 3.2 * np.exp(-((apart / 4) ** 2)) + 0.3, 1.0))
    directions = kinds / (np.linalg.norm(kinds, axis=1, keepdims=True) + 1e-12)
    cosine = directions @ directions.T
    near = 0.6 * same_hours + (cosine - cosine.mean()) / (cosine.std() + 1e-9) + same_things(town, groups)
    far = near.max() - near
    np.fill_diagonal(far, 0)
    return np.asarray(AgglomerativeClustering(count, metric="precomputed", linkage="average").fit_predict(far))


def same_things(town: Town, groups: list[Array]) -> Array:
    """For each two sittings how much they share: the same items, or an episode and the next one."""
    items = [set(town.item[group].tolist()) for group in groups]
    last = town.world.unit_first + town.world.unit_length - 1
    successors = [{item + 1 for item in seen if item != last[town.world.unit_of_item[item]]} for seen in items]
    shared = np.zeros((len(groups), len(groups)))
    for early, late in combinations(range(len(groups)), 2):
        goes_on = bool(successors[early] & items[late])
        shared[early, late] = shared[late, early] = 1.5 * len(items[early] & items[late]) + 2.0 * goes_on
    return shared


def known_people(
    town: Town, groups: list[Array], *, use_items: bool = True, use_hours: bool = True, use_order: bool = True
) -> Array:
    """The likeliest person of each sitting, when tastes and habits of all are known: a ceiling for models."""
    home = np.flatnonzero(town.people.home == town.home[groups[0][0]])
    seen: list[list[int]] = [[] for _ in home]
    labels = []
    for group in groups:
        likelihood = np.log(town.people.activity[home])
        if use_hours:
            likelihood += log_hours(town, home, int(town.time[group[0]]))
        if use_items:
            likelihood += sum(log_choice(town, home, seen, int(item), use_order) for item in town.item[group])
        labels.append(int(likelihood.argmax()))
        seen[labels[-1]] += town.item[group].tolist()
    return np.array(labels)


def log_hours(town: Town, home: Array, start: int) -> Array:
    """How likely each of the home sits down at this time."""
    weekday, hour, habit = int(weekday_of(np.int64(start))), start % DAY / HOUR, town.config.habit
    own = bell(hour, town.people.hours[home, int(weekday >= WEEKEND)], SPREAD_OF_HABIT)
    density = habit * own + (1 - habit) * bell(hour, COMMON_EVENING, SPREAD_OF_EVENING)
    return np.log(density + 1e-12) + np.log(town.people.weekdays[home, weekday])


def bell(hour: float, centre: Any, spread: float) -> Any:
    return np.exp(-0.5 * (((hour - centre + 12) % 24 - 12) / spread) ** 2) / spread


def log_choice(town: Town, home: Array, seen: list[list[int]], item: int, use_order: bool) -> Array:
    """How likely each of the home chooses this item, after what they are believed to have seen."""
    world, config = town.world, town.config
    unit = world.unit_of_item[item]
    domain, genre = divmod(int(world.unit_genre[unit]), GENRES)
    fresh = town.people.taste[domain, home, genre] * world.unit_weight[unit]
    if not use_order:
        return np.log(fresh + 1e-12)
    again = np.array([known.count(item) / max(len(known), 1) for known in seen])
    goes_on = np.array([item != world.unit_first[unit] and item - 1 in known for known in seen])
    ways = (1 - config.rewatching - config.binge / 2) * fresh + config.rewatching * again + config.binge * goes_on
    return np.log(ways + 1e-12)


def split_by(groups: Array, values: Array) -> list[Array]:
    """The values of each group; a group's entries lie together."""
    return np.split(values, np.flatnonzero(np.diff(groups)) + 1)
